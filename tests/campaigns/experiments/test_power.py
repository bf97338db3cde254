"""Power: by hand, there and back, and by running the tests it speaks of."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import norm

from benchmarks.planted_campaigns import PlantedCampaign, campaigns
from merit.campaigns.experiments.lift import Lift, compare, update
from merit.campaigns.experiments.power import (
    DecisionRule,
    Outlook,
    Prior,
    bar,
    by_lift,
    by_week,
    chance_to_ship,
    effect_sd,
    smallest_lift,
    users_needed,
)

OUTLOOKS = st.builds(Outlook, mean=st.floats(0.01, 0.5), variance_removed=st.floats(0, 0.8))
RULES = st.builds(
    DecisionRule,
    treatment=st.floats(0.1, 0.5),
    control=st.floats(0.1, 0.5),
    threshold=st.floats(0.8, 0.99),
    power=st.floats(0.6, 0.95),
    prior=st.one_of(st.just(Prior()), st.builds(Prior, sd=st.floats(0.005, 0.2))),
)


def test_by_hand() -> None:
    """A rate of 5 %, a lift of 2 %, arms of half each: (z₀.₉ + z₀.₈)² · 2 · (0.95 / 0.05) / log(1.02)² per arm."""
    per_arm = (norm.ppf(0.9) + norm.ppf(0.8)) ** 2 * 2 * 19 / np.log(1.02) ** 2
    assert users_needed(0.02, Outlook(mean=0.05), DecisionRule()) == pytest.approx(2 * per_arm, rel=1e-5)


@settings(max_examples=50, deadline=None)
@given(st.floats(0.002, 0.3), OUTLOOKS, RULES)
def test_users_and_lifts_are_two_sides_of_one_thing(lift: float, outlook: Outlook, rule: DecisionRule) -> None:
    users = users_needed(lift, outlook, rule)
    assert smallest_lift(outlook, rule, users) <= lift
    assert users <= 4 or smallest_lift(outlook, rule, users - 1) > lift
    assert chance_to_ship(lift, outlook, rule, users) >= rule.power - 1e-9


@settings(max_examples=50, deadline=None)
@given(st.floats(0.001, 0.2), RULES)
def test_the_bar_is_where_the_posterior_meets_the_threshold(sd: float, rule: DecisionRule) -> None:
    assert update(Lift(bar(sd, rule), sd), rule.prior).above() == pytest.approx(rule.threshold)


@pytest.mark.parametrize("explained", [0.0, 0.1])
def test_tests_ship_as_often_as_foreseen(explained: float) -> None:
    world = PlantedCampaign(users=2_000, rate=0.2, lift=0.15, explained=explained)
    said = [compare(*pair).lift.above() for pair in campaigns(world, 2_000, seed=7)]
    foreseen = chance_to_ship(0.15, Outlook(mean=0.2, variance_removed=explained), DecisionRule(), 2_000)
    assert np.mean(np.array(said) >= 0.9) == pytest.approx(foreseen, abs=0.03)


def test_no_effect_ships_one_time_in_ten() -> None:
    assert chance_to_ship(0.0, Outlook(mean=0.1), DecisionRule(), 10_000) == pytest.approx(0.1)
    sceptical = DecisionRule(prior=Prior(sd=0.01))
    assert chance_to_ship(0.0, Outlook(mean=0.1), sceptical, 10_000) < 0.001


def test_tables() -> None:
    outlook = Outlook(mean=0.1, users_per_day=10_000, users=200_000)
    lifts = by_lift(0.02, outlook, DecisionRule())
    assert lifts["users"].is_sorted(descending=True) and lifts["days"].min() >= 1
    weeks = by_week(outlook, DecisionRule())
    assert weeks["users"].to_list() == [70_000, 140_000, 200_000] and weeks["lift"].is_sorted(descending=True)
    assert (
        by_week(Outlook(mean=0.1), DecisionRule()).is_empty()
        and by_lift(0.02, Outlook(mean=0.1), DecisionRule())["days"][0] is None
    )
    assert effect_sd(Outlook(mean=0.1), DecisionRule(), 1_000) > effect_sd(
        Outlook(mean=0.1, variance_removed=0.5), DecisionRule(), 1_000
    )
