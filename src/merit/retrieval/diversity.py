"""A user's list that covers several regions of interest instead of ten shades of the best one.

A cap per cluster, not maximal marginal relevance: it needs no weight between scores and similarities (which are not on
one scale, and would have to be tuned again after each calibration), a person can check it by eye, and a region is then
just what the evaluation counts, a cluster of the label space.
"""

from __future__ import annotations

from collections import Counter

import numpy as np

from merit.core.types import Ints
from merit.retrieval.topk import Ranked, require_count


def spread(ranked: Ranked, clusters: Ints, k: int) -> Ranked:
    """The k best with at most one of a cluster, then a second such round if the clusters run out, and so on.

    `ranked` is best first and longer than k (ten times is ample); clusters[label] is the label's cluster, and a label
    without one (-1) is a region of its own.
    """
    require_count(k, "labels")
    regions = np.where(clusters[ranked.rows] >= 0, clusters[ranked.rows], -1 - ranked.rows)
    rounds, earlier = np.empty(len(regions), np.int64), Counter[int]()
    for place, region in enumerate(regions.tolist()):
        rounds[place] = earlier[region]
        earlier[region] += 1
    chosen = np.argsort(rounds, kind="stable")[:k]
    return Ranked(ranked.rows[chosen], ranked.scores[chosen])
