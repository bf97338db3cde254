"""The lift: the paper's figures, slow twins, other people's programs, and whether it holds what it promises."""

from __future__ import annotations

from math import exp, expm1, log

import numpy as np
import pandas as pd
import pytest
import statsmodels.api as sm
import tea_tasting as tt
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import integrate, stats

from benchmarks.planted_campaigns import PlantedCampaign, campaigns
from merit.campaigns.experiments.lift import (
    Difference,
    Lift,
    best_slopes,
    compare,
    conversions,
    doubt_needed,
    published,
    update,
)
from merit.campaigns.experiments.power import FLAT, Prior
from merit.campaigns.experiments.statistics import Moments, Reals
from merit.core.errors import DataError
from tests.campaigns.worlds import moments

PAPER = {(0.0023, -0.0012, 0.0057): 0.904, (0.0019, -0.0006, 0.0043): 0.936, (0.0037, 0.0002, 0.0072): 0.981}


@pytest.mark.parametrize(("figures", "probability"), PAPER.items())
def test_the_papers_campaigns(figures: tuple[float, float, float], probability: float) -> None:
    assert published(*figures).above() == pytest.approx(probability, abs=0.001)


# --- slow twins ------------------------------------------------------------------------------------------------------


def arms(seed: int, users: int, share: float, covariates: int) -> tuple[Reals, Reals]:
    rng = np.random.default_rng(seed)
    sizes = max(8, round(users * share)), max(8, users - round(users * share))
    rows = []
    for size in sizes:
        before = rng.gamma(1.0, 1.0, (size, covariates))
        outcome = 1 + before.sum(axis=1) + rng.gamma(1.0, 1.0, size)
        rows.append(np.column_stack([outcome, before]))
    return rows[0], rows[1]


def slow_lift(treatment: Reals, control: Reals, slopes: Reals) -> Lift:
    """What each user does to log(adjusted treatment mean / control mean), one by one (the influence function)."""
    shift = treatment[:, 1:].mean(axis=0) - control[:, 1:].mean(axis=0)
    a = treatment[:, 0].mean() - slopes @ shift
    c = control[:, 0].mean()
    variance = 0.0
    for rows, treated in ((treatment, True), (control, False)):
        mean = rows.mean(axis=0)
        squares = 0.0
        for row in rows:
            away = row - mean
            pull = (away[0] - slopes @ away[1:]) / a if treated else slopes @ away[1:] / a - away[0] / c
            squares += pull**2
        variance += squares / (len(rows) - 1) / len(rows)
    return Lift(log(a / c), variance**0.5)


@settings(max_examples=40, deadline=None)
@given(st.integers(0, 10**6), st.integers(20, 80), st.sampled_from([0.2, 0.5, 0.8]), st.integers(0, 3))
def test_moments_say_what_the_users_say_one_by_one(seed: int, users: int, share: float, covariates: int) -> None:
    treatment, control = arms(seed, users, share, covariates)
    found = compare(moments(treatment), moments(control))
    slow = slow_lift(treatment, control, found.slopes)
    assert found.lift.mean == pytest.approx(slow.mean, abs=1e-9)
    assert found.lift.sd == pytest.approx(slow.sd, rel=1e-6)
    plain = slow_lift(treatment, control, np.zeros(covariates))
    assert found.plain_lift.sd == pytest.approx(plain.sd, rel=1e-6)
    shift = treatment[:, 1:].mean(axis=0) - control[:, 1:].mean(axis=0)
    assert found.adjusted_mean == pytest.approx(treatment[:, 0].mean() - found.slopes @ shift, rel=1e-9)


