"""How many of the ranked users the audience takes."""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

from merit.campaign.combine import Reals
from merit.campaign.request import Budget, Count, Economics, Percentile, Probability, Size, Value
from merit.errors import DataError

HAIR = 1e-9  # 0.3 / 0.1 is not quite 3


def ranking(scores: Reals, eligible: NDArray[np.bool_]) -> NDArray[np.int64]:
    """Eligible rows, best first; equal scores go to the lower row."""
    rows = np.flatnonzero(eligible)
    return rows[np.argsort(-scores[rows], kind="stable")]


def passed_over(size: Size, scores: Reals) -> int:
    """How many of the users whose `scores` come best first are too likely to be asked."""
    return int((scores > size.at_most).sum()) if isinstance(size, Probability) else 0


def taken(size: Size, scores: Reals, contacted: NDArray[np.bool_], economics: Economics | None) -> int:
    """How many of the users whose `scores` come best first; `contacted`: not in the holdout nor in the control."""
    match size:
        case Count():
            if size.users > len(scores):
                raise DataError(
                    f"{len(scores):,} users are eligible, and {size.users:,} are asked for. Ask for fewer, or ease a "
                    "rule (`merit audience preview` shows what each of them takes)."
                )
            return size.users
        case Percentile():
            return math.floor(len(scores) * size.percent / 100 + HAIR)
        case Probability():
            return int((scores >= size.at_least).sum())
        case Budget():
            assert economics is not None
            affordable = math.floor(min(size.budget / economics.cost_per_contact, len(scores)) + HAIR)
            return int((np.cumsum(contacted) <= affordable).sum())
        case Value():
            assert economics is not None
            return int((gain(scores, economics) > 0).sum())


def gain(scores: Reals, economics: Economics) -> Reals:
    """What contacting each user is expected to bring, less what it costs."""
    return scores * economics.caused * (economics.value_per_conversion or 0) - economics.cost_per_contact
