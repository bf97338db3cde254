"""Everybody's probabilities for the interests that were asked for last: whoever moves a slider asks again and again.

    recent = Recent(model.audience_scores)
    recent(interest)                     # a pass over all users, or what it said the last time

Passes go one at a time: each uses all cores, and two at once would only take turns and twice the memory.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable
from threading import Lock

from merit.retrieval.exact import Doubles
from merit.retrieval.query import Interest

MOST = 128 * 2**20  # bytes: 16 interests of a million users


class Recent:
    """Kept by the text of the interest, up to `most` bytes; the one unused for longest goes first."""

    def __init__(self, everybody: Callable[[Interest], Doubles], most: int = MOST) -> None:
        self._everybody, self._most = everybody, most
        self._kept: OrderedDict[str, Doubles] = OrderedDict()
        self._looking, self._passing = Lock(), Lock()

    def __call__(self, interest: Interest) -> Doubles:
        """(users,), hidden ones included; it cannot be written to, as all who ask share one array."""
        if (known := self._known(interest.text)) is not None:
            return known
        with self._passing:
            if (known := self._known(interest.text)) is not None:  # somebody asked for the same, a moment earlier
                return known
            found = self._everybody(interest)
            found.flags.writeable = False  # many will read it
            self._keep(interest.text, found)
            return found

    def _known(self, text: str) -> Doubles | None:
        with self._looking:
            if text in self._kept:
                self._kept.move_to_end(text)
            return self._kept.get(text)

    def _keep(self, text: str, found: Doubles) -> None:
        with self._looking:
            self._kept[text] = found
            while sum(each.nbytes for each in self._kept.values()) > self._most:
                self._kept.popitem(last=False)
