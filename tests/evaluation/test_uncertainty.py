"""An interval must hold what it promises, and a pair must be a pair."""

from __future__ import annotations

import numpy as np
import pytest

from merit.evaluation import uncertainty
from merit.evaluation.uncertainty import BootstrapSample, Metric, f1, interval, minus, pool, ratio, sample, weights


def population(users: int, rng: np.random.Generator, recall: float) -> Metric:
    """Users differ in how many golds they have and in how well they are served, and heavy ones are served better."""
    golds = 1 + rng.poisson(2.0, users)
    skill = np.clip(recall + 0.05 * (golds - 3) + 0.2 * rng.normal(size=users), 0, 1)
    return Metric(np.stack([rng.binomial(golds, skill), golds], axis=1).astype(np.float64))


def test_coverage_by_simulation() -> None:
    truth = population(400_000, np.random.default_rng(1), 0.4).value
    lots = weights(150, seed=5, resamples=500)
    rng, held, rounds = np.random.default_rng(2), 0, 400
    for _ in range(rounds):
        found = interval(sample({"recall": population(150, rng, 0.4)}, lots)["recall"])
        held += found.low <= truth <= found.high
    assert 0.91 <= held / rounds <= 0.98  # 0.95, with three standard errors of the simulation and of small samples


def test_pairing_takes_out_what_methods_share() -> None:
    rng = np.random.default_rng(3)
    golds = 1 + rng.poisson(2.0, 500)
    hits = rng.binomial(golds, rng.uniform(0, 1, 500))
    better = np.minimum(hits + (rng.random(500) < 0.1), golds)
    first, second = (Metric(np.stack([found, golds], axis=1).astype(float)) for found in (better, hits))
    lots = weights(500, seed=1)
    drawn = sample({"first": first, "second": second}, lots)
    paired = interval(minus(drawn["first"], drawn["second"]))
    strangers = interval(minus(drawn["first"], sample({"second": second}, weights(500, seed=2))["second"]))
    assert paired.value == pytest.approx(first.value - second.value)
    assert paired.low > 0
    assert paired.high - paired.low < (strangers.high - strangers.low) / 3


def test_weights_are_resamples_of_all_users_and_named() -> None:
    lots = weights(1_000, seed=7, resamples=300)
    assert (lots.sum(axis=1, dtype=np.int64) == 1_000).all()
    assert lots.var() == pytest.approx(1.0, rel=0.02)  # as of a multinomial
    assert (lots == weights(1_000, seed=7, resamples=300)).all()
    assert (lots != weights(1_000, seed=8, resamples=300)).any()
    few = weights(5, seed=1, resamples=4_000).mean(axis=0)
    assert few == pytest.approx(np.ones(5), abs=0.08), "the first and the last user as often as any"


def test_drawn_in_blocks_or_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    metric = population(30, np.random.default_rng(0), 0.5)
    whole = weights(30, seed=1, resamples=40)
    wanted = sample({"x": metric}, whole)["x"].draws
    for block in (1, 45, 30 * 7):
        monkeypatch.setattr(uncertainty, "BLOCK", block)
        assert (weights(30, seed=1, resamples=40) == whole).all()
        assert (sample({"x": metric}, whole)["x"].draws == wanted).all()


def test_sampling_equals_the_loop_over_resamples() -> None:
    rng = np.random.default_rng(0)
    metrics = {"ratio": population(40, rng, 0.5), "f1": Metric(rng.integers(1, 5, (40, 4)).astype(float), f1)}
    lots = weights(40, seed=1, resamples=20)
    drawn = sample(metrics, lots)
    for name, metric in metrics.items():
        slow = [Metric(np.repeat(metric.columns, lot, axis=0), metric.form).value for lot in lots]
        assert drawn[name].draws == pytest.approx(np.array(slow))


def test_seeds_are_averaged_with_users_drawn_jointly() -> None:
    rng = np.random.default_rng(4)
    seeds = [population(100, rng, recall) for recall in (0.3, 0.5)]
    lots = weights(100, seed=1, resamples=200)
    drawn = [sample({"recall": each}, lots)["recall"] for each in seeds]
    both = interval(pool(drawn))
    assert both.value == pytest.approx((seeds[0].value + seeds[1].value) / 2)
    assert both.seeds == 2 and both.spread == pytest.approx(np.std([each.value for each in seeds], ddof=1))
    assert (pool(drawn).draws == (drawn[0].draws + drawn[1].draws) / 2).all()


def test_a_figure_about_nobody_is_undefined() -> None:
    nobody = interval(sample({"x": Metric(np.zeros((5, 2)))}, weights(5, 1, 50))["x"])
    assert np.isnan([nobody.value, nobody.low, nobody.high]).all() and nobody.users == 0
    one = interval(BootstrapSample(np.array([0.5]), np.array([0.4, np.nan, 0.6]), 3))
    assert 0.4 <= one.low <= one.high <= 0.6 and np.isnan(one.spread)


def test_an_interval_leaves_out_as_much_on_either_side() -> None:
    drawn = BootstrapSample(np.array([0.5]), np.arange(1_001) / 1_000, 9)
    assert [interval(drawn).low, interval(drawn).high] == pytest.approx([0.025, 0.975])
    assert [interval(drawn, 0.8).low, interval(drawn, 0.8).high] == pytest.approx([0.1, 0.9])
    assert minus(drawn, BootstrapSample(np.array([0.2]), np.zeros(1_001), 4)).users == 4


def test_one_seed_has_no_spread_and_two_have_that_of_a_sample() -> None:
    draws = np.array([0.1, 0.2, np.nan])
    assert np.isnan(interval(BootstrapSample(np.array([0.5]), draws, 9)).spread)
    two = interval(BootstrapSample(np.array([0.4, 0.8]), draws, 9))
    assert (two.value, two.spread, two.users, two.seeds) == pytest.approx((0.6, 0.08**0.5, 9, 2))
    assert 0.1 <= two.low < two.high <= 0.2  # a draw without a figure is left out


def test_a_figure_that_no_draw_has_is_without_ends() -> None:
    none = interval(BootstrapSample(np.array([0.5]), np.full(4, np.nan), 0))
    assert none.value == 0.5 and np.isnan([none.low, none.high]).all()


def test_users_of_a_figure_have_something_in_any_denominator() -> None:
    columns = np.array([[0.0, 0, 1, 2], [0, 3, 0, 0], [5, 0, 5, 0]])
    assert Metric(columns, f1).users == 2 and Metric(columns[:, :2]).users == 1


def test_nothing_right_is_an_f1_of_zero_and_nothing_at_all_too() -> None:
    assert f1(np.array([[0.0, 4, 0, 2], [0, 0, 0, 2], [1, 2, 1, 1]])).tolist() == pytest.approx([0, 0, 2 / 3])
    assert np.isnan(ratio(np.array([[3.0, 0]]))).all() and ratio(np.array([[0.0, 3]])).tolist() == [0]


def test_two_thousand_resamples_are_the_default() -> None:
    drawn = weights(3, seed=1)
    assert drawn.shape == (2_000, 3) and (drawn.sum(axis=1) == 3).all()
