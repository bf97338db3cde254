"""The time a method may train for. All methods look at the same clock, and a test may put another one in its place.

The clock counts work, not waiting: seconds of all processors together, for each thread that torch may use. On an idle
machine that is the time on the wall; on a busy one a method loses nothing to its neighbours.
"""

from __future__ import annotations

import time
from collections.abc import Callable


def clock_of_work() -> float:
    """Processor seconds of this process, for each thread of torch; only differences of it mean something."""
    import torch

    return time.process_time() / torch.get_num_threads()


clock: Callable[[], float] = clock_of_work


class Budget:
    """Seconds, counted from the moment it is made."""

    def __init__(self, seconds: float) -> None:
        self.seconds = seconds
        self._begin = clock()

    def used(self) -> float:
        """Seconds so far."""
        return clock() - self._begin

    def spent(self) -> float:
        """The part of the budget that is gone; 1 or more when it is time to stop."""
        return self.used() / max(self.seconds, 1e-9)
