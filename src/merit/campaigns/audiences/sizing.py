"""How many of the ranked users the audience takes, and which.

Nobody is ranked for it: sorted scores say how many are above any of them, and the last score that is in says who is in.
That is a fraction of the time of sorting users.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from merit.campaigns.audiences.combine import Reals
from merit.campaigns.audiences.request import (
    BudgetSize,
    CountSize,
    Economics,
    PercentileSize,
    ProbabilitySize,
    Size,
    ValueSize,
)
from merit.core.errors import DataError

Rows = NDArray[np.int64]
Mask = NDArray[np.bool_]
Contacted = Callable[[Rows], Mask]  # which of these rows are neither in the holdout nor in the control
HAIR = 1e-9  # 0.3 / 0.1 is not quite 3
FIRST = 65_536  # users who are asked at first whether they are contacted


def cut(size: Size, scores: Reals, falling: Reals, contacted: Contacted, economics: Economics | None) -> slice:
    """Which places of the ranking the audience has; `falling` are the scores best first."""
    if isinstance(size, BudgetSize):
        return slice(0, affordable(size, scores, falling, contacted, economics))
    return slice(passed_over(size, falling), taken(size, falling, economics))


def members(scores: Reals, falling: Reals, part: slice) -> Mask:
    """Who is at these places of the ranking, without ranking anybody."""
    found = np.zeros(len(scores), dtype=bool)
    if part.start < part.stop:
        first, last = falling[part.start], falling[part.stop - 1]
        found[(scores < first) & (scores > last)] = True
        for score in {first, last}:  # equal scores go to the lower row
            ahead = int((falling > score).sum())
            found[np.flatnonzero(scores == score)[max(0, part.start - ahead) : part.stop - ahead]] = True
    return found


def ranking(scores: Reals, eligible: Mask) -> Rows:
    """Eligible rows, best first; equal scores go to the lower row."""
    rows = np.flatnonzero(eligible)
    return rows[np.argsort(-scores[rows], kind="stable")]


def passed_over(size: Size, falling: Reals) -> int:
    """How many of the users are too likely to be asked."""
    return int((falling > size.at_most).sum()) if isinstance(size, ProbabilitySize) else 0


def taken(
    size: CountSize | PercentileSize | ProbabilitySize | ValueSize, falling: Reals, economics: Economics | None
) -> int:
    """How many of the users whose scores are `falling`."""
    match size:
        case CountSize():
            if size.users > len(falling):
                raise DataError(
                    f"{len(falling):,} users are eligible, and {size.users:,} are asked for. Ask for fewer, or ease a "
                    "rule (`merit audience preview` shows what each of them takes)."
                )
            return size.users
        case PercentileSize():
            return math.floor(len(falling) * size.percent / 100 + HAIR)
        case ProbabilitySize():
            return int((falling >= size.at_least).sum())
        case ValueSize():
            assert economics is not None
            return int((gain(falling, economics) > 0).sum())


def affordable(
    size: BudgetSize, scores: Reals, falling: Reals, contacted: Contacted, economics: Economics | None
) -> int:
    """As many as there are before one contact more than the money is good for. Only users so far are asked for arms."""
    assert economics is not None
    most = math.floor(min(size.budget / economics.cost_per_contact, len(falling)) + HAIR)
    users = min(len(falling), max(FIRST, most))
    while True:
        asked = np.cumsum(contacted(ranking(scores, members(scores, falling, slice(0, users)))))
        if users == len(falling) or asked[-1] > most:
            return int((asked <= most).sum())
        users = min(len(falling), 2 * users)


def gain(scores: Reals, economics: Economics) -> Reals:
    """What contacting each user is expected to bring, less what it costs."""
    return scores * economics.caused * (economics.value_per_conversion or 0) - economics.cost_per_contact
