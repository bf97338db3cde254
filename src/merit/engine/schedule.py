"""Every shard is done, or it is known why not: the loop that all runners share."""

from __future__ import annotations

import heapq
import math
import time
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field

from merit.core import console
from merit.core.errors import EngineError
from merit.engine.job import Done, Event, Failed, Lost, Pool, Ready, Stopped, Task

BACK_OFF = 0.5  # seconds before the second attempt; twice as many before each further one
LONGEST = 30.0
GLANCE = 1.0  # seconds between two looks at what waits


@dataclass
class _Board:
    """Who does what, and what is left."""

    tasks: Mapping[int, Task]
    attempts: int
    waiting: list[tuple[float, int]]  # (not before, shard): a heap
    idle: set[int] = field(default_factory=set)
    busy: dict[int, int] = field(default_factory=dict)  # worker → shard
    since: dict[int, float] = field(default_factory=dict)  # worker → when it got its shard
    tried: Counter[int] = field(default_factory=Counter)
    poisoned: dict[int, str] = field(default_factory=dict)  # shard → why
    starts_lost: int = 0

    def failed(self, shard: int, why: str, lasting: bool = False) -> None:
        """Once more, later; or never again."""
        self.tried[shard] += 1
        if lasting or self.tried[shard] >= self.attempts:
            self.poisoned[shard] = why
            return
        console.warn(f"shard {shard} failed and is tried again: {why.strip().splitlines()[-1]}", shard=shard)
        pause = min(LONGEST, BACK_OFF * 2 ** (self.tried[shard] - 1))
        heapq.heappush(self.waiting, (time.monotonic() + pause, shard))


def run(
    pool: Pool, tasks: Mapping[int, Task], name: str, attempts: int, total: int, longest: float | None = None
) -> dict[int, str]:
    """Do all tasks; the shards that could not be done, with the reason. `total` counts those done before, too.

    A worker that has been at one shard for longer than `longest` seconds is ended.
    """
    board = _Board(tasks, attempts, [(0.0, number) for number in tasks])
    try:
        with console.steps(name, total, done=total - len(tasks)) as step:
            for _ in range(min(pool.workers, len(tasks))):
                pool.start()
            while board.waiting or board.busy:
                _give(pool, board)
                _end_hanging(pool, board, longest)
                for event in pool.wait(GLANCE):
                    _hear(pool, board, event)
                    if isinstance(event, Done):
                        step(f"{len(board.busy)} at work")
    finally:
        pool.close()
    return board.poisoned


def _give(pool: Pool, board: _Board) -> None:
    """The shards that may be tried now, to the workers that have nothing to do."""
    while board.idle and board.waiting and board.waiting[0][0] <= time.monotonic():
        _, shard = heapq.heappop(board.waiting)
        worker = board.idle.pop()
        board.busy[worker], board.since[worker] = shard, time.monotonic()
        pool.give(worker, board.tasks[shard])


def _end_hanging(pool: Pool, board: _Board, longest: float | None) -> None:
    for worker, shard in board.busy.items():
        if longest and time.monotonic() - board.since[worker] > longest:
            console.warn(f"worker {worker} hangs in shard {shard} and is ended", shard=shard)
            board.since[worker] = math.inf
            pool.end(worker)


def _hear(pool: Pool, board: _Board, event: Event) -> None:
    shard = board.busy.pop(event.worker, None)
    match event:
        case Stopped():
            raise event.error
        case Ready() | Done():
            board.idle.add(event.worker)
            board.starts_lost = 0
        case Failed() if shard is not None:
            board.idle.add(event.worker)
            board.failed(shard, event.error, event.lasting)
        case Lost():
            board.starts_lost += shard is None and event.worker not in board.idle
            board.idle.discard(event.worker)
            if board.starts_lost >= board.attempts:
                raise EngineError(f"Workers end before they are ready: {event.why}. What was done is kept.")
            if shard is not None:
                board.failed(shard, event.why)
            if board.waiting:
                pool.start()
