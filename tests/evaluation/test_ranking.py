"""Full rankings of users, with ties that flatter nobody."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from merit.core.errors import DataError
from merit.evaluation.ranking import Positives, budget, hit_at, pooled_hit_at, ranks, recall_at_share


@settings(max_examples=40, deadline=None)
@given(st.integers(0, 2**32), st.integers(1, 5))
def test_ranks_against_counting(seed: int, width: int) -> None:
    rng = np.random.default_rng(seed)
    scores = rng.integers(0, 4, (12, 5)).astype(np.float32)  # many ties
    users, targets = np.nonzero(rng.random((12, 5)) < 0.4)
    blocks = [(np.arange(5)[at : at + width], scores[:, at : at + width]) for at in range(0, 5, width)]
    places = ranks(reversed(blocks), Positives(users, targets))
    for user, target, place in zip(users, targets, places, strict=True):
        column = scores[:, target]
        assert place == (column > column[user]).sum() + (column[:user] == column[user]).sum()


def test_a_constant_score_is_no_better_than_the_order_of_users() -> None:
    users = 1_000
    rng = np.random.default_rng(0)
    wanted = np.sort(rng.choice(users, 200, replace=False))
    positives = Positives(wanted, np.zeros(200, dtype=np.int64))
    flat = ranks([(np.array([0]), np.zeros((users, 1), dtype=np.float32))], positives)
    assert hit_at(flat, positives, 100, users)[0].value == pytest.approx((wanted < 100).sum() / 200)
    perfect = np.isin(np.arange(users), wanted).astype(np.float32)[:, None]
    best = ranks([(np.array([0]), perfect)], positives)
    assert hit_at(best, positives, 200, users)[0].value == 1
    assert recall_at_share(best, positives, 0.05, users)[0].value == 50 / 200


def test_targets_are_counted_apart_and_pooled() -> None:
    scores = np.array([[3, 0], [2, 1], [1, 2]], dtype=np.float32)
    positives = Positives(np.array([0, 1, 0]), np.array([0, 0, 1]))
    places = ranks([(np.array([0, 1]), scores)], positives)
    assert places.tolist() == [0, 1, 2]
    by = hit_at(places, positives, 1, 3)
    assert (by[0].value, by[1].value, pooled_hit_at(places, positives, 1, 3).value) == (0.5, 0, 1 / 3)
    assert (by[0].users, by[1].users) == (2, 1)


def test_budgets_are_whole_users() -> None:
    assert [budget(0.05, users) for users in (20, 39, 40, 5)] == [1, 1, 2, 1]
    assert budget(0.01, 20_000) == 200


def test_missing_and_broken_scores_are_refused() -> None:
    positives = Positives(np.array([0, 1]), np.array([0, 7]))
    with pytest.raises(DataError, match="no scores, such as 7"):
        ranks([(np.array([0]), np.zeros((2, 1), dtype=np.float32))], positives)
    with pytest.raises(DataError, match="not numbers"):
        ranks([(np.array([0, 7]), np.full((2, 2), np.nan, dtype=np.float32))], positives)