@settings(max_examples=40, deadline=None)
@given(st.integers(0, 10**6), st.sampled_from([0.2, 0.5]), st.integers(1, 3))
def test_no_other_slopes_leave_less_variance(seed: int, share: float, covariates: int) -> None:
    treatment, control = arms(seed, 60, share, covariates)
    rng = np.random.default_rng(seed)

    def variance(slopes: Reals) -> float:
        parts = [(rows[:, 0] - rows[:, 1:] @ slopes) for rows in (treatment, control)]
        return float(sum(part.var(ddof=1) / len(part) for part in parts))

    best = best_slopes(moments(treatment), moments(control))
    tried = [best + 0.1 * rng.normal(size=covariates) for _ in range(10)] + [np.zeros(covariates)]
    assert all(variance(best) <= variance(other) + 1e-12 for other in tried)


@settings(max_examples=20, deadline=None)
@given(st.floats(-0.5, 0.5), st.floats(0.001, 0.4))
def test_expected_losses_are_the_integrals_they_stand_for(mean: float, sd: float) -> None:
    lift = Lift(mean, sd)
    assert lift.above(0.05) == pytest.approx(stats.norm(mean, sd).sf(log(1.05)), abs=1e-12)
    density = stats.norm(mean, sd).pdf
    ends = (mean - 12 * sd, mean + 12 * sd)
    lost = integrate.quad(lambda e: max(-expm1(e), 0) * density(e), *ends, points=[0.0], limit=200)[0]
    missed = integrate.quad(lambda e: max(expm1(e), 0) * density(e), *ends, points=[0.0], limit=200)[0]
    assert lift.loss_of_shipping == pytest.approx(lost, abs=1e-7)
    assert lift.loss_of_keeping == pytest.approx(missed, abs=1e-7)
    grid = np.expm1(np.linspace(mean - 8 * sd, mean + 8 * sd, 4001))
    assert np.trapezoid(lift.density(grid), grid) == pytest.approx(1.0, abs=1e-6)


@settings(max_examples=30, deadline=None)
@given(st.floats(-0.2, 0.2), st.floats(0.01, 0.2), st.floats(-0.1, 0.1), st.floats(0.01, 0.2))
def test_the_posterior_is_likelihood_times_prior(mean: float, sd: float, centre: float, width: float) -> None:
    found = update(Lift(mean, sd), Prior(mean=centre, sd=width))
    grid = np.linspace(min(mean, centre) - 10 * (sd + width), max(mean, centre) + 10 * (sd + width), 40_001)
    weights = stats.norm.pdf(grid, mean, sd) * stats.norm.pdf(grid, centre, width)
    weights /= weights.sum()
    slow = float(weights @ grid)
    assert found.mean == pytest.approx(slow, abs=1e-6)
    assert found.sd == pytest.approx(float(np.sqrt(weights @ (grid - slow) ** 2)), rel=1e-4)


# --- other people's programs -----------------------------------------------------------------------------------------


def test_equal_arms_agree_with_a_regression_on_arm_and_covariates() -> None:
    treatment, control = arms(5, 4_000, 0.5, 2)
    found = compare(moments(treatment), moments(control))
    rows = np.vstack([treatment, control])
    treated = np.repeat([1.0, 0.0], [len(treatment), len(control)])
    fitted = sm.OLS(rows[:, 0], sm.add_constant(np.column_stack([treated, rows[:, 1:]]))).fit(cov_type="HC1")
    assert found.difference.value == pytest.approx(fitted.params[1], abs=1e-10)
    assert found.difference.sd == pytest.approx(fitted.bse[1], rel=1e-3)
    np.testing.assert_allclose(found.slopes, fitted.params[2:], rtol=1e-9)


def test_unequal_arms_agree_with_a_regression_with_a_slope_per_arm() -> None:
    treatment, control = arms(6, 20_000, 0.1, 1)
    found = compare(moments(treatment), moments(control))
    rows = np.vstack([treatment, control])
    treated = np.repeat([1.0, 0.0], [len(treatment), len(control)])
    centred = rows[:, 1] - rows[:, 1].mean()
    design = sm.add_constant(np.column_stack([treated, centred, treated * centred]))
    fitted = sm.OLS(rows[:, 0], design).fit(cov_type="HC1")
    assert found.difference.value == pytest.approx(fitted.params[1], abs=0.05 * fitted.bse[1])


