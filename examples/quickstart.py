"""From two tables to ranked interests and ranked users, in half a minute.

    python examples/quickstart.py

The tables are those of a planted shop, whose customers' true interests are known (docs/planted.md), so the last lines
can tell how far the model is from the best that is possible. Everything is written below the current folder.
"""

from __future__ import annotations

from pathlib import Path

import merit
from merit.core import config
from merit.core.pipeline import run
from merit.core.settings import RunConfig
from merit.data import planted

SETTINGS = Path(__file__).parent / "small.toml"


def make_run() -> Path:
    """The folder of a small run, made if it is not there yet: what is finished and unchanged is kept."""
    if not Path("shop/items.parquet").exists():
        planted.write(planted.shop(planted.PlantedConfig(users=200), seed=3), Path("shop"))
    settings = config.load(RunConfig, SETTINGS)
    run(settings)
    return settings.out


def main() -> None:
    model = merit.load(make_run())
    user = model.users["user_id"][0]
    print(model)
    print(model.interests(user, k=5))
    print(model.audience("trail running shoes", n=100).head(5))
    print(model.explain(user, model.interests(user, k=1)["interest"][0], k=3))


if __name__ == "__main__":
    main()
