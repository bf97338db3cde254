"""The most likely interests of all users: one Parquet file, or a folder of parts with a manifest, here or in a store.

    write_all_interests("runs/shop", "lists.parquet", k=10)
    write_all_interests("runs/shop", "s3://bucket/lists", k=10, engine=EngineConfig(runner="ray"))

Shard after shard, and within a shard in the model's order. The millions of rows are never in memory at once.
"""

from __future__ import annotations

from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

import polars as pl
import pyarrow.parquet as pq

from merit.core import files
from merit.core.errors import DataError
from merit.engine import storage
from merit.engine.job import EngineConfig, ShardJob
from merit.engine.run import INLINE, Parts, make_parts, workplace, write_parts
from merit.retrieval import topk
from merit.retrieval.model import Model, load


@dataclass(frozen=True)
class InterestsJob:
    """What every worker gets."""

    folder: Path
    labels: Path | None
    k: int
    regions: int | None
    threads: int


class InterestsWorker(NamedTuple):
    """The job, and the model of this process."""

    job: InterestsJob
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
    job = InterestsJob(Path(folder), labels, k, regions, engine.worker_threads())
    worker = InterestsWorker(job, model)
    essence = {"parents": model.hashes, "k": k, "regions": regions}
    shard_job = ShardJob("interests of all users", set_up, job, rank_interests, essence)
    users = model.stored_users()
    if not path or not single:
        return sum(len(table) for table in write_parts(shard_job, users, out, engine, worker).tables())
    with workplace(path, engine) as place:
        return _join(make_parts(shard_job, users, place, engine, worker), path)


def set_up(job: InterestsJob) -> InterestsWorker:
    """The worker of another process. Whoever began the job has verified the model."""
    return InterestsWorker(job, load(job.folder, job.labels, verify=False, threads=job.threads, users=False))


def rank_interests(worker: InterestsWorker, rows: pl.DataFrame) -> pl.DataFrame:
    """The k most likely interests of each user of a shard, in their order."""
    return worker.model.for_users(rows).ranked(rows["user_id"], worker.job.k, worker.job.regions)


def _join(parts: Parts, out: Path) -> int:
    """Write all parts into one file, which is complete or not there; the number of rows."""
    rows, writer = 0, None
    with files.replacing(out, storage.MODE) as file, ExitStack() as closing:
        for part in parts.tables():
            table = part.to_arrow()
            writer = writer or closing.enter_context(pq.ParquetWriter(file, table.schema))
            writer.write_table(table)
            rows += len(part)
    return rows
