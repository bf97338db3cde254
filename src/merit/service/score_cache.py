"""The last scores of all users for an interest: whoever moves a slider asks for the same ones again and again.

    scores = ScoreCache(model.audience_scores)
    scores(interest)                     # a pass over all users, or the scores of the last time

Passes go one at a time: each uses all cores, and two at once would only take turns and twice the memory.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable
from threading import Lock

from merit.retrieval.exact import Doubles
from merit.retrieval.query import Interest
from merit.retrieval.windows import WindowQuery

MOST_BYTES = 128 * 2**20  # 16 interests of a million users


class ScoreCache:
    """Scores by the text of the interest, up to `most` bytes; the least recently used go first."""

    def __init__(self, score: Callable[[Interest | WindowQuery], Doubles], most: int = MOST_BYTES) -> None:
        self._score, self._most = score, most
        self._kept: OrderedDict[str, Doubles] = OrderedDict()
        self._lock, self._passing = Lock(), Lock()

    def __call__(self, interest: Interest | WindowQuery) -> Doubles:
        """(users,), hidden ones included; read-only, as all callers share one array."""
        if (scores := self._cached(interest.text)) is not None:
            return scores
        with self._passing:
            if (scores := self._cached(interest.text)) is None:  # another thread may have computed it meanwhile
                scores = self._score(interest)
                scores.flags.writeable = False
                with self._lock:
                    self._kept[interest.text] = scores
                    while sum(kept.nbytes for kept in self._kept.values()) > self._most:
                        self._kept.popitem(last=False)
            return scores

    def _cached(self, text: str) -> Doubles | None:
        with self._lock:
            if text in self._kept:
                self._kept.move_to_end(text)
            return self._kept.get(text)
