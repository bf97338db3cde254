"""Users for an interest that is in no training example: a phrase, or a label that was added today.

    python examples/zero_shot_audience.py

A phrase is embedded by the label encoder and looked for in the titles of what people bought (docs/model.md). Added to
the label space it becomes a label, with the same scores as the phrase; every other label keeps its own to the last bit.
"""

from __future__ import annotations

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))

from quickstart import make_run

import merit
from merit.core import artifacts
from merit.core.errors import PolicyError
from merit.labels.build import change_labels

PHRASE = "trekking poles for the winter"


def main() -> tuple[merit.Model, merit.Model]:
    run = make_run()
    model = merit.load(run)
    asked = model.interest(PHRASE)
    print(f"'{PHRASE}' is nearest to '{asked.nearest}' ({asked.similarity:.2f})")
    print(model.audience(PHRASE, n=100).head(5))

    labels = artifacts.load(run / "labels", "labels")
    newer = Path("runs/labels-2")
    change_labels(labels, newer, "add", [PHRASE], reason="a campaign of ours", cache=Path(".cache/merit"))
    later = merit.load(run, labels=newer)
    print(later.audience(PHRASE, n=100).head(5))

    try:
        model.audience("gambling debts", n=100)
    except PolicyError as refused:
        print(f"refused: {refused}")
    return model, later


if __name__ == "__main__":
    main()
