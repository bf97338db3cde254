"""Workers of this machine: this process itself, or processes that live as long as the one that began them.

Every worker is an executor of one process: the loss of one breaks no other, and each can be killed.
"""

from __future__ import annotations

import multiprocessing
import os
import signal
import threading
import time
from collections.abc import Iterator
from concurrent.futures import Future, ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager
from multiprocessing.process import BaseProcess
from typing import Any

from merit.core import console
from merit.engine.job import EngineConfig, Outcome, ShardJob, ShardTask, ShardWorker

SPAWN = multiprocessing.get_context("spawn")  # a forked process would share locks that other threads hold
GRACE = 2.0  # seconds to end in good order
THREAD_SETTINGS = (
    *("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS"),
    *("RAYON_NUM_THREADS", "POLARS_MAX_THREADS"),
)
VISIBLE_GPUS = "CUDA_VISIBLE_DEVICES"


class InlinePool:
    """One worker, number 0, which is this process: a shard is done when `submit` returns."""

    workers = 1

    def __init__(self, job: ShardJob, state: Any = None) -> None:
        self._worker = ShardWorker(job, state)

    def start(self) -> tuple[int, Future[Outcome]]:
        """Set the worker up, unless its state was handed in."""
        return 0, _done(self._worker.set_up())

    def submit(self, worker: int, task: ShardTask) -> Future[Outcome]:
        """Do the shard."""
        return _done(self._worker.work(task))

    def check(self) -> None:
        """Nothing can hold it up."""

    def end(self, worker: int, error: BaseException | None = None) -> str:
        """Never called: this process waits for itself."""
        raise NotImplementedError

    def close(self) -> None:
        """Nothing was begun."""


class LocalPool:
    """Spawned processes; of several GPUs, each sees the one with the fewest workers."""

    def __init__(self, job: ShardJob, config: EngineConfig) -> None:
        gpus = visible_gpus() if job.device == "cuda" else []
        count = config.worker_count()
        self.workers = config.workers or (min(count, len(gpus)) if gpus else count)
        self._job, self._threads, self._gpus, self._begun = job, config.worker_threads(), gpus, 0
        self._executors: dict[int, ProcessPoolExecutor] = {}
        self.processes: dict[int, BaseProcess] = {}
        self.gpu_of: dict[int, str] = {}

    def start(self) -> tuple[int, Future[Outcome]]:
        """Begin a process and set it up."""
        number, self._begun = self._begun, self._begun + 1
        if self._gpus:
            self.gpu_of[number] = min(self._gpus, key=list(self.gpu_of.values()).count)
        executor = ProcessPoolExecutor(1, SPAWN)
        with _child_environment(self._threads, self.gpu_of.get(number)):
            ready = executor.submit(_set_up, self._job)
        self._executors[number], [self.processes[number]] = executor, executor._processes.values()
        return number, ready

    def submit(self, worker: int, task: ShardTask) -> Future[Outcome]:
        """Send the shard to the process."""
        try:
            return self._executors[worker].submit(_work, task)
        except BrokenProcessPool as error:  # it ended while it had nothing to do
            broken: Future[Outcome] = Future()
            broken.set_exception(error)
            return broken

    def check(self) -> None:
        """Nothing to wait for in vain: processes begin at once."""

    def end(self, worker: int, error: BaseException | None = None) -> str:
        """Kill and forget a process, and with it its GPU; its exit code."""
        process = self.processes.pop(worker)
        process.kill()
        self._executors.pop(worker).shutdown()
        self.gpu_of.pop(worker, None)
        return f"worker {worker} ended with code {process.exitcode} (-9: killed, or out of memory)"

    def close(self) -> None:
        """Idle processes end by themselves; all others are killed after two seconds."""
        for executor in self._executors.values():
            executor.shutdown(wait=False, cancel_futures=True)
        stop = time.monotonic() + GRACE
        for process in self.processes.values():
            process.join(max(0.0, stop - time.monotonic()))
            process.kill()
            process.join()


def _done(outcome: Outcome) -> Future[Outcome]:
    future: Future[Outcome] = Future()
    future.set_result(outcome)
    return future


_worker: list[ShardWorker] = []  # of a process that was begun here


def _set_up(job: ShardJob) -> Outcome:
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the process that began it decides
    threading.Thread(target=_end_with_parent, daemon=True).start()
    console.mute()
    _worker[:] = [ShardWorker(job)]
    return _worker[0].set_up()


def _work(task: ShardTask) -> Outcome:
    return _worker[0].work(task)


def _end_with_parent() -> None:
    """A killed parent cannot end its children; a lock that it held must not outlive it in them."""
    if parent := multiprocessing.parent_process():
        parent.join()
        os._exit(1)


def visible_gpus() -> list[str]:
    """The GPUs that this process may use, by their names in CUDA."""
    if (names := os.environ.get(VISIBLE_GPUS)) is not None:
        return [name.strip() for name in names.split(",") if name.strip()]
    import torch

    return [str(number) for number in range(torch.cuda.device_count())]


@contextmanager
def _child_environment(threads: int, gpu: str | None = None) -> Iterator[None]:
    """Processes that begin meanwhile have so many threads in every library, and see this GPU."""
    changes = {name: str(threads) for name in THREAD_SETTINGS} | ({VISIBLE_GPUS: gpu} if gpu else {})
    before = {name: os.environ.get(name) for name in changes}
    os.environ |= changes
    try:
        yield
    finally:
        for name, value in before.items():
            os.environ.pop(name)
            if value is not None:
                os.environ[name] = value
