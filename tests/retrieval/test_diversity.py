from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from merit.core.errors import DataError
from merit.retrieval.diversity import spread
from merit.retrieval.topk import Ranked


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
    ranked = Ranked(np.array(labels), -np.arange(12.0))
    found = spread(ranked, np.array(clusters), k)
    assert found.rows.tolist() == slow(labels, clusters, k)
    assert found.scores.tolist() == [-labels.index(label) for label in found.rows]


def test_nothing_and_impossible_wishes() -> None:
    nothing = Ranked(np.empty(0, np.int64), np.empty(0))
    assert len(spread(nothing, np.array([0]), 3).rows) == 0
    with pytest.raises(DataError, match="0 labels"):
        spread(nothing, np.array([0]), 0)
