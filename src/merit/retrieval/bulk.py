"""Interests of all users, and users of many interests, as files: shard after shard, by whichever runner.

    write_all_interests("runs/shop", "lists.parquet", k=10)                          # one file, or a folder of parts
    write_all_interests("runs/shop", "s3://bucket/lists", k=10, engine=EngineConfig(runner="ray"))
    write_audiences("runs/shop", "audiences.parquet", n=1_000)                       # of all live interests
    write_audiences("runs/shop", "spring.parquet", ["trail running"])

A shard is some users. Their interests are written in the model's order, and the millions of rows are never in memory at
once. For audiences they are ranked among themselves for every interest; the best n of all are among the best n of each
shard, so joining the shards gives what `Model.audience` gives, to the last bit.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

import numpy as np
import polars as pl
import pyarrow.parquet as pq

from merit.core import files
from merit.core.errors import DataError
from merit.core.types import Ints
from merit.engine import storage
from merit.engine.job import EngineConfig, ShardJob
from merit.engine.run import INLINE, Parts, make_parts, workplace, write_parts
from merit.privacy import audit
from merit.privacy.floor import require_enough_named
from merit.retrieval import topk
from merit.retrieval.model import Model
from merit.retrieval.opening import load

USERS = 50_000  # of a shard of audiences: its scores for a few interests are 4 bytes each


@dataclass(frozen=True)
class BulkJob:
    """What every worker gets."""

    folder: Path
    labels: Path | None
    threads: int
    best: int
    """Rows kept: interests of each user, or users of each interest."""
    regions: int | None = None
    interests: tuple[int, ...] = ()
    """Whose users are ranked: numbers in the label space."""


class BulkWorker(NamedTuple):
    """The job, and the model of this process."""

    job: BulkJob
    model: Model


def write_all_interests(
    folder: Path | str,
    out: str,
    k: int = 10,
    regions: int | None = None,
    labels: Path | None = None,
    engine: EngineConfig = INLINE,
) -> int:
    """The number of rows. A name with an ending is a file; any other, and an address, a folder of parts."""
    path = storage.local(out)
    single = path is not None and bool(path.suffix)
    if path and single and path.is_dir():
        raise DataError(f"{out} is a folder. Name a file in it, such as {path / 'interests.parquet'}.")
    model = load(folder, labels)
    model.live_labels(k)
    if regions is not None:
        topk.require_count(regions, "regions")
    job = BulkJob(Path(folder), labels, engine.worker_threads(), k, regions)
    essence = {"parents": model.hashes, "k": k, "regions": regions}
    shard_job = ShardJob("interests of all users", set_up, job, rank_interests, essence)
    users, worker = model.stored_users(), BulkWorker(job, model)
    log_named(model, "interests of all users", len(users))
    if not path or not single:
        return sum(len(table) for table in write_parts(shard_job, users, out, engine, worker).tables())
    with workplace(path, engine) as place:
        return _write_joined(make_parts(shard_job, users, place, engine, worker), path)


def write_audiences(
    folder: Path | str,
    out: Path | str,
    interests: Sequence[str] | None = None,
    n: int = 1_000,
    labels: Path | None = None,
    engine: EngineConfig = INLINE,
) -> int:
    """The number of rows: interest, rank, user_id, probability; interests in the order given, or of the label space."""
    model = load(folder, labels)
    numbers = _numbers(model, interests)
    users = model.stored_users()
    topk.require_count(n, "users")
    require_enough_named(n)
    if n > len(users):
        raise DataError(f"There are {len(users):,} users; ask for no more than that (n = {n:,}).")
    job = BulkJob(Path(folder), labels, engine.worker_threads(), n, interests=tuple(numbers.tolist()))
    essence = {"parents": model.hashes, "n": n, "interests": job.interests}
    sharded = engine.model_copy(update={"shards": engine.shards or max(1, round(len(users) / USERS))})
    shard_job = ShardJob("audiences", set_up, job, rank_users, essence)
    log_named(model, f"audiences of {len(numbers)} interests", n)
    with workplace(Path(out), sharded) as place:
        best = _best(make_parts(shard_job, users, place, sharded, BulkWorker(job, model)), n)
        with files.replacing(Path(out), storage.MODE) as file:
            _table(model, numbers, best).write_parquet(file)
    return len(best)


def set_up(job: BulkJob) -> BulkWorker:
    """The worker of another process. Whoever began the job has verified the model."""
    return BulkWorker(job, load(job.folder, job.labels, verify=False, threads=job.threads, users=False))


def rank_interests(worker: BulkWorker, rows: pl.DataFrame) -> pl.DataFrame:
    """The most likely interests of each user of a shard, in their order."""
    return worker.model.for_users(rows).interests(rows["user_id"], worker.job.best, regions=worker.job.regions)


def rank_users(worker: BulkWorker, rows: pl.DataFrame) -> pl.DataFrame:
    """The best users of a shard for every interest, as rows of the model, with their scores."""
    labels, stored = np.array(worker.job.interests, dtype=np.int64), rows["row"].to_numpy()
    ranked = list(worker.model.for_users(rows).audiences(labels, rows["user_id"], worker.job.best))
    sizes = [len(audience.rows) for audience in ranked]
    return pl.DataFrame(
        {
            "at": np.repeat(np.arange(len(ranked), dtype=np.uint32), sizes),
            "row": stored[np.concatenate([audience.rows for audience in ranked])].astype(np.uint32),
            "score": np.concatenate([audience.scores for audience in ranked]),
        }
    )


def log_named(model: Model, what: str, users: int) -> None:
    """Before anything is written, so that nothing goes unlogged: beside the model, in its run."""
    audit.append(model.artifact.path.parent, "users named", what=what, users=users, model=model.hashes[0])


def _numbers(model: Model, interests: Sequence[str] | None) -> Ints:
    """The numbers of labels. Blocked ones are refused, and phrases, which `Model.audience` can score."""
    if interests is None:
        return np.flatnonzero(model.labels.live_mask())
    queries = [model.interest(text) for text in dict.fromkeys(interests)]
    if phrases := [query.text for query in queries if query.label < 0]:
        raise DataError(f"'{phrases[0]}' is no label of this model. Ask for it alone, with `merit model audience`.")
    if not queries:
        raise DataError("The list of interests is empty.")
    return np.array([query.label for query in queries], dtype=np.int64)


def _best(parts: Parts, n: int) -> pl.DataFrame:
    """The best of all shards; two lists of n are in memory for each interest, however many shards there are."""
    best: pl.DataFrame | None = None
    for part in parts.tables():
        both = part if best is None else pl.concat([best, part])
        best = both.sort("at", -pl.col("score"), "row").group_by("at", maintain_order=True).head(n)
    assert best is not None
    return best


def _table(model: Model, numbers: Ints, best: pl.DataFrame) -> pl.DataFrame:
    texts = model.labels.table["text"].gather(numbers[best["at"].to_numpy()])
    ranks = best.select(pl.int_range(1, pl.len() + 1).over("at")).to_series()
    users = model.probabilities(best["row"].to_numpy(), best["score"].to_numpy())
    return users.select(texts.alias("interest"), ranks.alias("rank"), "user_id", "probability")


def _write_joined(parts: Parts, out: Path) -> int:
    """Write all parts into one file, which is complete or not there; the number of rows."""
    rows, writer = 0, None
    with files.replacing(out, storage.MODE) as file, ExitStack() as closing:
        for part in parts.tables():
            table = part.to_arrow()
            writer = writer or closing.enter_context(pq.ParquetWriter(file, table.schema))
            writer.write_table(table)
            rows += len(part)
    return rows
