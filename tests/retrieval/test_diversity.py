from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from merit.core.errors import DataError
from merit.core.ragged import Ragged
from merit.retrieval.diversity import spread
from merit.retrieval.topk import RankedLists
from tests.retrieval.worlds import per_user


def slow(labels: list[int], clusters: list[int], k: int) -> list[int]:
    """Round after round through what is left, best first, each cluster at most so often."""
    chosen, left = [], list(labels)
    while left:
        taken: dict[int, int] = {}
        for label in list(left):
            region = clusters[label] if clusters[label] >= 0 else -1 - label
            if taken.get(region, 0) < 1:
                taken[region] = taken.get(region, 0) + 1
                chosen.append(label)
                left.remove(label)
    return chosen[:k]


@settings(max_examples=100, deadline=None)
@given(
    st.permutations(range(12)),
    st.lists(st.integers(-1, 3), min_size=12, max_size=12),
    st.integers(1, 15),
)
def test_against_rounds_by_hand(labels: list[int], clusters: list[int], k: int) -> None:
    turned = labels[::-1]
    lists = RankedLists(np.array([3, 8]), Ragged.of([labels, turned]), np.tile(-np.arange(12.0), 2))
    for row, ranked in zip((labels, turned), per_user(spread(lists, np.array(clusters), k)), strict=True):
        assert ranked.rows.tolist() == slow(row, clusters, k)
        assert ranked.scores.tolist() == [-row.index(label) for label in ranked.rows]


def test_nothing_and_impossible_wishes() -> None:
    nothing = RankedLists(np.arange(1), Ragged.of([[]]), np.empty(0))
    assert len(spread(nothing, np.array([0]), 3).scores) == 0
    with pytest.raises(DataError, match="0 labels"):
        spread(nothing, np.array([0]), 0)
