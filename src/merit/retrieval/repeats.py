"""What a label in a user's own history adds to its score: `Propensity.repeats`, in float64 and without torch."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from merit.core.ragged import Ragged, offsets_of, ranges
from merit.core.types import Ints
from merit.retrieval.exact import Doubles


@dataclass(frozen=True)
class Among:
    """What labels in the histories of some users add, label after label."""

    labels: NDArray[np.int32]  # ascending
    users: Ints
    added: Doubles

    def users_with(self, label: int) -> tuple[Ints, Doubles]:
        """Those of them who had a label, and what that adds."""
        ends = np.array([label, label + 1], self.labels.dtype)  # of another type, all labels would be copied for it
        some = slice(*np.searchsorted(self.labels, ends).tolist())
        return self.users[some], self.added[some]


@dataclass(frozen=True)
class Repeats:
    """What all users had, and how much it counts for having it again."""

    had: Ragged
    """By user: the labels of the history."""
    times: NDArray[Any]  # beside had.values
    totals: Doubles
    """By user: all labels of the history, repeats counted."""
    weights: tuple[float, float, float]
    """For being there at all, for the logarithm of how often, for that of the share of the history."""
    of_label: Doubles
    """By label: how much more than the average one it is bought again."""

    @staticmethod
    def of(had: Ragged, times: NDArray[Any], weights: tuple[float, float, float], of_label: Doubles) -> Repeats:
        """Totals are added up from `times`; that of an empty history is one, as shares are of it."""
        owner = np.repeat(np.arange(len(had)), had.lengths())
        totals = np.bincount(owner, weights=times, minlength=len(had)).astype(np.float64)
        return Repeats(had, times, np.maximum(totals, 1), weights, of_label)

    def also(self, users: Ints, labels: Ints, times: Doubles) -> Repeats:
        """With labels that products of a history name, though it does not have them; its length stays as it is."""
        owner = np.concatenate([np.repeat(np.arange(len(self.had)), self.had.lengths()), users])
        order = np.argsort(owner, kind="stable")
        values = np.concatenate([self.had.values, labels.astype(np.int32)])[order]
        had = Ragged(offsets_of(np.bincount(owner, minlength=len(self.had))), values)
        return replace(self, had=had, times=np.concatenate([self.times, times])[order])

    def users_with(self, label: int) -> tuple[Ints, Doubles]:
        """The users who had a label, and what that adds."""
        places = np.flatnonzero(self.had.values == label)
        users = np.searchsorted(self.had.offsets, places, side="right") - 1
        return users, self.added(self.times[places], self.totals[users], self.of_label[label])

    def among(self, rows: Ints) -> Among:
        """The same for many labels and some users (ascending): sorted once, where `users_with` looks through all."""
        had, added = self.had.gather(rows), self.of_users(rows)
        order = np.argsort(had.values, kind="stable")
        return Among(had.values[order], np.repeat(rows, had.lengths())[order], added[order])

    def of_users(self, rows: Ints) -> Doubles:
        """Beside the labels of these users' histories: what having had them adds."""
        places, sizes = ranges(self.had.offsets[rows], self.had.offsets[rows + 1])
        return self.added(
            self.times[places], np.repeat(self.totals[rows], sizes), self.of_label[self.had.values[places]]
        )

    def added(self, times: NDArray[Any], totals: NDArray[Any], of_label: NDArray[Any] | float) -> Doubles:
        """The same for histories of any make; less than once counts by how much, and not at all for nothing."""
        first, often, share = self.weights
        seen = np.maximum(times, 1)
        added = first + often * np.log1p(seen) + share * np.log(seen / totals) + of_label
        counted: Doubles = added * np.minimum(times, 1)
        return counted
