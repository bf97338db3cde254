"""How popular a label was lately, against always: what everybody begins to buy, a history alone does not know.

By week, the logarithm of how many events of training users had the label in the eight weeks before, over how many one
would expect. A label that is rare is as popular as ever until there is evidence: both counts begin at ten. A week looks
back only, so that nothing is known too early.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from merit.core.types import Floats, Ints

WEEK = 7 * 86_400_000  # milliseconds
BACK = 8  # weeks
SURE = 10.0  # events
Counts = NDArray[np.float64]


@dataclass(frozen=True)
class Trends:
    """Users, each asked about in a week, and what is new in it."""

    weeks: Ints  # by user: a row of the trends
    trends: NDArray[np.float16]  # (weeks, labels)

    def part(self, start: int, stop: int) -> Trends:
        """Users from start to stop. The trends are those of all, and not copied."""
        return Trends(self.weeks[start:stop], self.trends)

    def gather(self, rows: NDArray[np.int64]) -> Trends:
        """These users, in this order. The trends are those of all, and not copied."""
        return Trends(self.weeks[rows], self.trends)

    def of(self, labels: Ints) -> Floats:
        """(users, labels), of labels (labels,) or (users, labels). Nothing is new of what training did not know."""
        there = (labels >= 0) & (labels < self.trends.shape[1])
        if labels.ndim > 1:
            found = self.trends[self.weeks[:, None], np.where(there, labels, 0)]
        else:
            weeks, place = np.unique(self.weeks, return_inverse=True)
            found = self.trends[weeks][:, np.where(there, labels, 0)][place]
        return np.where(there, found, 0).astype(np.float32)


def week_of(times: Ints, first: int) -> Ints:
    """Weeks since `first`, the time of the first event."""
    return np.maximum(0, (times - first) // WEEK)


def trends_of(weekly: Counts, all_: Counts) -> NDArray[np.float16]:
    """(weeks + 1, labels): a row for every week, and for the one that begins after them.

    From events (weeks, labels) of some labels in each week, and (weeks,) of all labels.
    """
    recent, everything = _recent(weekly), _recent(all_[:, None])
    expected = everything * (weekly.sum(axis=0) / max(all_.sum(), 1))
    found: NDArray[np.float16] = np.log((recent + SURE) / (expected + SURE)).astype(np.float16)
    return found


def _recent(weekly: Counts) -> Counts:
    """(weeks + 1, …): events of the weeks before each."""
    before = np.concatenate([np.zeros((1, weekly.shape[1])), np.cumsum(weekly, axis=0)])
    recent: Counts = before - before[np.maximum(0, np.arange(len(before)) - BACK)]
    return recent
