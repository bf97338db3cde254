"""A user's list that covers several regions of interest instead of ten shades of the best one.

A cap per cluster, not maximal marginal relevance: it needs no weight between scores and similarities (which are not on
one scale, and would have to be tuned again after each calibration), a person can check it by eye, and a region is then
just what the evaluation counts, a cluster of the label space.
"""

from __future__ import annotations

import numpy as np
import polars as pl

from merit.core.ragged import Ragged, offsets_of, owners
from merit.core.types import Ints
from merit.retrieval.topk import RankedLists, order_within, require_count


def spread(ranked: RankedLists, clusters: Ints, k: int) -> RankedLists:
    """The k best with at most one of a cluster, then a second such round if the clusters run out, and so on.

    `ranked` are longer than k (ten times is ample); clusters[label] is the label's cluster, and a label without one
    (-1) is a region of its own.
    """
    require_count(k, "labels")
    owner, labels = owners(ranked.labels), ranked.labels.values
    regions = pl.DataFrame({"owner": owner, "region": np.where(clusters[labels] >= 0, clusters[labels], -1 - labels)})
    rounds = regions.select(pl.int_range(pl.len()).over("owner", "region")).to_series().to_numpy()
    chosen, sizes = order_within(owner, np.arange(len(owner)), -rounds, k, len(ranked.users))
    return RankedLists(ranked.users, Ragged(offsets_of(sizes), labels[chosen]), ranked.scores[chosen])
