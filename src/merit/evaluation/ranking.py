"""Users for a label or a vertical: where do those who wanted it stand among all users?

    places = ranks(blocks, positives)                     # 0 is the top; full ranking, never sampled candidates
    hit_at(places, positives, k=5_000, users=users)       # per target, and pooled

Hit@k is the share of a target's true users among its k highest scores; recall at 1 % is Hit@(1 % of users).
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np

from merit.core.errors import DataError
from merit.core.types import Floats, Ints
from merit.evaluation.uncertainty import Metric, per_user

SHARES = (0.01, 0.05)


@dataclass(frozen=True)
class Positives:
    """Which users truly want which targets (labels, or verticals), each pair once."""

    user: Ints
    target: Ints


def ranks(blocks: Iterable[tuple[Ints, Floats]], positives: Positives) -> Ints:
    """The place of each positive user in the ranking of its target.

    A block is (targets, scores of all users (users, targets)). Equal scores rank the user with the lower number
    first, so a constant score gives the order of users and not a perfect one. Each target must come once.
    """
    places = np.full(len(positives.user), -1, dtype=np.int64)
    order = np.argsort(positives.target, kind="stable")
    targets = positives.target[order]
    for block, scores in blocks:
        first, last = (np.searchsorted(targets, block, side) for side in ("left", "right"))
        for column in np.flatnonzero(last > first).tolist():  # a target nobody wants has nobody to place
            pairs = order[first[column] : last[column]]
            places[pairs] = _places(scores[:, column])[positives.user[pairs]]
    if (places < 0).any():
        missing = np.unique(positives.target[places < 0])
        raise DataError(f"{len(missing):,} targets have positives but no scores, such as {missing[0]}. Score them all.")
    return places


def hit_at(places: Ints, positives: Positives, k: int, users: int) -> dict[int, Metric]:
    """Hit@k by target, as what every user adds to it."""
    return {
        target: _hit(places[chosen], positives.user[chosen], k, users)
        for target in np.unique(positives.target).tolist()
        for chosen in [positives.target == target]
    }


def pooled_hit_at(places: Ints, positives: Positives, k: int, users: int) -> Metric:
    """Hit@k over all pairs of user and target."""
    return _hit(places, positives.user, k, users)


def recall_at_share(places: Ints, positives: Positives, share: float, users: int) -> dict[int, Metric]:
    """Hit@k with k a share of all users, at least one."""
    return hit_at(places, positives, budget(share, users), users)


def budget(share: float, users: int) -> int:
    """Users in that share of all: a whole number, rounded down, and at least one."""
    return max(1, math.floor(share * users + 1e-9))  # 0.05 · 20 is 1, whatever the last bit says


def _places(scores: Floats) -> Ints:
    if np.isnan(scores).any():
        raise DataError("Some scores are not numbers: these users cannot be ranked. Score them again.")
    places = np.empty(len(scores), dtype=np.int64)
    places[np.argsort(-scores, kind="stable")] = np.arange(len(scores))
    return places


def _hit(places: Ints, user: Ints, k: int, users: int) -> Metric:
    return Metric(np.stack([per_user(user, places < k, users), per_user(user, np.ones(len(user)), users)], axis=1))
