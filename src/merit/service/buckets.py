"""How often a key may ask: a bucket of tokens that fills at a steady rate, one token a request."""

from __future__ import annotations

import math
from collections.abc import Callable
from threading import Lock
from time import monotonic


class Buckets:
    """One bucket for each name, full when the name first comes; `rate` is in tokens a second."""

    def __init__(self, rate: float, burst: int, clock: Callable[[], float] = monotonic) -> None:
        self.rate, self.burst, self._clock = rate, burst, clock
        self._lock = Lock()
        self._held: dict[str, tuple[float, float]] = {}  # tokens, and when they were counted

    def wait(self, name: str) -> int:
        """Take a token: 0. If there is none: in how many whole seconds there will be."""
        with self._lock:
            now = self._clock()
            tokens, counted = self._held.get(name, (float(self.burst), now))
            tokens = min(self.burst, tokens + (now - counted) * self.rate)
            enough = tokens >= 1
            self._held[name] = (tokens - enough, now)
            return 0 if enough else max(1, math.ceil((1 - tokens) / self.rate))
