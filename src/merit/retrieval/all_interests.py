"""The most likely interests of all users: one Parquet file, or a folder of parts with a manifest, here or in a store.

    write_all_interests("runs/shop", "lists.parquet", k=10)
    write_all_interests("runs/shop", "s3://bucket/lists", k=10, engine=EngineConfig(runner="ray"))

Shard after shard, and within a shard in the model's order. The millions of rows never stand in memory.
"""

from __future__ import annotations

from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

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
class Asked:
    """It goes to every worker."""

    folder: Path
    labels: Path | None
    k: int
    regions: int | None
    threads: int


class Worker:
    """A model that answers one question, of many users."""

    def __init__(self, asked: Asked, model: Model) -> None:
        self.asked, self.model = asked, model
        model.live_labels(asked.k)
        if asked.regions is not None:
            topk.require_count(asked.regions, "regions")

    def lists(self, users: pl.DataFrame) -> pl.DataFrame:
        """The k most likely interests of each of these users, in their order."""
        return self.model.for_users(users).ranked(users["user_id"], self.asked.k, self.asked.regions)


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
    asked = Asked(Path(folder), labels, k, regions, engine.worker_threads())
    worker = Worker(asked, model)
    job = ShardJob("interests of all users", set_up, asked, tell, {"parents": model.hashes, "k": k, "regions": regions})
    users = model.stored_users()
    if not path or not single:
        return _rows(write_parts(job, users, out, engine, worker))
    with workplace(path, engine) as place:
        return _join(make_parts(job, users, place, engine, worker), path)


def set_up(asked: Asked) -> Worker:
    """Who began the job has read every byte, so nobody does again."""
    return Worker(asked, load(asked.folder, asked.labels, verify=False, threads=asked.threads, users=False))


def tell(worker: Worker, rows: pl.DataFrame) -> pl.DataFrame:
    """The work on one shard: a function of the module, so that other processes find it by its name."""
    return worker.lists(rows)


def _rows(parts: Parts) -> int:
    return sum(len(table) for table in parts.tables())


def _join(parts: Parts, out: Path) -> int:
    """All parts as one file, which is complete or not there."""
    rows, writer = 0, None
    with files.replacing(out, storage.MODE) as file, ExitStack() as closing:
        for each in parts.tables():
            table = each.to_arrow()
            writer = writer or closing.enter_context(pq.ParquetWriter(file, table.schema))
            writer.write_table(table)
            rows += len(each)
    return rows
