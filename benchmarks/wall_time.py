"""How long a short demo takes in two checkouts, alternated, as a ratio.

    python -m benchmarks.wall_time OLD [--rounds 2]          # OLD: the other checkout
    python -m benchmarks.wall_time OLD --quick --rounds 1    # a small planted shop instead, to see that it works

Every training has few steps, so that what is compared is the house around them. Labels get their vectors anew in each
run. Last line: one JSON object.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from statistics import median

from benchmarks.same import ITEMS, knows_items

HERE = Path(__file__).parents[1]
DEMO = """
seed = 7
out = "run"
cache = "cache"
[stage_1]
steps = 20
[stage_2]
steps = 20
[propensity.factors]
epochs = 1
[propensity.fit]
epochs = 1
[source]
"""
REAL = 'kind = "complete-journey"\n'
PLANTED = 'kind = "tables"\ninteractions = "shop/interactions.parquet"\nitems = "shop/items.parquet"\n'


def seconds_of(checkout: Path, quick: bool) -> tuple[float, dict[str, float]]:
    """The wall time of a run from nothing to a model, and that of each stage."""
    with tempfile.TemporaryDirectory() as name:
        place = Path(name)
        (place / "run.toml").write_text(DEMO + (PLANTED if quick else REAL) + (ITEMS if knows_items(checkout) else ""))
        if quick:
            _merit(checkout, place, "data", "planted", "--out", "shop", "--set", "users=300", "--seed", "1")
        begin = time.perf_counter()
        _merit(checkout, place, "run", "run.toml")
        return time.perf_counter() - begin, _stages(place / "run")


def _merit(checkout: Path, place: Path, *words: str) -> None:
    paths = os.environ | {"PYTHONPATH": str(checkout / "src")}
    command = [sys.executable, "-m", "merit.cli", *words]
    made = subprocess.run(command, cwd=place, env=paths, capture_output=True, text=True)
    if made.returncode:
        raise SystemExit(f"`merit {' '.join(words)}` of {checkout} failed:\n{made.stdout}{made.stderr}")


def _stages(run: Path) -> dict[str, float]:
    lines = (run / "timings.jsonl").read_text().splitlines()
    return {line["stage"]: line.get("timing", line)["seconds"] for line in map(json.loads, filter(None, lines))}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("old", type=Path, help="the checkout to compare with")
    parser.add_argument("--rounds", type=int, default=2)
    parser.add_argument("--quick", action="store_true", help="a planted shop of 300 users instead of the demo")
    wanted = parser.parse_args()
    seconds: dict[str, list[float]] = {"old": [], "new": []}
    for _ in range(wanted.rounds):
        for name, checkout in (("old", wanted.old.absolute()), ("new", HERE)):
            total, stages = seconds_of(checkout, wanted.quick)
            seconds[name].append(round(total, 1))
            print(name, f"{total:.1f} s", stages, flush=True)
    ratio = median(seconds["new"]) / median(seconds["old"])
    print(f"new / old: {ratio:.2f}")
    print(json.dumps(seconds | {"ratio": round(ratio, 3)}))


if __name__ == "__main__":
    main()
