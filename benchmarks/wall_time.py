"""How long a short demo takes in two checkouts, alternated, as a ratio.

python -m benchmarks.wall_time OLD [--rounds 2]   # OLD: the other checkout; last line: one JSON object
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

from benchmarks.same import DEMO

HERE = Path(__file__).parents[1]


def seconds_of(checkout: Path) -> tuple[float, dict[str, float]]:
    """The wall time of a run from nothing to a model, and that of each stage."""
    with tempfile.TemporaryDirectory() as name:
        place = Path(name)
        (place / "run.toml").write_text(DEMO)
        paths = os.environ | {"PYTHONPATH": str(checkout / "src")}
        begin = time.perf_counter()
        command = [sys.executable, "-m", "merit.cli", "run", "run.toml"]
        subprocess.run(command, cwd=place, env=paths, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, check=True)
        return time.perf_counter() - begin, _stages(place / "run")


def _stages(run: Path) -> dict[str, float]:
    lines = (run / "timings.jsonl").read_text().splitlines()
    return {line["stage"]: line.get("timing", line)["seconds"] for line in map(json.loads, filter(None, lines))}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("old", type=Path, help="the checkout to compare with")
    parser.add_argument("--rounds", type=int, default=2)
    wanted = parser.parse_args()
    seconds: dict[str, list[float]] = {"old": [], "new": []}
    for _ in range(wanted.rounds):
        for name, checkout in (("old", wanted.old.absolute()), ("new", HERE)):
            total, stages = seconds_of(checkout)
            seconds[name].append(round(total, 1))
            print(name, f"{total:.1f} s", stages, flush=True)
    ratio = median(seconds["new"]) / median(seconds["old"])
    print(f"new / old: {ratio:.2f}")
    print(json.dumps(seconds | {"ratio": round(ratio, 3)}))


if __name__ == "__main__":
    main()
