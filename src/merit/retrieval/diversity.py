"""A user's list that covers several regions of interest instead of ten shades of the best one.

A cap per cluster, not maximal marginal relevance: it needs no weight between scores and similarities (which are not on
one scale, and would have to be tuned again after each calibration), a person can check it by eye, and a region is then
just what the evaluation counts, a cluster of the label space.
"""

from __future__ import annotations

import numpy as np

from merit.core.errors import DataError
from merit.core.types import Ints
from merit.retrieval.topk import Ranked, require_count


def spread(ranked: Ranked, clusters: Ints, k: int, per_cluster: int = 1) -> Ranked:
    """The k best with at most `per_cluster` of a cluster, then a second such round if the clusters run out, and so on.

    `ranked` is best first and longer than k (ten times is ample); clusters[label] is the label's cluster, and a label
    without one (-1) is a region of its own.
    """
    require_count(k, "labels")
    if per_cluster < 1:
        raise DataError(f"At most {per_cluster} labels of a cluster would leave nothing. Allow 1 or more.")
    regions = np.where(clusters[ranked.rows] >= 0, clusters[ranked.rows], -1 - ranked.rows)
    rounds = _earlier_of_its_kind(regions) // per_cluster
    chosen = np.argsort(rounds, kind="stable")[:k]
    return Ranked(ranked.rows[chosen], ranked.scores[chosen])


def _earlier_of_its_kind(values: Ints) -> Ints:
    """(n,): how often each value has come before."""
    order = np.argsort(values, kind="stable")
    _, starts, sizes = np.unique(values[order], return_index=True, return_counts=True)
    earlier = np.empty(len(values), np.int64)
    earlier[order] = np.arange(len(values)) - np.repeat(starts, sizes)
    return earlier
