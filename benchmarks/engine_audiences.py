"""A million users × a thousand interests to ranked audiences: a trained model whose users are multiplied.

python -m benchmarks.engine --audiences [--users 1000000] [--interests 1000]
"""

from __future__ import annotations

import os
import shutil
import threading
import time
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import polars as pl

from benchmarks import harness
from merit.core import artifacts, config, timings
from merit.core.artifacts import Artifact
from merit.core.pipeline import run
from merit.core.seeds import stream
from merit.core.settings import RunConfig
from merit.data import planted
from merit.engine.job import EngineConfig
from merit.retrieval import store
from merit.retrieval.bulk import write_all_interests, write_audiences
from merit.retrieval.exact import Exact, spans
from merit.retrieval.model import Model
from merit.retrieval.opening import load

BEST = 1_000  # users of each audience
LIST = 10  # interests of each user
REAL = 300  # users of the trained model
NOISE = 0.1  # of the spread of a user vector
WIDE = {"users": REAL, "items": 2_000, "regions": 24, "labels_per_region": 8}


def trained(folder: Path, seed: int) -> Artifact:
    """A model of a shop with more than a thousand labels: what a product is, and whose."""
    planted.write(planted.shop(planted.PlantedConfig(**WIDE), seed), folder)
    items = pl.read_parquet(folder / "items.parquet")
    branded = pl.concat_list("tags", pl.col("title").str.split(",").list.first())
    items.with_columns(tags=branded).write_parquet(folder / "items.parquet")
    tables = {name: str(folder / f"{name}.parquet") for name in ("interactions", "items")}
    values: dict[str, Any] = {"seed": seed, "out": str(folder / "run"), "cache": str(folder / "cache")}
    values |= {"source": {"kind": "tables", **tables}, "labels": {"encoder": "hashed"}}
    values |= {
        "predict": {"exposure": False, "union": False, "likelihood": False},
        "item_generator": {"train": {"steps": 20}},
    }
    return run(config.build(RunConfig, values))["model"]


def multiplied(model: Artifact, out: Path, users: int, seed: int) -> Artifact:
    """The same model with so many users: each is one of its own, a little moved."""
    rng = stream(seed, "benchmarks.engine")
    layer = Exact.read(model.file("mlp.safetensors")).users
    vectors = store.read(model.file("users"), layer).vectors.take(slice(None))
    like, spread = rng.integers(len(vectors), size=users), NOISE * vectors.std()
    people = pl.read_parquet(model.file("users.parquet"))
    with artifacts.writing(out, "model") as draft:
        shutil.copytree(model.path, draft.path, ignore=shutil.ignore_patterns("users*", "log"), dirs_exist_ok=True)
        (draft.path / artifacts.MANIFEST).unlink()
        names = pl.Series("user_id", [f"u{number:09}" for number in range(users)])
        people[like].with_columns(names).write_parquet(draft.path / "users.parquet")
        (draft.path / "users").mkdir()
        blocks = (
            vectors[like[span.start : span.stop]]
            + spread * rng.standard_normal((len(span), vectors.shape[1]), dtype=np.float32)
            for span in spans(users, 50_000)
        )
        store.write(draft.path / "users", users, blocks, layer)
        draft.summary |= model.manifest.summary | {"users": users}
    return artifacts.load(out, "model")


def live(model: Model, most: int) -> list[str]:
    """Interests that may be asked for."""
    return model.labels.table["text"].filter(pl.Series(model.labels.live_mask())).to_list()[:most]


class Took(NamedTuple):
    seconds: float
    memory: float  # GiB of the largest worker


def by_workers(model: Path, out: Path, interests: list[str], workers: int, shards: int | None = None) -> Took:
    """All audiences by so many processes of one thread."""
    engine = EngineConfig(runner="local", workers=workers, threads=1, shards=shards)
    with Watch() as watch:
        _, seconds = harness.timed(lambda: write_audiences(model, out, interests, BEST, engine=engine))
    return Took(seconds, watch.most)


class Counted(NamedTuple):
    rows: int
    different: int


