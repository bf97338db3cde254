"""What a runner is asked to do, and what it answers.

A job is three things that another process can be handed: plain settings, a function that sets a worker up with them
once, and a function that turns the rows of one shard into a table. Whoever did a shard commits its table.
"""

from __future__ import annotations

import io
import math
import os
import traceback
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple, Protocol, Self

import numpy as np
import polars as pl
from pydantic import Field, model_validator

from merit.core.config import Frozen
from merit.core.errors import ConfigError, DataError, EngineError, MeritError
from merit.core.seeds import USER_SALT, derive, stable_hash
from merit.core.types import Ints
from merit.engine.commit import commit

SHARD_ROWS = 1_000  # some sixteen batches of prompts: full ones, yet little is lost when a worker is
MAX_SHARDS = 60_000
Runner = Literal["here", "local", "ray"]
Device = Literal["cpu", "cuda"]


class EngineConfig(Frozen):
    """The section [engine] of a run; commands about all users have the same settings as options."""

    runner: Runner = "here"
    """here: in this process. local: in several processes of this machine. ray: on a cluster."""
    workers: int | None = Field(None, ge=1)
    """Each has the model in memory. By default, as many as there are cores for."""
    threads: int | None = Field(None, ge=1)
    """Of every worker. The order of additions depends on it, so the number is the job's and not the machine's: by
    default, what torch takes in the process that began the job."""
    device: Device = "cpu"
    """What generators speak on; cuda gives every worker a GPU. All other work is done on cores."""
    shards: int | None = Field(None, ge=1, le=MAX_SHARDS)
    """A property of the job, not of the workers. By default one for every 1,000 rows."""
    address: str | None = None
    """Of a Ray cluster: HOST:PORT. By default, the one that this machine belongs to."""
    attempts: int = Field(3, ge=1)
    """So often is a shard tried before it is set aside."""
    shard_minutes: float | None = Field(None, gt=0)
    """A worker that needs longer for a shard counts as lost: one that hangs would hold up the job for ever. By default
    there is no limit, since a slow machine is not a hanging one."""
    parts: str | None = None
    """Where finished shards are kept until the job is done: a folder that all workers see, or s3://bucket/folder. By
    default, a hidden folder beside the output."""

    @model_validator(mode="after")
    def _fits(self) -> Self:
        if self.workers and self.runner == "here":
            raise ValueError("workers need somewhere to be: set runner to local or ray")
        if self.address and self.runner != "ray":
            raise ValueError("an address is that of a Ray cluster: set runner to ray")
        if self.shard_minutes and self.runner == "here":
            raise ValueError("who works here cannot be ended: set runner to local or ray")
        return self

    def of_threads(self) -> int:
        """How many threads a worker has, where the bytes do not depend on it."""
        return self.threads or max(1, cores() // (self.workers or cores()))

    def of_workers(self, there: int) -> int:
        """How many workers so many cores are shared by."""
        threads = self.of_threads()
        if self.workers and threads > 1 and self.workers * threads > there:
            raise ConfigError(
                f"{self.workers} workers of {threads} threads each would share {there} cores and mostly wait for each "
                f"other. Set engine.threads={max(1, there // self.workers)} (its last bits of states are its own), or "
                f"engine.workers={max(1, there // threads)}."
            )
        return self.workers or max(1, there // threads)


class EngineRun(Frozen):
    """The settings of a command that is nothing but work on many users."""

    engine: EngineConfig = EngineConfig()


def cores() -> int:
    """How many cores this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


@dataclass(frozen=True)
class ShardJob:
    """All that a worker is told before its first shard."""

    name: str
    """What it is called in messages."""
    set_up: Callable[[Any], Any]
    """Settings → a worker. A function of a module, like the next one: other processes find it by its name."""
    settings: Any
    """Plain and frozen: paths, numbers, settings of stages."""
    work: Callable[[Any, pl.DataFrame], pl.DataFrame]
    """Worker and rows → a table."""
    essence: Any
    """All that decides the bytes, as JSON: parts of another essence are never taken for this job's."""
    device: Device = "cpu"
    """cuda: a worker needs a GPU, and sees no other."""


class Task(NamedTuple):
    """One shard."""

    number: int
    rows: pl.DataFrame
    address: str
    """Of the part that it becomes."""


class Ready(NamedTuple):
    """The worker is set up and waits for its first shard."""

    worker: int


class Done(NamedTuple):
    """The shard is committed; the worker may have the next one."""

    worker: int


class Failed(NamedTuple):
    """The shard was refused; the worker lives."""

    worker: int
    error: str
    lasting: bool
    """The rows are at fault: another attempt would fail in the same way."""


class Stopped(NamedTuple):
    """Nothing is at fault with the rows, and no shard can be done: a full disk, a missing package."""

    worker: int
    error: MeritError


class Lost(NamedTuple):
    """The worker is gone, whatever it was doing."""

    worker: int
    why: str


Event = Ready | Done | Failed | Stopped | Lost


class Pool(Protocol):
    """Workers somewhere. The three of them differ in nothing else."""

    workers: int

    def start(self) -> int:
        """Begin a worker; its number. A `Ready` follows."""

    def give(self, worker: int, task: Task) -> None:
        """Let a worker that is ready do a shard. Another event follows."""

    def end(self, worker: int) -> None:
        """End a worker that hangs. A `Lost` follows."""

    def wait(self, seconds: float) -> list[Event]:
        """What happened, after so many seconds at the latest."""

    def close(self) -> None:
        """End all workers."""


def set_up(job: ShardJob, worker: int) -> tuple[Any, Event]:
    """A worker, and what to tell of it."""
    try:
        return job.set_up(job.settings), Ready(worker)
    except MeritError as error:
        return None, Stopped(worker, error)
    except Exception:
        return None, Stopped(worker, EngineError(f"A worker could not be set up: {traceback.format_exc()}"))


def do(job: ShardJob, state: Any, task: Task, worker: int) -> Event:
    """Do a shard and commit it; what to tell of it."""
    try:
        made = job.work(state, task.rows)
        buffer = io.BytesIO()
        made.rechunk().write_parquet(buffer)  # row groups follow its pieces, and these the cores
        commit(task.address, buffer.getvalue())
    except DataError as error:
        return Failed(worker, str(error), lasting=True)
    except MeritError as error:
        return Stopped(worker, error)
    except Exception:
        return Failed(worker, traceback.format_exc(limit=-4), lasting=False)
    return Done(worker)


def shard_count(rows: int) -> int:
    """How many shards so many rows make."""
    return min(MAX_SHARDS, max(1, math.ceil(rows / SHARD_ROWS)))


def shard_plan(user_ids: Sequence[str], shards: int) -> dict[int, Ints]:
    """By shard, ascending: its rows, ascending. Shards that nobody fell into are left out.

    The hash has a name of its own: users of one shard of `prepare` still fall into all shards here.
    """
    names, of_row = np.unique(np.array(user_ids, dtype=object), return_inverse=True)
    shard = (derive(stable_hash(names.tolist(), USER_SALT), 0, "engine") % np.uint64(shards)).astype(np.int64)
    return rows_by_shard(shard[of_row.ravel()])


def rows_by_shard(shard: Ints) -> dict[int, Ints]:
    """The same of rows whose shards are known already."""
    order = np.argsort(shard, kind="stable")
    found, first = np.unique(shard[order], return_index=True)
    return dict(zip(found.tolist(), np.split(order, first[1:]), strict=True))
