"""A refresh that is killed at random moments: whatever is left must be the old model or the new one, and answer.

python -m benchmarks.kills            # 50 kills
python -m benchmarks.kills --quick    # 8
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path
from tempfile import TemporaryDirectory

import polars as pl

import merit
from benchmarks import harness
from merit.core import artifacts
from merit.core.seeds import stream
from merit.data import planted

CODE = """import sys
from merit.refresh.refresh import refresh
print(flush=True)
refresh(sys.argv[1], source={"interactions": sys.argv[2]})"""
SETTINGS = {"labels": {"encoder": "hashed"}, "evaluation": {"resamples": 100}, "ranking": {"resamples": 100}}


def killed(run: Path, table: Path, seconds: float) -> float:
    """Start a refresh, kill it after so many seconds of work; how long it ran, if it came to its end before."""
    words = [sys.executable, "-c", CODE, str(run), str(table)]
    with subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, env=os.environ) as process:
        assert process.stdout
        process.stdout.readline()
        begin = time.perf_counter()
        try:
            process.wait(seconds)
        except subprocess.TimeoutExpired:
            process.send_signal(signal.SIGKILL)
        return time.perf_counter() - begin


def main() -> None:
    given = harness.parser(__doc__).parse_args()
    rng, kills = stream(given.seed, "kills"), 8 if given.quick else 50
    shop = planted.shop(planted.PlantedConfig(users=400), given.seed)
    log, at = shop.interactions, pl.col("timestamp")
    with TemporaryDirectory() as name:
        run, table, outcome = Path(name) / "run", Path(name) / "log.parquet", Counter[str]()
        days = 7 * kills  # a week more at a time, so that each refresh has something to do
        known = log.filter(at <= log["timestamp"].max() - pl.duration(days=min(days, 180)))
        merit.fit(known, shop.items, "quick", run, seed=given.seed, cache=f"{name}/cache", **SETTINGS)
        whole = 30.0
        for kill in range(kills):
            end = log["timestamp"].max() - pl.duration(days=min(days, 180) * (kills - 1 - kill) / kills)
            log.filter(at <= end).write_parquet(table)
            before = artifacts.load(run / "model").manifest.hash
            if kill % 10 == 0:
                whole = killed(run, table, 600)  # one that comes to its end tells how long it takes
                outcome["finished"] += 1
                continue
            killed(run, table, float(rng.uniform(0, 1.1 * whole)))
            after = artifacts.load(run / "model")  # every byte is checked
            model = merit.load(run)
            assert len(model.interests(model.users["user_id"][:5], 3)) == 15
            outcome["old" if after.manifest.hash == before else "new"] += 1
        figures = {"kills": kills, **outcome, "mixed": kills - outcome.total()}
        harness.finish("kills", figures, given.seed)


if __name__ == "__main__":
    harness.run(main)
