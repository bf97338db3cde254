"""What some users had more often than all of them: the share who had a label here, over the share everywhere."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from merit.core.ragged import Ragged
from merit.core.types import Ints
from merit.retrieval.exact import Doubles

ENOUGH = 20  # users who had a label, below which its index is chance


@dataclass(frozen=True)
class OverIndexed:
    """The highest index first; each column is beside `labels`."""

    labels: Ints
    share: Doubles
    base: Doubles
    index: Doubles


@dataclass(frozen=True)
class Histories:
    """What all users had, out of so many labels: the measure for any group of them."""

    had: Ragged
    """By user: the labels of the history."""
    labels: int

    def over_indexed(self, rows: Ints, live: NDArray[np.bool_], k: int, at_least: int) -> OverIndexed:
        """Up to k live labels that these users, each given once and `at_least` so many of them, had more often."""
        counts = self.having_had(rows)
        here = counts / max(1, len(rows))
        base = self.owners / len(self.had)
        enough = live & (self.owners >= ENOUGH) & (counts >= at_least)
        index = np.where(enough, here / np.maximum(base, 1e-12), 0)
        best = np.lexsort((np.arange(len(index)), -index))[:k]
        best = best[index[best] > 1]
        return OverIndexed(best, here[best], base[best], index[best])

    @cached_property
    def owners(self) -> Ints:
        """By label: users who had it."""
        return np.bincount(self.had.values, minlength=self.labels)

    def having_had(self, rows: Ints) -> Ints:
        """By label: those of these users who had it. Where they are most of all, the others are counted."""
        most = 2 * len(rows) > len(self.had)
        counted = np.delete(np.arange(len(self.had)), rows) if most else rows
        counts = np.bincount(self.had.take(counted)[0], minlength=self.labels)
        return self.owners - counts if most else counts
