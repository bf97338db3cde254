"""Baselines: what they say, how they break ties, what they never say."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from merit.evaluation.classification import MetricKey, measure
from merit.evaluation.predictions import check
from merit.evaluation.trivial import (
    BASELINES,
    history_frequency,
    history_frequency_and_popularity,
    most_popular,
    popular,
    trivial,
)
from tests.evaluation.worlds import world

POPULARITY = np.array([5, 9, 9, 0, 1, 7] + [0] * 30)


def test_most_frequent_first_then_popular_then_lower_id() -> None:
    truth = world([[0]], [[0, 4, 2, 1, 3, 5]], counts=[1, 3, 1, 1, 1, 2])
    assert history_frequency(truth, POPULARITY).ranked[0].tolist() == [4, 5, 1, 2, 0, 3]  # type: ignore[index]
    assert trivial(truth, POPULARITY).free[0].tolist() == [4, 5, 1, 2, 0]
    assert trivial(truth, POPULARITY).ranked is None


def test_trivial_counts_purchases_only() -> None:
    truth = replace(world([[0]], [[0, 4]], counts=[9, 1]), purchases=np.array([0, 1], dtype=np.int32))
    assert trivial(truth, POPULARITY).free[0].tolist() == [4]
    assert history_frequency(truth, POPULARITY).free[0].tolist() == [0, 4]


def test_popularity_fills_up_without_repeats() -> None:
    truth = world([[0], [0]], [[5, 3], []])
    lists = history_frequency_and_popularity(truth, POPULARITY, budget=4).ranked
    assert lists is not None
    assert [lists[0].tolist(), lists[1].tolist()] == [[5, 3, 1, 2], [1, 2, 5, 0]]
    assert popular(truth, POPULARITY).free[0].tolist() == most_popular(POPULARITY, 5).tolist() == [1, 2, 5, 0, 4]


@settings(max_examples=40, deadline=None)
@given(st.lists(st.lists(st.integers(0, 35), max_size=30, unique=True), min_size=1, max_size=5), st.integers(0, 2**32))
def test_every_baseline_against_sorting(histories: list[list[int]], seed: int) -> None:
    rng = np.random.default_rng(seed)
    amounts = rng.integers(1, 4, sum(map(len, histories))).tolist()
    truth, popularity = world([[0] for _ in histories], histories, counts=amounts), rng.integers(0, 3, 36)
    everywhere = sorted(np.flatnonzero(popularity).tolist(), key=lambda label: (-popularity[label], label))
    for place, history in enumerate(histories):
        start = truth.history.offsets[place]
        often = dict(zip(history, amounts[start : start + len(history)], strict=True))
        own = sorted(history, key=lambda label: (-often[label], -popularity[label], label))[:20]
        filled = [*own, *(label for label in everywhere if label not in own)][:20]
        assert history_frequency(truth, popularity).at(20)[place].tolist() == own
        assert history_frequency_and_popularity(truth, popularity).at(20)[place].tolist() == filled
        assert popular(truth, popularity).at(20)[place].tolist() == everywhere[:20]


@pytest.mark.parametrize("name", BASELINES)
def test_all_fit_the_evaluator(name: str) -> None:
    truth = world([[0], [5]], [[0, 1], []])
    predictions = BASELINES[name](truth, POPULARITY)
    check(predictions, truth)
    assert predictions.method == name
    found = measure(predictions, truth)
    assert 0 <= found[MetricKey("recall", "exact", 20)].value <= 1
    assert found[MetricKey("predictions")].value <= 5
