"""Several interests as one score for each user.

How interests go together in one person is not known: the model tells each of them by itself. `score` takes them as
independent given the user; `low` and `high` are what it could be at the least and at the most, whatever goes with what
(Fréchet's bounds).
"""

from __future__ import annotations

from collections.abc import Iterable
from itertools import chain
from typing import Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

Reals = NDArray[np.float64]
How = Literal["any", "all", "weighted"]


class CombinedScores(NamedTuple):
    """The score of each user and its bounds, which are the score itself for one interest and for weighted ones."""

    score: Reals  # (users,)
    low: Reals
    high: Reals


def combined(interests: Iterable[tuple[Reals, float]], how: How) -> CombinedScores:
    """`interests`: probabilities of all users and a weight, one interest at a time: they need not fit in memory."""
    parts = iter(interests)
    first, weight = next(parts)
    if (second := next(parts, None)) is None:
        return CombinedScores(first, first, first)
    score, low, high = {"any": _log_none(first), "all": first, "weighted": weight * first}[how], first, first
    total, count = weight, 1
    for each, own in chain([second], parts):
        match how:
            case "any":
                score, low, high = score + _log_none(each), np.maximum(low, each), high + each
            case "all":
                score, low, high = score * each, low + each, np.minimum(high, each)
            case "weighted":
                score = score + own * each
        total, count = total + own, count + 1
    match how:
        case "any":
            return CombinedScores(-np.expm1(score), low, np.minimum(high, 1.0))
        case "all":
            return CombinedScores(score, np.maximum(low - (count - 1), 0.0), high)
        case "weighted":  # an offer about one interest, drawn by weight: which others go with it does not matter
            mean = score / total
            return CombinedScores(mean, mean, mean)


def _log_none(probability: Reals) -> Reals:
    """The logarithm of the chance of not wanting it."""
    with np.errstate(divide="ignore"):  # a probability of one is allowed
        return np.log1p(-probability)
