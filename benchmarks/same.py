"""Is what a run makes the same as before? Two planted shops and a short demo, by the hashes of their manifests.

    python -m benchmarks.same OUT                 # the hash of every artifact; last line: one JSON object
    python -m benchmarks.same OUT --against OLD   # and whether each equals what another checkout made in OLD

Run it in two checkouts. Where stored names changed, `answers` still compares what a run says: lists, audiences, scores.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import time
from hashlib import sha256
from pathlib import Path

import polars as pl

SMALL = """
seed = {seed}
out = "{out}"
cache = "{cache}"
[source]
kind = "tables"
interactions = "{shop}/interactions.parquet"
items = "{shop}/items.parquet"
[labels]
encoder = "hashed"
[backbone]
width = 16
layers = 1
heads = 2
vocabulary = 1400
[stage_1]
steps = 6
[stage_2]
steps = 6
[states]
labels = 3
[propensity.model]
labels = 2
width = 16
layers = 1
heads = 2
hidden = 24
second = 8
[propensity.fit]
epochs = 3
[evaluation]
resamples = 100
[rankings]
resamples = 100
"""
DEMO = """
seed = 7
out = "{out}"
cache = "{cache}"
[source]
kind = "complete-journey"
[stage_1]
steps = 20
[stage_2]
steps = 20
"""
REQUEST = """
interests = ["{label}"]
name = "same"
[size]
by = "count"
users = 120
[holdout]
share = 0.2
salt = "the same salt"
"""


def merit(*words: object) -> str:
    done = subprocess.run(
        [sys.executable, "-m", "merit.cli", *map(str, words)], stdout=subprocess.PIPE, text=True, check=True
    )
    return done.stdout


def hashes(run: Path) -> dict[str, str]:
    found = sorted(run.glob("*/manifest.json"))
    return {file.parent.name: json.loads(file.read_text())["hash"][:16] for file in found}


def content(file: Path) -> str:
    """The hash of a table's rows, whatever its columns are called."""
    table = pl.read_parquet(file)
    return sha256(json.dumps(table.rows(), default=str).encode()).hexdigest()[:16]


def answers(run: Path) -> dict[str, str]:
    """What a run says, in ways that do not depend on stored names."""
    said = {
        f"{folder}/{file.name}": content(file)
        for folder in ("predictions-1", "predictions-2", "rankings")
        for file in sorted((run / folder).glob("*.parquet"))
    }
    labels = pl.read_parquet(run / "labels/labels.parquet").filter(pl.col("status") == "live")
    label = labels.sort("count", "id", descending=[True, False])["text"][0]
    said["audience"] = sha256(merit("model", "audience", run, label, "-n", 100, "--jsonl").encode()).hexdigest()[:16]
    users = pl.read_parquet(run / "model/users.parquet")["user_id"].sort().head(50).to_list()
    said["interests"] = sha256(merit("model", "interests", run, *users, "--jsonl").encode()).hexdigest()[:16]
    request = run.parent / "request.toml"
    request.write_text(REQUEST.format(label=label))
    out = run.parent / "audience"
    merit("audience", "build", run, "--request", request, "--out", out)
    said["members"] = content(out / "members.parquet")
    return said


def planted(place: Path, seed: int) -> Path:
    merit("data", "planted", "--out", place / "shop", "--set", "users=300", "--seed", seed)
    return _run(place, SMALL.format(seed=seed, out=place / "run", cache=place / "cache", shop=place / "shop"))


def demo(place: Path) -> Path:
    return _run(place, DEMO.format(out=place / "run", cache=place / "cache"))


def _run(place: Path, text: str) -> Path:
    place.mkdir(parents=True, exist_ok=True)
    (place / "run.toml").write_text(text)
    merit("run", place / "run.toml")
    return place / "run"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("out", type=Path)
    parser.add_argument("--against", type=Path, help="OUT of another checkout")
    parser.add_argument("--quick", action="store_true", help="one planted shop, no demo")
    wanted = parser.parse_args()
    out = wanted.out.absolute()
    worlds = {"planted-1": lambda: planted(out / "planted-1", 1)}
    if not wanted.quick:
        worlds["planted-2"] = lambda: planted(out / "planted-2", 2)
        worlds["demo"] = lambda: demo(out / "demo")
    figures: dict[str, object] = {}
    for name, make in worlds.items():
        begin = time.perf_counter()
        run = make()
        seconds = round(time.perf_counter() - begin, 1)
        figures[name] = {"seconds": seconds, "hashes": hashes(run), "answers": answers(run)}
        print(name, f"{seconds} s")
        old = json.loads((wanted.against / "same.json").read_text())[name] if wanted.against else None
        for what in ("hashes", "answers"):
            for key, value in figures[name][what].items():  # type: ignore[index]
                mark = "" if old is None else " same" if old[what].get(key) == value else f" WAS {old[what].get(key)}"
                print(f"  {what} {key:40} {value}{mark}")
    (out / "same.json").write_text(json.dumps(figures, indent=1))
    print(json.dumps(figures))


if __name__ == "__main__":
    main()