def counted(file: Path, of: str) -> Counted:
    """How many rows, and how many pairs of whom they are of and what they name."""
    named = "user_id" if of == "interest" else "interest"
    found = pl.scan_parquet(file).group_by(of).agg(pl.len().alias("rows"), pl.col(named).n_unique().alias("different"))
    rows, different = found.select(pl.col("rows", "different").sum()).collect(engine="streaming").row(0)
    return Counted(rows, different)


class Watch:
    """The most memory that any child of this process had, in GiB, looked at while it lives.

    RssAnon is what is its own: pages of mapped files, which the system takes back when it needs them, do not count.
    """

    def __init__(self, what: str = "RssAnon") -> None:
        self.most, self._what, self._over = 0.0, what, threading.Event()

    def __enter__(self) -> Watch:
        self._thread = threading.Thread(target=self._look, daemon=True)
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        self._thread.join()

    def _look(self) -> None:
        while not self._over.wait(0.2):
            self.most = max([self.most, *(_memory(pid, self._what) for pid in children(os.getpid()))])


def children(pid: int) -> list[int]:
    found = []
    for task in Path(f"/proc/{pid}/task").glob("*/children"):
        try:
            found += [int(each) for each in task.read_text().split()]
        except OSError:
            continue
    return found


def _memory(pid: int, what: str) -> float:
    try:
        told = dict(line.split(":", 1) for line in Path(f"/proc/{pid}/status").read_text().splitlines() if ":" in line)
        return int(told[what].split()[0]) / 2**20
    except (OSError, KeyError, ValueError):
        return 0.0


def measured(folder: Path, users: int, interests: int, seed: int) -> tuple[dict[str, Any], dict[str, str]]:
    model = multiplied(trained(folder, seed), folder / "model", users, seed)
    opened = load(model.path)
    texts = live(opened, interests)
    begin = time.perf_counter()
    two = by_workers(model.path, folder / "two.parquet", texts, 2)
    few = users // 8
    some = multiplied(model, folder / "some", few, seed)
    engine = EngineConfig(runner="local", workers=2, threads=1)
    lists = folder / "lists.parquet"
    _, list_seconds = harness.timed(lambda: write_all_interests(some.path, str(lists), LIST, engine=engine))
    single, double = (by_workers(some.path, folder / f"{count}.parquet", texts, count, 16) for count in (1, 2))
    rows = pl.read_parquet(folder / "two.parquet")
    ranked, listed = counted(folder / "two.parquet", "interest"), counted(lists, "user_id")
    one = opened.audience(texts[3], BEST)
    told = rows.filter(pl.col("interest") == texts[3]).select("user_id", "rank", "probability")
    figures = {
        "users": users,
        "interests": len(texts),
        "lost_rows": len(texts) * BEST + few * LIST - ranked.different - listed.different,
        "duplicate_rows": ranked.rows - ranked.different + listed.rows - listed.different,
        "same_hash": len({(folder / f"{count}.parquet").read_bytes() for count in (1, 2)}) == 1,
        "same_as_one_at_a_time": one.equals(told),
        "seconds_2_workers": round(two.seconds, 1),
        "pairs_per_second_per_core": round(users * len(texts) / two.seconds / 2),
        "users_per_second_per_core": round(users / two.seconds / 2),
        "peak_memory_of_a_worker_gib": round(two.memory, 2),
        "scaling_1_to_2_workers": round(single.seconds / double.seconds, 2),
        "lists_of_everyone_users_per_second_per_core": round(few / list_seconds / 2),
        "peak_memory_of_this_process_gib": round(timings.peak() / 2**30, 2),
        "seconds_in_all": round(time.perf_counter() - begin),
    }
    return figures, {
        "lost_rows": f"of {len(texts):,} audiences of {BEST:,}, and of {LIST} interests of each of {few:,} users",
        "same_hash": "1 worker, 2 workers: the file with all audiences",
        "users_per_second_per_core": f"the best {BEST:,} of every interest, written and joined",
        "peak_memory_of_a_worker_gib": "its own pages; the vectors of users are a mapped file",
        "scaling_1_to_2_workers": f"{few:,} users, from the start of the command to the file",
        "lists_of_everyone_users_per_second_per_core": f"{LIST} interests of all, for {few:,} users",
    }
