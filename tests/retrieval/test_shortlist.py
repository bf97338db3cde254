from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from merit.core.errors import DamagedArtifact, DataError
from merit.retrieval import shortlist
from tests.retrieval.worlds import KINDS, labels_of, naive_best, naive_scores, per_user, users_of, world

LIVE = np.ones(30, bool)


@settings(max_examples=50, deadline=None)
@given(
    st.integers(0, 2**32),
    st.sampled_from(KINDS),
    st.integers(1, 9),
    st.integers(1, 6),
    st.integers(1, 12),
    st.integers(1, 40),
    st.sampled_from([0, 4]),
)
def test_labels_of_the_best_regions_are_ranked_as_one_by_one(
    seed: int, kind: str, clusters: int, regions: int, k: int, block: int, factors: int
) -> None:
    """The regions are those whose first live label scores best."""
    scorer = world(seed, kind=kind, threads=2, block=block, factors=factors)
    rng = np.random.default_rng(seed)
    of_label, live = rng.integers(0, clusters, 30), rng.random(30) < 0.8
    live[0] = True
    users = rng.permutation(40)[:7]
    slow = naive_scores(scorer, users_of(scorer), labels_of(scorer))
    candidates = shortlist.labels_of_regions(scorer, users, of_label, regions, live)
    lists = [one for part in shortlist.interests(scorer, users, of_label, regions, k, live) for one in per_user(part)]
    firsts = {cluster: np.flatnonzero(live & (of_label == cluster))[0] for cluster in set(of_label[live].tolist())}
    for at, user in enumerate(users):
        by_score = sorted((-slow[user, first], first, cluster) for cluster, first in firsts.items())
        mask = live & np.isin(of_label, [cluster for _, _, cluster in by_score[:regions]])
        assert sorted(candidates[at].tolist()) == np.flatnonzero(mask).tolist()
        assert lists[at].rows.tolist() == naive_best(slow[user], k, mask)
        assert lists[at].scores == pytest.approx(slow[user, lists[at].rows], rel=1e-9, abs=1e-9)


def test_impossible_wishes_and_damaged_projections_are_refused() -> None:
    scorer, one_region = world(6), np.zeros(30, int)
    with pytest.raises(DataError, match="0 labels"):
        shortlist.interests(scorer, np.arange(3), one_region, 1, 0, LIVE)
    with pytest.raises(DataError, match="0 regions"):
        shortlist.interests(scorer, np.arange(3), one_region, 0, 2, LIVE)
    with pytest.raises(DataError, match="no row 40"):
        shortlist.interests(scorer, np.array([40]), one_region, 1, 2, LIVE)
    scorer.labels.projections.values[2] = np.nan
    with pytest.raises(DamagedArtifact, match="Row 2 of labels"):
        next(shortlist.interests(scorer, np.arange(3), one_region, 1, 2, LIVE))
