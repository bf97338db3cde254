from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from merit.core.errors import DataError
from merit.retrieval.topk import candidates, order, order_within, require_count


@settings(max_examples=200, deadline=None)
@given(st.integers(0, 2**32), st.integers(1, 40), st.integers(1, 50), st.sampled_from([0.0, 0.01, 0.5, 3.0]))
def test_no_error_within_the_bound_loses_a_row(seed: int, rows: int, n: int, bound: float) -> None:
    rng = np.random.default_rng(seed)
    exact = rng.integers(0, 6, rows) / 4  # exact in float32, with many ties
    worst_case = rng.choice([-1, 1], rows) * bound * (rng.random(rows) < 0.9)
    near = candidates((exact + worst_case).astype(np.float32), n, bound * (1 + 1e-6) + 1e-6)
    best = sorted(range(rows), key=lambda row: (-exact[row], row))[:n]
    assert set(best) <= set(near.tolist())
    assert near[order(near, exact[near], n)].tolist() == best


def test_without_the_margin_a_row_is_lost() -> None:
    exact, rough = np.array([1.0, 1.1]), np.array([1.05, 1.04], np.float32)
    assert candidates(rough, 1, 0.0).tolist() == [0]
    near = candidates(rough, 1, 0.061)
    assert near[order(near, exact[near], 1)].tolist() == [1]


@settings(max_examples=60, deadline=None)
@given(st.integers(0, 2**32), st.integers(0, 60), st.integers(1, 9))
def test_several_owners_against_one_by_one(seed: int, pairs: int, n: int) -> None:
    rng = np.random.default_rng(seed)
    owner, scores = rng.integers(0, 5, pairs), rng.integers(0, 3, pairs).astype(float)
    rows = rng.permutation(pairs)
    places, sizes = order_within(owner, rows, scores, n, 5)
    wanted = [
        sorted((at for at in range(pairs) if owner[at] == one), key=lambda at: (-scores[at], rows[at]))[:n]
        for one in range(5)
    ]
    assert places.tolist() == [at for own in wanted for at in own]
    assert sizes.tolist() == [len(own) for own in wanted]


def test_none_at_all_cannot_be_asked_for() -> None:
    require_count(1, "users")
    with pytest.raises(DataError, match="Ask for 1 or more"):
        require_count(0, "users")
