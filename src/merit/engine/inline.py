"""The runner that is no runner: shards one after the other in this process."""

from __future__ import annotations

import time
from typing import Any

from merit.engine.job import Event, Ready, ShardJob, Task, do, set_up

PAUSE = 0.05


class Here:
    """A pool of one worker, number 0, which is this very process."""

    workers = 1

    def __init__(self, job: ShardJob, state: Any = None) -> None:
        self._job, self._state = job, state
        self._events: list[Event] = []

    def start(self) -> int:
        """Always 0; a worker that was handed in is not set up again."""
        event: Event = Ready(0)
        if self._state is None:
            self._state, event = set_up(self._job, 0)
        self._events.append(event)
        return 0

    def give(self, worker: int, task: Task) -> None:
        """The shard is done before this returns; what came of it waits for the next `wait`."""
        self._events.append(do(self._job, self._state, task, worker))

    def end(self, worker: int) -> None:
        """Whoever could end it waits for it."""

    def wait(self, seconds: float) -> list[Event]:
        """What happened since the last time; where that is nothing, after a pause of 50 ms at most."""
        if not self._events:  # a shard is to be tried again, but not yet
            time.sleep(min(seconds, PAUSE))
        found, self._events = self._events, []
        return found

    def close(self) -> None:
        """Let go of the worker, and with it of its model."""
        self._state = None
