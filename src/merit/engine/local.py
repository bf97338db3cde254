"""Workers that are processes of this machine. They live as long as the one that began them, and no longer."""

from __future__ import annotations

import multiprocessing
import os
import signal
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from multiprocessing.connection import Connection, wait
from typing import Any

from merit.core import console
from merit.engine.job import EngineConfig, Event, Lost, ShardJob, Task, cores, do, set_up

FRESH = multiprocessing.get_context("spawn")  # a forked process would share locks that other threads hold
GRACE = 2.0  # seconds to end in good order
POOLS = ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS", "RAYON_NUM_THREADS", "POLARS_MAX_THREADS")
VISIBLE = "CUDA_VISIBLE_DEVICES"


class Local:
    """A pool of spawned processes, each at the other end of a pipe."""

    def __init__(self, job: ShardJob, config: EngineConfig) -> None:
        self._gpus = gpus() if job.device == "cuda" else []
        room = config.of_workers(cores())
        self.workers = config.workers or (min(room, len(self._gpus)) if self._gpus else room)
        self._threads, self._job = config.of_threads(), job
        self._begun = 0
        self._wires: dict[int, Connection[Any, Any]] = {}
        self._processes: dict[int, Any] = {}
        self._sees: dict[int, str] = {}

    def start(self) -> int:
        """A process that sees, of several GPUs, the one with the fewest workers."""
        number, self._begun = self._begun, self._begun + 1
        ours, theirs = FRESH.Pipe()
        if self._gpus:
            self._sees[number] = min(self._gpus, key=list(self._sees.values()).count)
        with environment_of_children(self._threads, self._sees.get(number)):
            process = FRESH.Process(target=_life, args=(number, theirs, self._job), daemon=True)
            process.start()
        theirs.close()  # so that its end is felt here
        self._wires[number], self._processes[number] = ours, process
        return number

    def give(self, worker: int, task: Task) -> None:
        """Sent down the pipe; of a worker that is gone, the next `wait` tells."""
        with suppress(BrokenPipeError, ConnectionResetError):  # the next look finds that it is gone
            self._wires[worker].send(task)

    def end(self, worker: int) -> None:
        """Killed at once; its closed pipe is then heard as `Lost`."""
        self._processes[worker].kill()

    def wait(self, seconds: float) -> list[Event]:
        """One event of each worker that has something to tell, or whose pipe was closed."""
        numbers = {id(wire): number for number, wire in self._wires.items()}
        return [self._heard(numbers[id(wire)]) for wire in wait(list(self._wires.values()), seconds)]

    def close(self) -> None:
        """Who has nothing to do goes alone; all others are killed after two seconds."""
        for wire in self._wires.values():
            wire.close()  # who has nothing to do, goes
        stop = time.monotonic() + GRACE
        for process in self._processes.values():
            process.join(max(0.0, stop - time.monotonic()))
            process.kill()
            process.join()

    def _heard(self, number: int) -> Event:
        try:
            event: Event = self._wires[number].recv()
        except (EOFError, ConnectionResetError):
            self._wires.pop(number).close()
            process = self._processes.pop(number)
            self._sees.pop(number, None)
            process.join()
            return Lost(number, f"worker {number} ended with code {process.exitcode} (-9: killed, or out of memory)")
        return event


def _life(number: int, wire: Connection[Any, Any], job: ShardJob) -> None:
    """Of one worker: set up once, then shard after shard."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the one that began it decides
    threading.Thread(target=_end_with_parent, daemon=True).start()
    console.mute()
    state, event = set_up(job, number)
    with suppress(EOFError, BrokenPipeError, ConnectionResetError):  # the work was done before this one was ready
        wire.send(event)
        while True:
            wire.send(do(job, state, wire.recv(), number))


def _end_with_parent() -> None:
    """A killed parent cannot end its children; a lock that it held must not outlive it in them."""
    if parent := multiprocessing.parent_process():
        parent.join()
        os._exit(1)


def gpus() -> list[str]:
    """The GPUs that this process may use, by the names that CUDA knows them by."""
    if (named := os.environ.get(VISIBLE)) is not None:
        return [each.strip() for each in named.split(",") if each.strip()]
    import torch

    return [str(number) for number in range(torch.cuda.device_count())]


@contextmanager
def environment_of_children(threads: int, gpu: str | None = None) -> Iterator[None]:
    """Processes that begin meanwhile have so many threads in every pool, and see this GPU: libraries ask at import."""
    wanted = {name: str(threads) for name in POOLS} | ({VISIBLE: gpu} if gpu else {})
    had = {name: os.environ.get(name) for name in wanted}
    os.environ |= wanted
    try:
        yield
    finally:
        for name, value in had.items():
            os.environ.pop(name)
            if value is not None:
                os.environ[name] = value