@pytest.mark.parametrize("covariate", [None, "before"])
def test_a_flat_prior_agrees_with_tea_tasting(covariate: str | None) -> None:
    treatment, control = arms(7, 6_000, 0.5, 1)
    frame = pd.DataFrame(np.vstack([control, treatment]), columns=["outcome", "before"])
    frame["variant"] = np.repeat([0, 1], [len(control), len(treatment)])
    metric = tt.Mean("outcome", covariate, use_t=False, equal_var=False)
    theirs = tt.Experiment(lift=metric).analyze(frame)["lift"]
    columns = 1 if covariate is None else 2
    ours = compare(moments(treatment[:, :columns]), moments(control[:, :columns]))
    low, high = ours.difference.interval()
    tolerance = 0.01 * ours.difference.sd
    assert ours.difference.value == pytest.approx(theirs.effect_size, abs=tolerance)
    assert low == pytest.approx(theirs.effect_size_ci_lower, abs=tolerance)
    assert high == pytest.approx(theirs.effect_size_ci_upper, abs=tolerance)
    assert 2 * min(ours.lift.above(), 1 - ours.lift.above()) == pytest.approx(theirs.pvalue, abs=0.01)
    if covariate is None:  # with one, theirs is in percent of the adjusted control mean, ours of the plain one
        assert ours.lift.value == pytest.approx(theirs.rel_effect_size, abs=1e-9)
        assert ours.lift.interval() == pytest.approx(
            (theirs.rel_effect_size_ci_lower, theirs.rel_effect_size_ci_upper), abs=1e-4
        )


# --- promises, by simulation -----------------------------------------------------------------------------------------

WORLDS = {
    "yes or no": PlantedCampaign(lift=0.05, users=2_000),
    "yes or no, with a covariate": PlantedCampaign(lift=0.05, explained=0.15, users=2_000),
    "one in ten treated": PlantedCampaign(lift=0.05, treated=0.1, users=3_000),
    "amounts, half explained": PlantedCampaign(kind="amount", lift=-0.1, explained=0.5, shape=2.0, users=1_000),
    "a large lift": PlantedCampaign(lift=0.8, users=1_000),
}


@pytest.mark.parametrize("world", WORLDS.values(), ids=WORLDS.keys())
def test_intervals_cover_the_truth_as_often_as_they_say(world: PlantedCampaign) -> None:
    intervals = [compare(*pair).lift.interval() for pair in campaigns(world, 2_000, seed=7)]
    held = np.mean([low <= world.lift <= high for low, high in intervals])
    assert 0.935 <= held <= 0.965


@pytest.mark.parametrize("explained", [0.0, 0.5])
def test_without_an_effect_every_probability_is_as_likely_as_any_other(explained: float) -> None:
    world = PlantedCampaign(kind="amount", explained=explained, shape=2.0, users=1_000)
    said = [compare(*pair).lift.above() for pair in campaigns(world, 2_000, seed=7)]
    assert stats.kstest(said, "uniform").pvalue > 0.01
    assert np.mean(np.array(said) >= 0.9) == pytest.approx(0.1, abs=0.02)  # what shipping at 0.90 costs


def test_covariates_shorten_the_interval_as_theory_says() -> None:
    world = PlantedCampaign(kind="amount", explained=0.5, shape=2.0, users=4_000)
    found = [compare(*pair) for pair in campaigns(world, 200, seed=7)]
    assert np.mean([each.variance_removed for each in found]) == pytest.approx(0.5, abs=0.02)
    shorter = np.mean([each.lift.sd / each.plain_lift.sd for each in found])
    assert shorter == pytest.approx(0.5**0.5, abs=0.02)
    spread = np.std([each.lift.mean for each in found])
    assert spread == pytest.approx(np.mean([each.lift.sd for each in found]), rel=0.15)


# --- small truths and refusals ---------------------------------------------------------------------------------------


