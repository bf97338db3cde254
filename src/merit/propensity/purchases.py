"""What users bought and when, as a window model reads it.

Ages are days before a moment: 0 is the last day before it. A day on which a user bought counts once, whatever the
number of products: a basket is one decision to shop. Nothing here knows of labels or models.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from merit.core.ragged import Ragged, owners, select
from merit.core.types import Ints

Reals = NDArray[np.float64]
Mask = NDArray[np.bool_]
HALF_LIVES = (14, 56, 224)  # days: the last weeks, the season, the year


class Activity(NamedTuple):
    """By user: the days with a purchase, of anything or of some products."""

    counts: Reals  # (users, half-lives): a day counts half with every half-life of its age
    days: Reals  # (users,)
    last: Reals  # (users,): the age of the latest
    first: Reals  # (users,): the age of the earliest
    lines: Reals  # (users,): purchases, several a day

    def gather(self, rows: Any) -> Activity:
        """These users."""
        return Activity(*(values[rows] for values in self))


class Buyers(NamedTuple):
    """The users who bought some of the wanted products, and how."""

    users: Ints  # ascending
    activity: Activity

    def among(self, rows: Ints) -> tuple[Ints, Buyers]:
        """Where they stand among some users (ascending), and the same of these alone."""
        places = np.searchsorted(rows, self.users)
        inside = np.append(rows, -1)[np.minimum(places, len(rows))] == self.users
        kept = np.flatnonzero(inside)
        return places[kept], Buyers(self.users[kept], self.activity.gather(kept))


@dataclass(frozen=True)
class PurchaseHistories:
    """By user: the items bought, oldest first, and their ages."""

    items: Ragged
    ages: NDArray[np.int32]  # beside items.values

    def __len__(self) -> int:
        return len(self.items)

    @staticmethod
    def of(items: Ragged, ages: NDArray[Any], bought: Mask | None = None) -> PurchaseHistories:
        """From the events of histories; None where all of them are purchases."""
        if bought is None or bought.all():
            return PurchaseHistories(items, ages.astype(np.int32))
        return PurchaseHistories(select(items, bought), ages[bought].astype(np.int32))

    def gather(self, rows: Ints) -> PurchaseHistories:
        """These users, in this order."""
        return PurchaseHistories(self.items.gather(rows), self.items.beside(self.ages, rows))

    def before(self, cut: int) -> PurchaseHistories:
        """What was known `cut` days earlier, with ages as they were then."""
        known = self.ages >= cut
        return PurchaseHistories(select(self.items, known), self.ages[known] - cut)

    def bought_between(self, first: int, last: int, wanted: Mask) -> Mask:
        """(users,): whether one of the wanted items (a mask) was bought at an age from `first` to `last`."""
        inside = (self.ages >= first) & (self.ages <= last) & wanted[self.items.values]
        return np.bincount(owners(self.items)[inside], minlength=len(self)) > 0

    def activity(self) -> Activity:
        """Of purchases of anything."""
        return _activity(owners(self.items), self.ages, len(self))

    def buyers(self, wanted: Mask) -> Buyers:
        """Of the wanted items."""
        places = np.flatnonzero(wanted[self.items.values])
        owner = owners(self.items)[places]
        first = np.flatnonzero(np.diff(owner, prepend=-1))
        place = np.repeat(np.arange(len(first)), np.diff(np.append(first, len(owner))))
        return Buyers(owner[first], _activity(place, self.ages[places], len(first)))


def _activity(owner: Ints, ages: NDArray[np.int32], users: int) -> Activity:
    """`owner` ascends, and ages fall within an owner."""
    lines = np.bincount(owner, minlength=users).astype(np.float64)
    fresh = np.ones(len(owner), dtype=bool)
    fresh[1:] = (owner[1:] != owner[:-1]) | (ages[1:] != ages[:-1])
    owner, age = owner[fresh], ages[fresh].astype(np.float64)
    counts = [np.bincount(owner, weights=np.exp2(-age / half), minlength=users) for half in HALF_LIVES]
    days = np.bincount(owner, minlength=users)
    stops = np.cumsum(days)
    padded = np.append(age, 0.0)
    last, first = padded[np.maximum(stops - 1, 0)], padded[np.minimum(stops - days, len(age))]
    nothing = days == 0
    last[nothing] = first[nothing] = 0.0
    return Activity(np.stack(counts, axis=1), days.astype(np.float64), last, first, lines)


def exposure(span: float) -> Reals:
    """(half-lives,): the counts of a user who bought on each of the last `span` days."""
    rates = np.log(2) / np.array(HALF_LIVES)
    days: Reals = (1 - np.exp(-rates * span)) / (1 - np.exp(-rates))
    return days
