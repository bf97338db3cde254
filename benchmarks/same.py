"""Is what a run makes the same as before? Two planted shops and a short demo, by the hashes of their manifests.

    python -m benchmarks.same OUT                 # the hash of every artifact; last line: one JSON object
    python -m benchmarks.same OUT --against OLD   # and whether each equals what another checkout made in OLD

Run it in two checkouts. Where stored names changed, `answers` still compares what a run says: lists, audiences, scores.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import time
from hashlib import sha256
from pathlib import Path

import polars as pl

SMALL = """
seed = {seed}
out = "run"
cache = "cache"
[source]
kind = "tables"
interactions = "shop/interactions.parquet"
items = "shop/items.parquet"
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
[ranking]
resamples = 100
"""
DEMO = """
seed = 7
out = "run"
cache = "cache"
[source]
kind = "complete-journey"
[stage_1]
steps = 20
[stage_2]
steps = 20
"""
ITEMS = """
[item_generator.train]
steps = 20
"""
OLD_NAMES = {"ranking": "rankings"}  # of stages, so that answers of an older checkout can be compared
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


def merit(place: Path, *words: object) -> str:
    """A command in a folder: with relative paths, so that no setting depends on where that is."""
    command = [sys.executable, "-m", "merit.cli", *map(str, words)]
    hidden = os.environ | {"GIT_DIR": os.devnull}  # results name the commit, which is another one in every checkout
    return subprocess.run(command, cwd=place, env=hidden, stdout=subprocess.PIPE, text=True, check=True).stdout


def hashes(run: Path) -> dict[str, str]:
    found = sorted(run.glob("*/manifest.json"))
    return {file.parent.name: json.loads(file.read_text())["hash"][:16] for file in found}


def content(file: Path) -> str:
    """The hash of a table's rows, whatever its columns are called."""
    return _digest(json.dumps(pl.read_parquet(file).rows(), default=str))


def _digest(text: str) -> str:
    return sha256(text.encode()).hexdigest()[:16]


def answers(run: Path) -> dict[str, str]:
    """What a run says, in ways that do not depend on stored names."""
    said = {
        f"{OLD_NAMES.get(folder, folder)}/{file.name}": content(file)
        for folder in ("predictions-1", "predictions-2", "ranking")
        for file in sorted((run / folder).glob("*.parquet"))
    }
    labels = pl.read_parquet(run / "labels/labels.parquet").filter(pl.col("status") == "live")
    label = labels.sort("count", "id", descending=[True, False])["text"][0]
    said["audience"] = sha256(
        merit(run.parent, "model", "audience", "run", label, "-n", 100, "--jsonl").encode()
    ).hexdigest()[:16]
    users = pl.read_parquet(run / "model/users.parquet")["user_id"].sort().head(50).to_list()
    said["interests"] = sha256(merit(run.parent, "model", "interests", "run", *users, "--jsonl").encode()).hexdigest()[
        :16
    ]
    (run.parent / "request.toml").write_text(REQUEST.format(label=label))
    merit(run.parent, "audience", "build", "run", "--request", "request.toml", "--out", "audience")
    said["members"] = content(run.parent / "audience/members.parquet")
    return said


def planted(place: Path, seed: int) -> Path:
    place.mkdir(parents=True, exist_ok=True)
    merit(place, "data", "planted", "--out", "shop", "--set", "users=300", "--seed", seed)
    return _run(place, SMALL.format(seed=seed))


def demo(place: Path) -> Path:
    place.mkdir(parents=True, exist_ok=True)
    return _run(place, DEMO)


def knows_items(checkout: Path) -> bool:
    """Whether a checkout has the generator that reads items, and so its settings."""
    return (checkout / "src/merit/generator/items").is_dir()


def _run(place: Path, text: str) -> Path:
    (place / "run.toml").write_text(text + (ITEMS if knows_items(Path(__file__).parents[1]) else ""))
    merit(place, "run", "run.toml")
    return place / "run"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("out", type=Path)
    parser.add_argument("--against", type=Path, help="OUT of another checkout")
    parser.add_argument("--quick", action="store_true", help="one planted shop only")
    parser.add_argument("--no-demo", action="store_true", help="two planted shops only")
    wanted = parser.parse_args()
    out = wanted.out.absolute()
    worlds = {"planted-1": lambda: planted(out / "planted-1", 1)}
    if not wanted.quick:
        worlds["planted-2"] = lambda: planted(out / "planted-2", 2)
    if not (wanted.quick or wanted.no_demo):
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