def of(rate: float, users: int = 1_000) -> Moments:
    return Moments(users, np.array([rate]), np.array([[rate * (1 - rate) * users]]))


def arm_beside(outcome: float, covariate: float) -> Moments:
    """A thousand users, in whom a tenth of the covariate's ups and downs is found again in the outcome."""
    return Moments(1_000, np.array([outcome, covariate]), np.array([[20.0, 95.0], [95.0, 1_000.0]]))


def test_conversions_are_those_who_said_yes() -> None:
    assert conversions(of(0.05)) == pytest.approx(50)
    one_whale = moments(np.array([[0.0]] * 99 + [[1e6]]))
    assert conversions(one_whale) == pytest.approx(1)
    assert conversions(of(0.0)) == 0
    assert conversions(moments(np.array([[0.0]] * 99 + [[0.5]]))) == pytest.approx(1), "however little it is worth"


def test_flat_priors_change_nothing_and_narrow_ones_win() -> None:
    seen = compare(of(0.11), of(0.1)).lift
    assert update(seen, FLAT) == seen
    assert update(seen, Prior(sd=1e-6)).value == pytest.approx(0, abs=1e-6)


def test_the_doubt_that_overturns_a_decision() -> None:
    seen = Lift(0.02, 0.01)
    edge = doubt_needed(seen, 0.9)
    assert update(seen, Prior(sd=edge)).above() == pytest.approx(0.9)
    assert update(seen, Prior(sd=2 * edge)).above() > 0.9
    assert doubt_needed(Lift(0.01, 0.01), 0.9) == float("inf")


def test_covariates_that_say_nothing_new_do_no_harm() -> None:
    treatment, control = arms(8, 400, 0.5, 1)
    once = compare(moments(treatment), moments(control))
    twice, still = (
        [np.column_stack([rows, extra(rows)]) for rows in (treatment, control)]
        for extra in (lambda rows: 5 * rows[:, 1], lambda rows: np.full(len(rows), 3.0))
    )
    for other in (twice, still):
        found = compare(*(moments(rows) for rows in other))
        assert found.lift.mean == pytest.approx(once.lift.mean)
        assert found.lift.sd == pytest.approx(once.lift.sd)
    (own, twin), (_, nothing) = (best_slopes(*(moments(rows) for rows in other)) for other in (twice, still))
    assert own == pytest.approx(5 * twin), "by what each varies"
    assert nothing == pytest.approx(0)


REFUSED = {
    "nobody converts": ((of(0.1), of(0.0)), "Nobody in the control"),
    "everybody the same": ((of(1.0), of(0.5)), "has the same outcome"),
    "negative means": ((Moments(100, np.array([-2.0]), np.array([[50.0]])), of(0.5)), "positive on average"),
    "no mean": ((Moments(100, np.array([0.0]), np.array([[50.0]])), of(0.5)), "The treatment's mean outcome is 0"),
    "pennies that never vary": (
        (Moments(10_000, np.array([0.01]), np.array([[1e-13]])), of(0.5)),
        "Every user of the treatment has the same outcome, 0.01",
    ),
    "thousands that never vary": (
        (of(0.5), Moments(10_000, np.array([1_000.0]), np.array([[9e-3]]))),
        "Every user of the control has the same outcome, 1000",
    ),
    "more explained than there is": (
        (arm_beside(0.1, 20.0), arm_beside(0.1, 0.0)),
        "the treatment's mean is -1.8.*from before the campaign",
    ),
    "two users": ((of(0.5, 2), of(0.5)), "too few"),
    "the outcome as a covariate": (
        tuple(moments(np.repeat(rows, 2, axis=1)) for rows in (np.array([[0.0], [1], [3], [1]]), np.eye(5)[:, :1])),
        "the outcome itself",
    ),
}


@pytest.mark.parametrize("name", REFUSED)
def test_where_there_is_no_lift_none_is_told(name: str) -> None:
    pair, words = REFUSED[name]
    with pytest.raises(DataError, match=words):
        compare(*pair)


