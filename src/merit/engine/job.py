"""What a runner is asked to do, and what it answers.

A job is three things that another process can be handed: plain settings, a function that sets a worker up with them
once, and a function that turns the rows of one shard into a table. Whoever did a shard commits its table.
"""

from __future__ import annotations

import io
import traceback
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol

import polars as pl

from merit.core.errors import DataError, EngineError, MeritError
from merit.engine.commit import commit
from merit.engine.config import Device


@dataclass(frozen=True)
class Job:
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


def set_up(job: Job, worker: int) -> tuple[Any, Event]:
    """A worker, and what to tell of it."""
    try:
        return job.set_up(job.settings), Ready(worker)
    except MeritError as error:
        return None, Stopped(worker, error)
    except Exception:
        return None, Stopped(worker, EngineError(f"A worker could not be set up: {traceback.format_exc()}"))


def do(job: Job, state: Any, task: Task, worker: int) -> Event:
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
