"""The popularity of each label in recent weeks against its usual popularity: what a history alone does not tell.

A trend is the logarithm of the events of training users in the eight weeks before, over the number expected. Both
counts start at ten, so that a rare label has no trend. A week looks back only, so that nothing is known too early.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from merit.core.types import Floats, Ints

WEEK = 7 * 86_400_000  # milliseconds
BACK = 8  # weeks of a trend
SURE = 10.0  # events that both counts of a trend start at
WINDOWS = (2, 8, 26)  # weeks in which events of an item are counted
Counts = NDArray[np.float64]


@dataclass(frozen=True)
class Trends:
    """By user, the week for which labels are scored; and the trends of all weeks."""

    weeks: Ints  # (users,): rows of the table
    table: NDArray[np.float16]  # (weeks, labels)

    def gather(self, rows: Ints) -> Trends:
        """These users, in this order; the table is not copied."""
        return Trends(self.weeks[rows], self.table)

    def of(self, labels: Ints) -> Floats:
        """(users, labels), of labels (labels,) or (users, labels); zero for labels newer than the table."""
        there = (labels >= 0) & (labels < self.table.shape[1])
        if labels.ndim > 1:
            trends = self.table[self.weeks[:, None], np.where(there, labels, 0)]
        else:
            weeks, place = np.unique(self.weeks, return_inverse=True)
            trends = self.table[weeks][:, np.where(there, labels, 0)][place]
        return np.where(there, trends, 0).astype(np.float32)


@dataclass(frozen=True)
class ItemTrends:
    """How often training users had each item in the weeks before: the logarithm of one more, by window."""

    table: NDArray[np.float16]  # (weeks, items, windows)

    @staticmethod
    def of(weekly: Counts) -> ItemTrends:
        """From events (weeks, items): a row for every week, and for the one that begins after them."""
        return ItemTrends(np.stack([np.log1p(_recent(weekly, weeks)).astype(np.float16) for weeks in WINDOWS], -1))

    @staticmethod
    def of_week(weekly: Any, week: int) -> ItemTrends:
        """The row of one week alone, from events (weeks, items), sparse."""
        counts = [weekly[max(0, week - back) : week].sum(axis=0) for back in WINDOWS]
        return ItemTrends(np.stack([np.log1p(count)[None].astype(np.float16) for count in counts], -1))

    def at(self, weeks: Ints, items: Ints) -> tuple[Floats, Ints]:
        """(different weeks, items, windows), and the place of each row's week; weeks beyond the last are the last."""
        distinct, place = np.unique(np.minimum(weeks, len(self.table) - 1), return_inverse=True)
        whole = self.table[distinct]
        chosen = whole if len(items) == self.table.shape[1] else whole[:, items]
        return chosen.astype(np.float32), place


def week_of(times: Ints, first: int) -> Ints:
    """Weeks since `first`, the time of the first event."""
    return np.maximum(0, (times - first) // WEEK)


def trends_of(weekly: Counts, total: Counts) -> NDArray[np.float16]:
    """(weeks + 1, labels): a row for every week, and for the one that begins after them.

    From events (weeks, labels) of some labels in each week, and (weeks,) of all labels.
    """
    recent, everything = _recent(weekly), _recent(total[:, None])
    expected = everything * (weekly.sum(axis=0) / max(total.sum(), 1))
    trends: NDArray[np.float16] = np.log((recent + SURE) / (expected + SURE)).astype(np.float16)
    return trends


def _recent(weekly: Counts, weeks: int = BACK) -> Counts:
    """(weeks + 1, …): events of so many weeks before each."""
    before = np.concatenate([np.zeros((1, weekly.shape[1])), np.cumsum(weekly, axis=0)])
    recent: Counts = before - before[np.maximum(0, np.arange(len(before)) - weeks)]
    return recent
