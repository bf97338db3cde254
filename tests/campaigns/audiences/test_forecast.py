"""Intervals that hold, sums that agree with the slow way, and histograms without small cells."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from merit.campaigns.audiences.forecast import (
    EDGES,
    CombinedScores,
    ReliabilityBins,
    combined,
    count_interval,
    forecast,
    histogram,
    merged,
    miscalibration,
    sizes,
)
from merit.campaigns.audiences.request import Economics

CERTAIN = ReliabilityBins(np.array([0.0]), np.array([1e12]), np.array([1e12]))  # promises that were always kept
PROBABILITIES = st.lists(st.floats(0, 1), min_size=3, max_size=3).map(np.array)


def slow_any(columns: list[np.ndarray]) -> list[float]:
    """Over all ways the interests can fall out."""
    found = []
    for user in zip(*columns, strict=True):
        total = 0.0
        for way in range(2 ** len(user)):
            wanted = [bool(way >> place & 1) for place in range(len(user))]
            chance = float(np.prod([p if yes else 1 - p for p, yes in zip(user, wanted, strict=True)]))
            total += chance if any(wanted) else 0
        found.append(total)
    return found


@settings(max_examples=80, deadline=None)
@given(st.lists(PROBABILITIES, min_size=1, max_size=4))
def test_interests_combine_as_probabilities_do(columns: list[np.ndarray]) -> None:
    pairs = [(column, 1.0 + place) for place, column in enumerate(columns)]
    some, every, mean = (combined(pairs, how) for how in ("any", "all", "weighted"))
    assert some.score == pytest.approx(slow_any(columns), abs=1e-12)
    assert every.score == pytest.approx(np.prod(columns, axis=0), abs=1e-12)
    weights = np.array([weight for _, weight in pairs])
    assert mean.score == pytest.approx(np.average(columns, axis=0, weights=weights), abs=1e-12)
    for each in (some, every, mean):
        assert (each.low <= each.score + 1e-12).all() and (each.score <= each.high + 1e-12).all()


def test_one_interest_keeps_its_probability_to_the_last_bit() -> None:
    only = np.random.default_rng(1).random(1000)
    assert all((combined([(only, 2.0)], how).score == only).all() for how in ("any", "all", "weighted"))


@pytest.mark.parametrize("scale", [0.002, 0.02, 0.2, 0.9])
def test_intervals_hold_nineteen_of_twenty_campaigns(scale: float) -> None:
    rng = np.random.default_rng(3)
    scores = rng.random(600) * scale
    told = forecast(CombinedScores(scores, scores, scores), CERTAIN, None)
    seen = (rng.random((4_000, 600)) < scores).sum(axis=1)
    held = float(((seen >= told.low) & (seen <= told.high)).mean())
    assert 0.94 <= held <= 0.995  # few conversions come in large steps
    assert told.conversions == pytest.approx(scores.sum())


def test_intervals_hold_when_probabilities_are_off_together() -> None:
    rng = np.random.default_rng(4)
    scores = rng.random(2_000) * 0.1
    low, high = count_interval(scores.sum(), (scores * (1 - scores)).sum() + (0.3 * scores.sum()) ** 2, 2_000)
    off = rng.gamma(1 / 0.09, 0.09, size=4_000)
    seen = rng.poisson(off * scores.sum())
    assert 0.93 <= ((seen >= low) & (seen <= high)).mean() <= 0.97


def test_nobody_expected_is_zero_and_not_a_nan() -> None:
    none = np.zeros(200)
    told = forecast(CombinedScores(none, none, none), CERTAIN, Economics(cost_per_contact=1, value_per_conversion=5))
    assert (told.conversions, told.low, told.high, told.value) == (0, 0, 0, -200)


@settings(max_examples=60, deadline=None)
@given(st.floats(1e-6, 500), st.floats(1e-6, 3), st.integers(500, 5_000))
def test_ends_are_in_order_and_possible(mean: float, spread: float, most: int) -> None:
    low, high = count_interval(mean, mean * spread, most)
    assert 0 <= low <= mean <= high + 1 and high <= most


def test_doubt_is_the_share_by_which_promises_failed() -> None:
    scores = np.full(300, 0.05)
    bins = (np.array([0.0, 0.01, 0.1]), np.array([10.0, 1e6, 50.0]))
    assert miscalibration(scores, ReliabilityBins(*bins, np.array([10.0, 1e6, 50.0]))) < 0.01
    assert miscalibration(scores, ReliabilityBins(*bins, np.array([10.0, 8e5, 50.0]))) == pytest.approx(0.2, abs=0.01)
    assert (
        miscalibration(np.full(9, 0.5), ReliabilityBins(*bins, np.array([10.0, 1e6, 50.0]))) > 0.1
    )  # few pairs were promised so much
    assert miscalibration(np.zeros(5), ReliabilityBins(*bins, np.array([10.0, 1e6, 50.0]))) == 1


def test_money_is_counted_per_contact() -> None:
    scores = np.array([0.5, 0.1])
    told = forecast(
        CombinedScores(scores, scores, scores),
        CERTAIN,
        Economics(cost_per_contact=1, value_per_conversion=10, caused=0.5),
    )
    assert told.cost == 2 and told.value == pytest.approx(0.6 * 5 - 2)
    [half, whole] = sizes(scores, Economics(cost_per_contact=1, value_per_conversion=10))
    assert (half.users, half.gain, whole.lowest) == (1, pytest.approx(4), 0.1)


@settings(max_examples=80, deadline=None)
@given(st.lists(st.floats(0, 1), max_size=60).map(np.array))
def test_everybody_is_in_one_bin(scores: np.ndarray) -> None:
    slow = [0] * (len(EDGES) - 1)
    for score in scores.tolist():
        slow[max([place for place in range(len(slow)) if score >= EDGES[place]], default=0)] += 1
    assert list(histogram(np.sort(np.asarray(scores, np.float64))[::-1])) == slow


@settings(max_examples=80, deadline=None)
@given(st.lists(st.integers(0, 120), min_size=1, max_size=20))
def test_joined_bins_are_large_and_lose_nobody(counts: list[int]) -> None:
    found = merged(counts, 50)
    assert all(users >= 50 for *_, users in found)
    assert sum(users for *_, users in found) == (sum(counts) if sum(counts) >= 50 else 0)
    assert all(users == sum(counts[first:last]) for first, last, users in found)
