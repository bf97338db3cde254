"""Trends of labels, against counting by hand."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from scipy.sparse import csr_array

from merit.data.trends import BACK, SURE, WEEK, WINDOWS, ItemTrends, Trends, trends_of, week_of


@given(arrays(np.float64, (14, 3), elements=st.integers(0, 50)))
def test_a_week_knows_the_eight_before_it_and_nothing_later(weekly: np.ndarray) -> None:
    found = trends_of(weekly, weekly.sum(axis=1))
    assert found.shape == (15, 3)
    for week in range(15):
        before = weekly[max(0, week - BACK) : week]
        for label in range(3):
            share = weekly[:, label].sum() / max(weekly.sum(), 1)
            wanted = math.log((before[:, label].sum() + SURE) / (before.sum() * share + SURE))
            assert found[week, label] == pytest.approx(wanted, abs=2e-3)


def test_some_labels_are_judged_against_all() -> None:
    weekly = np.random.default_rng(0).integers(0, 30, (20, 6)).astype(float)
    whole = trends_of(weekly, weekly.sum(axis=1))
    parts = [trends_of(weekly[:, at : at + 2], weekly.sum(axis=1)) for at in (0, 2, 4)]
    assert np.array_equal(np.concatenate(parts, axis=1), whole)


def test_what_rises_is_above_zero_and_a_rare_label_is_as_ever() -> None:
    weekly = np.full((30, 3), 100.0)
    weekly[20:, 0] *= 3
    weekly[:, 2] = 0
    weekly[3, 2] = 1
    found = trends_of(weekly, weekly.sum(axis=1))
    assert found[29, 0] > 0.1 and found[29, 1] < 0
    assert abs(found[29, 2]) < 0.05


def test_weeks_are_counted_from_the_first_event() -> None:
    assert week_of(np.array([0, 99, 100, 100 + WEEK - 1, 100 + WEEK]), 100).tolist() == [0, 0, 0, 0, 1]


@given(st.lists(st.integers(0, 3), min_size=1, max_size=5), st.lists(st.integers(-1, 7), min_size=1, max_size=6))
def test_both_ways_of_asking_give_the_same(weeks: list[int], labels: list[int]) -> None:
    trends = np.random.default_rng(1).standard_normal((4, 5)).astype(np.float16)
    found, asked = Trends(np.array(weeks), trends), np.array(labels)
    wanted = [[float(trends[week, label]) if 0 <= label < 5 else 0.0 for label in labels] for week in weeks]
    assert found.of(asked).tolist() == wanted
    assert found.of(np.broadcast_to(asked, (len(weeks), len(asked)))).tolist() == wanted


@given(arrays(np.float64, (9, 4), elements=st.integers(0, 50)), st.lists(st.integers(0, 12), min_size=1, max_size=5))
def test_trends_of_items_count_the_weeks_before(weekly: np.ndarray, weeks: list[int]) -> None:
    items = np.array([0, 2, 3])
    found, place = ItemTrends.of(weekly).at(np.array(weeks), items)
    for row, week in enumerate(weeks):
        end = min(week, 9)  # beyond the last week it is the last one
        for column, item in enumerate(items):
            wanted = [math.log1p(weekly[max(0, end - window) : end, item].sum()) for window in WINDOWS]
            assert found[place[row], column].tolist() == pytest.approx(wanted, abs=4e-3)


@given(arrays(np.float64, (30, 4), elements=st.integers(0, 50)), st.integers(0, 30))
def test_the_popularity_of_items_in_one_week_is_that_row_of_all(weekly: np.ndarray, week: int) -> None:
    alone = ItemTrends.of_week(csr_array(weekly), week)
    np.testing.assert_array_equal(alone.table, ItemTrends.of(weekly).table[week : week + 1])