@pytest.mark.parametrize("figures", [(0.1, 0.2, 0.3), (0.1, -1.5, 0.3), (0.2, 0.3, 0.1)])
def test_impossible_published_figures(figures: tuple[float, float, float]) -> None:
    with pytest.raises(DataError, match="fractions"):
        published(*figures)
    assert exp(published(0.1, 0.0, 0.2).mean) == pytest.approx(1.1)


# --- edges -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("level", [0.5, 0.8, 0.99])
def test_intervals_hold_as_much_as_their_level(level: float) -> None:
    low, high = Lift(0.1, 0.05).interval(level)
    assert stats.norm(0.1, 0.05).cdf([log(1 + low), log(1 + high)]) == pytest.approx([(1 - level) / 2, (1 + level) / 2])
    low, high = Difference(3.0, 2.0).interval(level)
    assert stats.norm(3, 2).cdf([low, high]) == pytest.approx([(1 - level) / 2, (1 + level) / 2])


def test_95_of_100_is_the_level_that_is_meant_without_one() -> None:
    assert Lift(0.1, 0.05).interval() == Lift(0.1, 0.05).interval(0.95)
    assert Difference(3.0, 2.0).interval() == Difference(3.0, 2.0).interval(0.95)
    assert published(0.1, 0.0, 0.2) == published(0.1, 0.0, 0.2, 0.95)


@pytest.mark.parametrize("level", [0.5, 0.9])
def test_a_published_interval_is_as_wide_as_it_was_printed(level: float) -> None:
    low, high = published(0.1, -0.05, 0.3, level).interval(level)
    assert log((1 + high) / (1 + low)) == pytest.approx(log(1.3 / 0.95))


@pytest.mark.parametrize("figures", [(0.1, 0.1, 0.3), (0.3, 0.1, 0.3), (-0.5, -1.0, 0.3), (0.2, 0.2, 0.2)])
def test_a_lift_at_an_end_of_its_interval_cannot_be(figures: tuple[float, float, float]) -> None:
    with pytest.raises(DataError, match="cannot be"):
        published(*figures)


def test_two_users_more_than_there_are_figures_are_enough() -> None:
    enough, few = (moments(np.arange(1.0, users + 1)[:, None] * np.ones((1, 1))) for users in (3, 2))
    assert compare(enough, enough).lift.mean == 0
    for pair in ((few, enough), (enough, few)):
        with pytest.raises(DataError, match="has 2 users: too few"):
            compare(*pair)


def test_a_shift_of_the_covariate_is_taken_off_the_treatment() -> None:
    """Arms of one line, outcome = 2 · covariate + noise, the treatment's users one unit further along it."""
    rng = np.random.default_rng(4)
    control, treatment = rng.normal(5, 1, 4_000), rng.normal(6, 1, 4_000)
    pair = [moments(np.column_stack([2 * x + rng.normal(0, 0.1, len(x)), x])) for x in (treatment, control)]
    found = compare(*pair)
    assert found.difference.value == pytest.approx(0, abs=0.02) and found.slopes[0] == pytest.approx(2, abs=0.01)
    assert found.adjusted_mean == pytest.approx(pair[1].mean[0], abs=0.02)
    assert found.plain_lift.value == pytest.approx(0.2, abs=0.01) and found.lift.value == pytest.approx(0, abs=0.01)
    assert found.variance_removed == pytest.approx(1 - (found.difference.sd / (4.01 * 2 / 4_000) ** 0.5) ** 2, abs=1e-3)


def test_a_decision_at_its_very_threshold_needs_no_doubt_to_fall() -> None:
    bar = float(stats.norm.ppf(0.9))
    assert doubt_needed(Lift(0.01 * bar, 0.01), 0.9) == np.inf
    assert doubt_needed(Lift(0.03, 0.01), 0.9) == pytest.approx(0.01 / ((3 / bar) ** 2 - 1) ** 0.5)
