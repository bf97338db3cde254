"""What a label in a user's own history adds to its score: `Propensity.repeats`, in float64 and without torch."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from merit.data.ragged import Ragged, ranges
from merit.retrieval.exact import Doubles
from merit.types import Ints


@dataclass(frozen=True)
class Repeats:
    had: Ragged
    """By user: the labels of the history."""
    times: NDArray[np.int32]  # beside had.values
    totals: Doubles  # beside had.values: all labels of that user's history, repeats counted
    weights: tuple[float, float, float]
    """For being there at all, for the logarithm of how often, for that of the share of the history."""
    of_label: Doubles
    """By label: how much more than the average one it is bought again."""

    @staticmethod
    def of(had: Ragged, times: NDArray[np.int32], weights: tuple[float, float, float], of_label: Doubles) -> Repeats:
        owner = np.repeat(np.arange(len(had)), had.lengths())
        totals = np.bincount(owner, weights=times, minlength=len(had)).astype(np.float64)[owner]
        return Repeats(had, times, totals, weights, of_label)

    def users_with(self, label: int) -> tuple[Ints, Ints]:
        """The users who had a label, and its places in the histories. A phrase, -1, nobody had."""
        places = np.flatnonzero(self.had.values == label) if label >= 0 else np.zeros(0, np.int64)
        return np.searchsorted(self.had.offsets, places, side="right") - 1, places

    def of_users(self, rows: Ints) -> Doubles:
        """Beside the labels of these users' histories: what having had them adds."""
        return self.at(ranges(self.had.offsets[rows], self.had.offsets[rows + 1])[0])

    def at(self, places: Ints) -> Doubles:
        """What the labels at these places of the histories add."""
        return self.added(self.times[places], self.totals[places], self.had.values[places])

    def added(self, times: NDArray[Any], totals: NDArray[Any], labels: NDArray[Any]) -> Doubles:
        """The same for histories of any make; nothing where a label is not there."""
        first, often, share = self.weights
        seen = np.maximum(times, 1)
        added = first + often * np.log1p(seen) + share * np.log(seen / totals) + self.of_label[labels]
        return np.where(times > 0, added, 0.0)
