"""Users for an interest: how many of those who wanted it are among the few the scores put first?

    figures = measure(scores_of_labels, truth, shares)

Hit@k by vertical, where a user's score for a vertical is the sum over labels of P(vertical | label) · score, and recall
over all pairs of user and label. k is a share of the users. Every user is ranked, never a sample of candidates.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

import numpy as np
from numpy.typing import NDArray

from merit.core.types import Floats, Ints
from merit.evaluation.classification import MetricKey, Metrics
from merit.evaluation.predictions import Truth, owners
from merit.evaluation.ranking import Positives, budget, ranks
from merit.evaluation.uncertainty import Metric, Reals, per_user

Scores = Callable[[Ints], Floats]  # labels → (examples, labels), comparable across users, additive over labels

SHARES = (0.01, 0.02, 0.05, 0.1, 0.2)
BLOCK = 512  # labels scored at a time


def hit(share: float, vertical: str = "") -> MetricKey:
    """The key of Hit@k for a vertical; of recall over pairs of user and label without one; "all" is the mean."""
    return MetricKey("hit", f"{share:.0%}", vertical=vertical)


MEAN = "all"


def measure(score: Scores, truth: Truth, shares: Floats) -> Metrics:
    """`shares`: P(vertical | label), (labels, verticals)."""
    totals = np.zeros((len(truth), len(truth.verticals)), dtype=np.float64)
    pairs = Positives(owners(truth.gold), truth.gold.values.astype(np.int64))
    places = ranks(_blocks(score, truth.labels, shares, totals), pairs)
    wanted = np.unique(np.stack([pairs.user, truth.vertical[pairs.target]]), axis=1)
    groups = Positives(wanted[0], wanted[1])
    group_places = ranks([(np.arange(len(truth.verticals)), totals.astype(np.float32))], groups)
    found: Metrics = {}
    for share in SHARES:
        k = budget(share, len(truth))
        found[hit(share)] = _hits(places < k, pairs, truth)
        columns = []
        for number, name in enumerate(truth.verticals):
            own = groups.target == number
            each = _hits((group_places < k)[own], Positives(groups.user[own], groups.target[own]), truth)
            found[hit(share, name)] = each
            columns.append(each.columns)
        found[hit(share, MEAN)] = Metric(np.concatenate(columns, axis=1), mean_rate)
    return found


def _blocks(score: Scores, labels: int, shares: Floats, totals: Reals) -> Iterator[tuple[Ints, Floats]]:
    """Scores block by block; on the way they are added up by vertical."""
    for at in range(0, labels, BLOCK):
        block = np.arange(at, min(at + BLOCK, labels))
        scores = score(block)
        totals += scores.astype(np.float64) @ shares[block]
        yield block, scores


def _hits(found: NDArray[np.bool_], pairs: Positives, truth: Truth) -> Metric:
    user = truth.user[pairs.user]
    return Metric(np.stack([per_user(user, found, truth.users), per_user(user, np.ones(len(user)), truth.users)], 1))


def mean_rate(sums: Reals) -> Reals:
    """The mean over verticals of a share each; those that nobody wanted are left out."""
    with np.errstate(invalid="ignore", divide="ignore"):
        each = np.where(sums[..., 1::2] > 0, sums[..., 0::2] / sums[..., 1::2], np.nan)
    mean: Reals = np.nanmean(each, axis=-1)
    return mean
