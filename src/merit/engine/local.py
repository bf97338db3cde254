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

from merit import console
from merit.engine.config import EngineConfig, cores
from merit.engine.job import Event, Job, Lost, Task, do, set_up

FRESH = multiprocessing.get_context("spawn")  # a forked process would share locks that other threads hold
GRACE = 2.0  # seconds to end in good order
POOLS = ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS", "RAYON_NUM_THREADS", "POLARS_MAX_THREADS")


class Local:
    def __init__(self, job: Job, config: EngineConfig) -> None:
        self.workers, self._threads, self._job = config.of_workers(cores()), config.of_threads(), job
        self._begun = 0
        self._wires: dict[int, Connection[Any, Any]] = {}
        self._processes: dict[int, Any] = {}

    def start(self) -> int:
        number, self._begun = self._begun, self._begun + 1
        ours, theirs = FRESH.Pipe()
        with threads_of_children(self._threads):
            process = FRESH.Process(target=_life, args=(number, theirs, self._job), daemon=True)
            process.start()
        theirs.close()  # so that its end is felt here
        self._wires[number], self._processes[number] = ours, process
        return number

    def give(self, worker: int, task: Task) -> None:
        with suppress(BrokenPipeError, ConnectionResetError):  # the next look finds that it is gone
            self._wires[worker].send(task)

    def end(self, worker: int) -> None:
        self._processes[worker].kill()

    def wait(self, seconds: float) -> list[Event]:
        numbers = {id(wire): number for number, wire in self._wires.items()}
        return [self._heard(numbers[id(wire)]) for wire in wait(list(self._wires.values()), seconds)]

    def close(self) -> None:
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
            process.join()
            return Lost(number, f"worker {number} ended with code {process.exitcode} (-9: killed, or out of memory)")
        return event


def _life(number: int, wire: Connection[Any, Any], job: Job) -> None:
    """Of one worker: set up once, then shard after shard."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the one that began it decides
    threading.Thread(target=_end_with_parent, daemon=True).start()
    console.mute()
    state, event = set_up(job, number)
    wire.send(event)
    with suppress(EOFError):
        while True:
            wire.send(do(job, state, wire.recv(), number))


def _end_with_parent() -> None:
    """A killed parent cannot end its children; a lock that it held must not outlive it in them."""
    if parent := multiprocessing.parent_process():
        parent.join()
        os._exit(1)


@contextmanager
def threads_of_children(threads: int) -> Iterator[None]:
    """Processes that begin meanwhile have so many threads in every pool; those of libraries are made at import."""
    had = {name: os.environ.get(name) for name in POOLS}
    os.environ |= {name: str(threads) for name in POOLS}
    try:
        yield
    finally:
        for name, value in had.items():
            os.environ.pop(name)
            if value is not None:
                os.environ[name] = value
