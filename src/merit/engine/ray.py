"""Workers that are actors of a Ray cluster. The only file that knows of Ray.

All machines need the same merit, and must see the run's folders under the same paths. Workers are in the folder that
the command was given in, so that a path may be relative to it.
"""

from __future__ import annotations

import os
import socket
import time
from pathlib import Path
from typing import Any

from merit import __version__
from merit.core import console
from merit.core.errors import ConfigError, EngineError, MissingDependency
from merit.engine.job import EngineConfig, Event, Lost, ShardJob, Stopped, Task, do, set_up

KNOCK = 10.0  # seconds
PATIENCE = 300.0  # seconds that nobody may be at work: a cluster that scales by itself needs some to begin


class Cluster:
    """A pool of actors on any nodes; where no cluster answers, an error says how to start one."""

    def __init__(self, job: ShardJob, config: EngineConfig) -> None:
        self._ray, self._ours = _join(config.address)
        threads, there = config.of_threads(), self._ray.cluster_resources()
        room, gpus = there.get("CPU", 0) // threads, int(job.device == "cuda")
        room = min(room, there.get("GPU", 0)) if gpus else room
        self.workers = config.workers or max(1, int(room))  # Ray gives a core or a GPU to no two of them
        how = {"num_cpus": threads, "num_gpus": gpus, "scheduling_strategy": "SPREAD", "max_restarts": 0}
        self._actor, self._job = self._ray.remote(**how)(_Worker), self._ray.put(job)  # Ray sets OMP_NUM_THREADS
        self._begun = 0
        self._actors: dict[int, Any] = {}
        self._awaited: dict[Any, int] = {}
        self._placed: set[int] = set()
        self._heard = time.monotonic()

    def start(self) -> int:
        """The number is known at once, the actor begins when the cluster has room for it."""
        number, self._begun = self._begun, self._begun + 1
        self._actors[number] = self._actor.remote(number, __version__, str(Path.cwd()))
        self._awaited[self._actors[number].arrive.remote()] = number
        return number

    def give(self, worker: int, task: Task) -> None:
        """The rows travel to the actor's node; what came of them is heard in `wait`."""
        self._awaited[self._actors[worker].do.remote(task)] = worker

    def end(self, worker: int) -> None:
        """Killed at once; Ray's error about it is then heard as `Lost`."""
        self._ray.kill(self._actors[worker])

    def wait(self, seconds: float) -> list[Event]:
        """What happened; an error once the cluster has had no room for any worker for five minutes."""
        if not self._awaited:
            time.sleep(seconds)
            return []
        done, _ = self._ray.wait(list(self._awaited), timeout=seconds)
        if done or self._placed & set(self._awaited.values()):  # a model and a shard take what they take
            self._heard = time.monotonic()
        if time.monotonic() - self._heard > PATIENCE:
            raise EngineError(
                "The cluster has had no room for a worker for five minutes. `ray status` tells what is free; lower "
                "engine.threads, or add nodes (with GPUs, where engine.device = cuda). What was done is kept."
            )
        return [event for each in done if (event := self._event(each))]

    def close(self) -> None:
        """End all actors, and leave the cluster if it was joined for this job."""
        for actor in self._actors.values():
            self._ray.kill(actor)
        if self._ours:
            self._ray.shutdown()

    def _event(self, reference: Any) -> Event | None:
        number = self._awaited.pop(reference)
        try:
            event: Event | None = self._ray.get(reference)
        except self._ray.exceptions.RayError as error:
            self._ray.kill(self._actors.pop(number))  # one that is only out of reach must not keep its core
            self._placed.discard(number)
            return Lost(number, f"worker {number} is gone: {str(error).strip().splitlines()[0]}")
        if event is None:
            self._placed.add(number)
            self._awaited[self._actors[number].begin.remote(self._job)] = number
        return event


class _Worker:
    """Lives in a process of some node."""

    def __init__(self, number: int, version: str, folder: str) -> None:
        self._number, self._version, self._folder, self._state = number, version, folder, None

    def arrive(self) -> None:
        """It has found its place."""
        console.mute()

    def begin(self, job: ShardJob) -> Event:
        self._job = job
        if self._version != __version__:
            told = f"The cluster has merit {__version__}, this machine {self._version}. Install the same everywhere."
            return Stopped(self._number, ConfigError(told))
        try:
            os.chdir(self._folder)  # runs/shop is the same folder for everybody
        except OSError as error:
            told = (
                f"{socket.gethostname()} does not see {self._folder}, where this command was given: {error.strerror}. "
            )
            return Stopped(self._number, ConfigError(told + "Give it in a folder that all machines see."))
        self._state, event = set_up(job, self._number)
        return event

    def do(self, task: Task) -> Event:
        return do(self._job, self._state, task, self._number)


def _join(address: str | None) -> tuple[Any, bool]:
    """Ray, joined to the cluster; and whether that is ours to leave again."""
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
    try:
        import ray
    except ImportError:
        raise MissingDependency("engine.runner = ray needs Ray: pip install 'merit[ray]'.") from None
    if ray.is_initialized():
        return ray, False
    try:
        _knock(address)
        ray.init(address=address or "auto", log_to_driver=False, logging_level="ERROR", configure_logging=False)
    except (OSError, ValueError, RuntimeError) as error:
        told = str(error).strip().splitlines()[0] if str(error) else type(error).__name__
        raise ConfigError(
            f"No Ray cluster answers at {address or 'this machine'}: {told} Start one with `ray start --head`, or give "
            "its HOST:PORT as engine.address (docs/cluster.md)."
        ) from None
    return ray, True


def _knock(address: str | None) -> None:
    """Ray ends the whole process when nobody answers at an address, so somebody has to ask before."""
    if address:
        host, _, port = address.rpartition(":")
        with socket.create_connection((host, int(port)), timeout=KNOCK):
            pass
