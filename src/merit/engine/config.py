"""Who does the work. What is made depends on `shards`, `threads` and `device` only, and by the last bits of a state."""

from __future__ import annotations

import os
from typing import Literal, Self

from pydantic import Field, model_validator

from merit.core.config import Frozen
from merit.core.errors import ConfigError
from merit.engine.shards import MOST

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
    shards: int | None = Field(None, ge=1, le=MOST)
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
