"""Workers that are actors of a Ray cluster. The only file that knows of Ray.

All machines need the same merit, and must see the run's folders under the same paths. Workers are in the folder that
the command was given in, so that a path may be relative to it.
"""

from __future__ import annotations

import os
import socket
import time
from concurrent.futures import Future
from pathlib import Path
from typing import Any

from merit import __version__
from merit.core import console, extras
from merit.core.errors import ConfigError, EngineError
from merit.engine.job import EngineConfig, Outcome, ShardJob, ShardTask, ShardWorker

CONNECT = 10.0  # seconds
PATIENCE = 300.0  # seconds without any worker: a cluster that scales by itself needs some to begin


class RayPool:
    """Actors on any nodes; where no cluster answers, an error says how to start one."""

    def __init__(self, job: ShardJob, config: EngineConfig) -> None:
        self._ray, self._joined = _join(config.address)
        threads, resources = config.worker_threads(), self._ray.cluster_resources()
        room, gpus = resources.get("CPU", 0) // threads, int(job.device == "cuda")
        room = min(room, resources.get("GPU", 0)) if gpus else room
        self.workers = config.workers or max(1, int(room))  # Ray gives a core or a GPU to no two of them
        options = {"num_cpus": threads, "num_gpus": gpus, "scheduling_strategy": "SPREAD", "max_restarts": 0}
        self._actor, self._job = self._ray.remote(**options)(_Actor), self._ray.put(job)  # Ray sets OMP_NUM_THREADS
        self._begun, self._last_placed = 0, time.monotonic()
        self._actors: dict[int, Any] = {}
        self._placed: dict[int, Future[None]] = {}

    def start(self) -> tuple[int, Future[Outcome]]:
        """Ask for an actor, which begins when the cluster has room for it."""
        number, self._begun = self._begun, self._begun + 1
        actor = self._actors[number] = self._actor.remote()
        self._placed[number] = actor.place.remote().future()
        return number, actor.set_up.remote(self._job, __version__, str(Path.cwd())).future()

    def submit(self, worker: int, task: ShardTask) -> Future[Outcome]:
        """Send the rows to the node of the actor."""
        future: Future[Outcome] = self._actors[worker].work.remote(task).future()
        return future

    def check(self) -> None:
        """Raise once the cluster has had no room for any worker for five minutes."""
        if any(placed.done() for placed in self._placed.values()):  # a model and a shard take the time they take
            self._last_placed = time.monotonic()
        if time.monotonic() - self._last_placed > PATIENCE:
            raise EngineError(
                "The cluster has had no room for a worker for five minutes. `ray status` shows what is free; lower "
                "engine.threads, or add nodes (with GPUs, where engine.device = cuda). What was done is kept."
            )

    def end(self, worker: int, error: BaseException | None = None) -> str:
        """Kill and forget an actor; one that is only out of reach must not keep its core."""
        self._ray.kill(self._actors.pop(worker))
        self._placed.pop(worker)
        return f"worker {worker} is gone: {str(error or 'it was ended').strip().splitlines()[0]}"

    def close(self) -> None:
        """End all actors, and leave the cluster if it was joined for this job."""
        for actor in self._actors.values():
            self._ray.kill(actor)
        if self._joined:
            self._ray.shutdown()


class _Actor:
    """Lives in a process of some node."""

    def place(self) -> None:
        """Returns once the actor has found its place."""
        console.mute()

    def set_up(self, job: ShardJob, version: str, folder: str) -> Outcome:
        if version != __version__:
            return ConfigError(f"The cluster has merit {__version__}, this machine {version}. Install the same.")
        try:
            os.chdir(folder)  # runs/shop is the same folder everywhere
        except OSError as error:
            return ConfigError(
                f"{socket.gethostname()} does not see {folder}, where this command was given: {error.strerror}. "
                "Give it in a folder that all machines see."
            )
        self._worker = ShardWorker(job)
        return self._worker.set_up()

    def work(self, task: ShardTask) -> Outcome:
        return self._worker.work(task)


def _join(address: str | None) -> tuple[Any, bool]:
    """Ray, joined to the cluster; and whether it was joined here."""
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
    with extras.needed_by("engine.runner = ray"):
        import ray
    if ray.is_initialized():
        return ray, False
    try:
        if address:  # Ray ends the whole process when nobody answers
            host, _, port = address.rpartition(":")
            socket.create_connection((host, int(port)), timeout=CONNECT).close()
        ray.init(address=address or "auto", log_to_driver=False, logging_level="ERROR", configure_logging=False)
    except (OSError, ValueError, RuntimeError) as error:
        reason = str(error).strip().splitlines()[0] if str(error) else type(error).__name__
        raise ConfigError(
            f"No Ray cluster answers at {address or 'this machine'}: {reason} Start one with `ray start --head`, or "
            "give its HOST:PORT as engine.address (docs/cluster.md)."
        ) from None
    return ray, True
