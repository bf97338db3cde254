"""Campaigns pooled: the paper's three, and the mixture against integration by brute force."""

from __future__ import annotations

from math import inf

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import integrate, stats

from merit.campaigns.experiments.lift import Lift, published
from merit.campaigns.experiments.pooling import pool
from merit.core.errors import DataError
from tests.campaigns.experiments.test_lift import PAPER

LIFTS = st.lists(st.builds(Lift, st.floats(-0.05, 0.05), st.floats(0.005, 0.05)), min_size=2, max_size=5)


def test_the_papers_campaigns_together() -> None:
    found = pool([published(*figures) for figures in PAPER])
    assert found.fixed.value == pytest.approx(0.00244, abs=5e-6)
    assert found.fixed.interval() == pytest.approx((0.0007, 0.0042), abs=5e-5)
    assert found.fixed.above() == pytest.approx(0.997, abs=5e-4)
    low, high = found.common.interval()
    assert low < found.fixed.interval()[0] and high > found.fixed.interval()[1]  # three say little about their spread
    assert 0.95 < found.common.above() < found.fixed.above()
    assert found.alike > 0.5


def slow_posterior(lifts: list[Lift], scale: float, of: int | None, beyond: float) -> float:
    """P(mean > beyond), or of one campaign's own lift, by integrating over τ with nothing precomputed."""

    def given_spread(tau: float) -> tuple[float, float, float]:
        weights = [1 / (each.sd**2 + tau**2) for each in lifts]
        mean = sum(w * each.mean for w, each in zip(weights, lifts, strict=True)) / sum(weights)
        fit = np.prod([stats.norm.pdf(each.mean, mean, (each.sd**2 + tau**2) ** 0.5) for each in lifts])
        prior = stats.halfnorm.pdf(tau, scale=scale)
        return prior * fit * sum(weights) ** -0.5, mean, sum(weights) ** -0.5

    def inside(tau: float) -> float:
        weight, mean, sd = given_spread(tau)
        if of is not None:
            pull = lifts[of].sd ** 2 / (lifts[of].sd ** 2 + tau**2)
            mean, sd = (
                (1 - pull) * lifts[of].mean + pull * mean,
                ((1 - pull) * lifts[of].sd ** 2 + (pull * sd) ** 2) ** 0.5,
            )
        return float(weight * stats.norm.sf(beyond, mean, sd))

    ends = (0, 8 * scale)
    return float(
        integrate.quad(inside, *ends, limit=200)[0] / integrate.quad(lambda t: given_spread(t)[0], *ends, limit=200)[0]
    )


@settings(max_examples=4, deadline=None)
@given(LIFTS)
def test_the_grid_equals_the_integral(lifts: list[Lift]) -> None:
    found = pool(lifts, scale=0.03)
    assert found.common.above() == pytest.approx(slow_posterior(lifts, 0.03, None, 0.0), abs=1e-4)
    assert found.shrunk[0].above() == pytest.approx(slow_posterior(lifts, 0.03, 0, 0.0), abs=1e-4)


@settings(max_examples=40, deadline=None)
@given(LIFTS)
def test_intervals_hold_what_they_say_and_order_does_not_matter(lifts: list[Lift]) -> None:
    found = pool(lifts)
    low, high = found.common.interval()
    assert found.common.above(low) == pytest.approx(0.975) and found.common.above(high) == pytest.approx(0.025)
    assert pool(lifts[::-1]).common.above() == pytest.approx(found.common.above())
    assert (found.following.sd or inf) >= found.common.lift.sd
    assert all(
        shared.lift.sd <= own.sd * 1.0001 or found.spread > 0 for own, shared in zip(lifts, found.shrunk, strict=True)
    )


def test_campaigns_that_disagree_are_not_averaged_into_certainty() -> None:
    found = pool([Lift(-0.05, 0.001), Lift(0.05, 0.001), Lift(0.01, 0.001)])
    assert found.alike < 1e-10 and found.spread > 0.03
    low, high = found.common.interval()
    assert low < -0.02 and high > 0.02
    assert found.shrunk[0].value == pytest.approx(Lift(-0.05, 0.001).value, abs=1e-3)


def test_pooling_covers_the_mean_of_all_campaigns() -> None:
    rng = np.random.default_rng(7)
    held = 0
    for _ in range(300):
        truths = rng.normal(0.01, 0.02, 6)
        low, high = pool([Lift(rng.normal(truth, 0.02), 0.02) for truth in truths]).common.interval()
        held += low <= np.expm1(0.01) <= high
    assert 0.92 <= held / 300 <= 0.985


def test_one_campaign_is_no_pool() -> None:
    with pytest.raises(DataError, match="at least two"):
        pool([Lift(0.01, 0.01)])
