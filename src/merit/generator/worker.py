"""Decoding for many users, shard by shard: what mining, states and predictions share.

    job = DecodeJob(generator, corpus, labels, config, seed)
    with decoding("mined", sample, job, rows, out, engine) as (draft, parts):
        table = in_order(parts, np.arange(len(rows)))        # a row for each example, in their order

A row goes to a worker with its prompt in tokens; `sample` is called with a worker and the rows of a shard.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any, Generic, TypeVar

import numpy as np
import polars as pl
import torch
from pydantic import BaseModel

from merit.core import artifacts
from merit.core.artifacts import Artifact, Draft
from merit.core.errors import ConfigError, DamagedArtifact
from merit.core.ragged import Ragged, list_column
from merit.core.types import Floats, Ints
from merit.data.corpus import read_table
from merit.engine.job import Device, EngineConfig, ShardJob
from merit.engine.run import Parts, make_parts, workplace
from merit.generator.decoding import DecodeConfig
from merit.generator.model import DECODE_BATCH, TrainedGenerator, columns_of, load_generator
from merit.labels.build import load_vectors

Settings = TypeVar("Settings", bound=BaseModel)
Work = Callable[["GeneratorWorker[Settings]", pl.DataFrame], pl.DataFrame]


@dataclass(frozen=True)
class DecodeJob(Generic[Settings]):
    """What is decoded, and how. It goes to every worker."""

    generator: Artifact
    corpus: Artifact
    labels: Artifact
    config: Settings
    """Of the stage."""
    seed: int
    decode_batch: int = DECODE_BATCH
    """Prompts decoded at a time."""
    device: Device = "cpu"

    @property
    def parents(self) -> dict[str, Artifact]:
        """The artifacts that are read, by the names that manifests have for parents."""
        return {"generator": self.generator, "corpus": self.corpus, "labels": self.labels}

    def identity(self) -> dict[str, object]:
        """What parts are known by, as JSON: work with other threads or on another device is another job."""
        return {
            "parents": [parent.manifest.hash for parent in self.parents.values()],
            "config": self.config.model_dump(mode="json"),
            "seed": self.seed,
            "decode_batch": self.decode_batch,
            "threads": torch.get_num_threads(),
            "device": self.device,
        }


class GeneratorWorker(Generic[Settings]):
    """A generator in one process. A process that only hands out work never loads it."""

    def __init__(self, job: DecodeJob[Settings]) -> None:
        self.job = job

    @cached_property
    def generator(self) -> TrainedGenerator:
        """The generator with its weights on the job's device, loaded when it is first needed."""
        check_device(self.job.device)
        job = self.job
        return load_generator(job.generator, job.corpus, job.labels, job.decode_batch).to(job.device)

    @cached_property
    def vectors(self) -> Floats:
        """(labels, d): the text vectors of the whole space."""
        return load_vectors(self.job.labels)

    def decode(self, rows: pl.DataFrame, inputs: Any, config: DecodeConfig) -> Ragged:
        """The labels of each row. Samples are drawn by the row's number, whichever worker draws them."""
        keys = rows["row"].to_numpy().astype(np.uint64)
        return self.generator.decode(inputs, config, self.job.seed, keys=keys)


def read_rows(job: DecodeJob[Any], split: str, *columns: str) -> pl.DataFrame:
    """Rows for workers: row number, user, what the generator reads, and further columns."""
    read = dict.fromkeys(("user_id", *columns_of(job.generator, job.corpus), *columns))
    return read_table(job.corpus, split, *read).with_row_index("row")


@contextmanager
def decoding(
    kind: str,
    work: Work[Settings],
    job: DecodeJob[Settings],
    rows: pl.DataFrame,
    out: Path,
    engine: EngineConfig,
) -> Iterator[tuple[Draft, Parts]]:
    """The artifact that is written from decoded rows, and the parts that workers made of them.

    `work` is a function of a module, which other processes find by its name. The device is the engine's.
    """
    job = replace(job, device=engine.device)
    with (
        _threads(engine) as settled,
        workplace(out, settled) as place,
        artifacts.writing(out, kind, config=job.config, seed=job.seed, parents=job.parents) as draft,
    ):
        identity = job.identity()
        task = ShardJob(kind, _set_up, (job, identity["threads"]), work, identity, job.device)
        yield draft, make_parts(task, rows, place, settled, GeneratorWorker(job))


def decode_stage(write: Callable[[DecodeJob[Any], Path, EngineConfig], Artifact]) -> Callable[..., Artifact]:
    """A stage as the pipeline calls it, with everything that makes a job by its name."""
    return lambda out, engine, **inputs: write(DecodeJob(**inputs), out, engine)


def check_device(device: Device) -> None:
    """Refuse a device that is not in this machine."""
    if device == "cuda" and not torch.cuda.is_available():
        raise ConfigError(
            "engine.device = cuda, and torch finds no GPU here. Set engine.device=cpu, or install torch for the driver "
            "of this machine (docs/howto/gpu.md)."
        )


def lists(rows: pl.DataFrame, **columns: Ragged) -> pl.DataFrame:
    """Decoded lists, beside the numbers of the rows."""
    return rows.select("row").with_columns(
        **{name: list_column(column.values.astype(np.uint32), column.lengths()) for name, column in columns.items()}
    )


def in_order(parts: Parts, rows: Ints) -> pl.DataFrame:
    """All parts as one table in the order of the rows, ascending, each of which is there once."""
    table = pl.concat(parts.tables()).sort("row")
    if not np.array_equal(table["row"].to_numpy(), rows):
        raise DamagedArtifact(f"{parts.folder} does not have every row once. Remove it and run the same again.")
    return table


def _set_up(settings: tuple[DecodeJob[Settings], int]) -> GeneratorWorker[Settings]:
    job, threads = settings
    torch.set_num_threads(threads)
    worker = GeneratorWorker(job)
    _ = worker.generator  # before the first shard: what cannot be loaded is no shard's fault
    return worker


@contextmanager
def _threads(engine: EngineConfig) -> Iterator[EngineConfig]:
    """The engine with its number of threads settled, and torch in this process with as many.

    Sums of more threads are added in another order, so that the last bits of a state are others.
    """
    before = torch.get_num_threads()
    torch.set_num_threads(engine.threads or before)
    try:
        yield engine.model_copy(update={"threads": engine.threads or before})
    finally:
        torch.set_num_threads(before)
