"""A job: settings, a function that sets a worker up with them, and a function from the rows of a shard to a table.

Which rows make a shard is a property of the job, never of the workers. All rows of a user are in one shard, by a hash
of the user's id alone, and a shard is done whole and in its own order: its bytes are the same wherever it is done.
"""

from __future__ import annotations

import io
import math
import traceback
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple, Protocol, Self

import numpy as np
import polars as pl
from pydantic import Field, model_validator

from merit.core.config import Frozen
from merit.core.errors import ConfigError, DataError, EngineError, MeritError
from merit.core.processes import cores
from merit.core.seeds import USER_SALT, derive, stable_hash
from merit.core.types import Ints
from merit.engine import storage

SHARD_ROWS = 1_000  # about sixteen batches of prompts: full batches, and little is lost with a worker
MAX_SHARDS = 60_000
Device = Literal["cpu", "cuda"]


class EngineConfig(Frozen):
    """The section [engine] of a run; commands about all users have the same settings as options.

    Results depend on `shards`, `threads` and `device` only, and by no more than the last bits of a state.
    """

    runner: Literal["inline", "local", "ray"] = "inline"
    """inline: in this process. local: in several processes of this machine. ray: on a cluster."""
    workers: int | None = Field(None, ge=1)
    """Each has the model in memory. By default, as many as there are cores for."""
    threads: int | None = Field(None, ge=1)
    """Of every worker. The order of additions depends on it, so the number is the job's and not the machine's: by
    default, what torch takes in the process that began the job."""
    device: Device = "cpu"
    """Where generators run; cuda gives every worker a GPU. All other work is done on cores."""
    shards: int | None = Field(None, ge=1, le=MAX_SHARDS)
    """A property of the job, not of the workers. By default one for every 1,000 rows."""
    address: str | None = None
    """Of a Ray cluster: HOST:PORT. By default, the one that this machine belongs to."""
    attempts: int = Field(3, ge=1)
    """How often a shard is tried before it is set aside."""
    shard_minutes: float | None = Field(None, gt=0)
    """A worker that needs longer for a shard counts as lost: one that hangs would hold up the job for ever. By default
    there is no limit, since a slow machine is not a hanging one."""
    parts: str | None = None
    """Where finished shards are kept until the job is done: a folder that all workers see, or s3://bucket/folder. By
    default, a hidden folder beside the output."""

    @model_validator(mode="after")
    def _fits(self) -> Self:
        if self.workers and self.runner == "inline":
            raise ValueError("workers need somewhere to be: set runner to local or ray")
        if self.address and self.runner != "ray":
            raise ValueError("an address is that of a Ray cluster: set runner to ray")
        if self.shard_minutes and self.runner == "inline":
            raise ValueError("work in this process cannot be ended: set runner to local or ray")
        return self

    def worker_threads(self) -> int:
        """The threads of a worker, where the bytes do not depend on them."""
        return self.threads or max(1, cores() // (self.workers or cores()))

    def worker_count(self) -> int:
        """The number of workers that share the cores of this machine."""
        threads, available = self.worker_threads(), cores()
        if self.workers and threads > 1 and self.workers * threads > available:
            raise ConfigError(
                f"{self.workers} workers of {threads} threads each would share {available} cores and mostly wait for "
                f"each other. Set engine.threads={max(1, available // self.workers)} (the last bits of states depend "
                f"on it), or engine.workers={max(1, available // threads)}."
            )
        return self.workers or max(1, available // threads)


@dataclass(frozen=True)
class ShardJob:
    """All that a worker needs before its first shard. Other processes find its functions by their names."""

    name: str
    """For messages."""
    set_up: Callable[[Any], Any]
    """Settings → the state of a worker."""
    settings: Any
    """Plain and frozen: paths, numbers, settings of stages."""
    work: Callable[[Any, pl.DataFrame], pl.DataFrame]
    """State and rows → a table."""
    essence: Any
    """All that decides the bytes, as JSON: parts of another essence are never taken for this job's."""
    device: Device = "cpu"
    """cuda: a worker needs a GPU, and sees no other."""


class ShardTask(NamedTuple):
    """The rows of a shard, and the address of the part that it becomes."""

    rows: pl.DataFrame
    address: str


class ShardFailure(NamedTuple):
    """A shard that failed, while its worker lives. A lasting failure is that of the rows: no attempt would succeed."""

    error: str
    lasting: bool


Outcome = ShardFailure | MeritError | None  # None: done. A MeritError ends the job: a full disk, a missing package


class WorkerPool(Protocol):
    """Workers somewhere, by number. A future that raises means that its worker is lost."""

    workers: int

    def start(self) -> tuple[int, Future[Outcome]]:
        """Begin a worker: its number, and when it is set up."""

    def submit(self, worker: int, task: ShardTask) -> Future[Outcome]:
        """Let a worker that has nothing to do work on a shard."""

    def check(self) -> None:
        """Raise where waiting is of no use."""

    def end(self, worker: int, error: BaseException | None = None) -> str:
        """Kill and forget a worker that hangs or is lost; a sentence about it."""

    def close(self) -> None:
        """End all workers."""


class ShardWorker:
    """Set up once, then shard after shard. Errors are returned, so that all runners treat them alike."""

    def __init__(self, job: ShardJob, state: Any = None) -> None:
        self._job, self._state = job, state

    def set_up(self) -> Outcome:
        """Set up the state, unless it was handed in."""
        try:
            if self._state is None:
                self._state = self._job.set_up(self._job.settings)
        except MeritError as error:
            return error
        except Exception:
            return EngineError(f"A worker could not be set up: {traceback.format_exc()}")
        return None

    def work(self, task: ShardTask) -> Outcome:
        """Do a shard and commit its table."""
        try:
            buffer = io.BytesIO()
            table = self._job.work(self._state, task.rows)
            table.rechunk().write_parquet(buffer)  # row groups follow chunks, and chunks follow cores
            storage.commit(task.address, buffer.getvalue())
        except DataError as error:
            return ShardFailure(str(error), lasting=True)
        except MeritError as error:
            return error
        except Exception:
            return ShardFailure(traceback.format_exc(limit=-4), lasting=False)
        return None


def shard_count(rows: int) -> int:
    """The number of shards for so many rows."""
    return min(MAX_SHARDS, max(1, math.ceil(rows / SHARD_ROWS)))


def shard_plan(user_ids: Sequence[str], shards: int) -> dict[int, Ints]:
    """The rows of each shard that is not empty, both ascending.

    The hash has a name of its own: users of one shard of `prepare` still fall into all shards here.
    """
    names, user_of_row = np.unique(np.array(user_ids, dtype=object), return_inverse=True)
    shard = (derive(stable_hash(names.tolist(), USER_SALT), 0, "engine") % np.uint64(shards)).astype(np.int64)
    return rows_by_shard(shard[user_of_row.ravel()])


def rows_by_shard(shard: Ints) -> dict[int, Ints]:
    """The same plan, from the shard of each row."""
    order = np.argsort(shard, kind="stable")
    numbers, first = np.unique(shard[order], return_index=True)
    return dict(zip(numbers.tolist(), np.split(order, first[1:]), strict=True))
