"""The hazard of a window: its fit against a general optimiser, and what must hold of any window."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.optimize import minimize

from merit.core.ragged import Ragged
from merit.propensity import hazard
from merit.propensity.hazard import IDEAL, NAMES, RIDGE, STAGES, Popularity, Window
from merit.propensity.purchases import PurchaseHistories, Reals


def shop(users: int, seed: int, days: int = 200) -> tuple[PurchaseHistories, Reals]:
    """Users who shop at rates of their own and buy item 0 in a share of their own; both together is their hazard."""
    rng = np.random.default_rng(seed)
    rates, shares = rng.gamma(2.0, 0.05, users), rng.beta(0.5, 2.0, users)
    items, ages = [], []
    for rate, share in zip(rates, shares, strict=True):
        at = np.sort(rng.choice(days, rng.binomial(days, min(rate, 1)), replace=False))[::-1]
        ages.append(at)
        items.append((rng.random(len(at)) > share).astype(int).tolist())
    return PurchaseHistories(Ragged.of(items), np.concatenate(ages).astype(np.int32)), rates * shares


def features(past: PurchaseHistories, window: Window, span: float) -> Reals:
    shops, buyers = past.activity(), past.buyers(np.array([True, False]))
    at = np.zeros(len(past), dtype=bool)
    at[buyers.users] = True
    popular = Popularity.of(shops.counts.sum(0), buyers.activity.counts.sum(0), len(past))
    return hazard.pairs(shops, at, buyers, np.zeros(len(past)), popular, window, span)


def test_a_fit_is_the_best_there_is() -> None:
    whole, _ = shop(1_500, 1)
    rows = features(whole.before(28), Window(28), 172)
    bought = whole.bought_between(0, 27, np.array([True, False]))
    weights, days = np.ones(len(rows)), np.full(len(rows), 28.0)
    ideal = np.array([IDEAL.get(name, 0.0) for name in NAMES])
    held = np.where(np.arange(len(NAMES)), RIDGE, 1e-6)

    def loss(beta: Reals) -> float:
        rate = np.exp(np.clip(rows @ beta, -30, 5)) * 28
        return float(-np.where(bought, np.log(-np.expm1(-rate)), -rate).sum() + (held * (beta - ideal) ** 2).sum() / 2)

    beta = hazard.fit(rows, bought, days, weights)
    slow = minimize(loss, beta + 0.05, method="L-BFGS-B", options={"maxiter": 500, "maxfun": 100_000})
    assert loss(beta) <= slow.fun + 1e-3


def test_a_known_hazard_is_found_and_calibrated() -> None:
    learnt, _ = shop(4_000, 2)
    rows = features(learnt.before(28), Window(28), 172)
    bought = learnt.bought_between(0, 27, np.array([True, False]))
    beta = hazard.fit(rows, bought, np.full(len(rows), 28.0), np.ones(len(rows)))
    others, rates = shop(4_000, 3)
    for days in (28, 14):
        truth = -np.expm1(-rates * days)
        odds = hazard.log_odds(features(others, Window(days), 200), beta, days)
        promised = 1 / (1 + np.exp(-odds))
        assert promised.mean() == pytest.approx(truth.mean(), abs=0.02)
        assert np.corrcoef(promised, truth)[0, 1] > 0.85


def test_log_odds_are_those_of_a_purchase_at_any_size() -> None:
    rows = np.eye(len(NAMES))[:1]
    for constant in (-25.0, -3.0, 0.5, 4.0):
        beta = np.zeros(len(NAMES))
        beta[0] = constant - np.log(7)
        rate = np.exp(constant)
        expected = np.log(np.expm1(rate)) if rate < 30 else rate
        assert hazard.log_odds(rows, beta, 7)[0] == pytest.approx(expected, rel=1e-6)


def test_a_longer_window_is_never_less_likely() -> None:
    past, _ = shop(300, 4)
    beta = np.array([IDEAL.get(name, 0.0) for name in NAMES])
    chances = [hazard.log_odds(features(past, Window(days), 200), beta, days) for days in (7, 28, 90)]
    assert (chances[0] < chances[1]).all() and (chances[1] < chances[2]).all()


def test_the_stages_of_an_interval_share_the_window() -> None:
    past = PurchaseHistories(Ragged.of([[0, 0, 0]]), np.array([50, 40, 30], np.int32))  # every ten days; 30 days ago
    row = dict(zip(NAMES, features(past, Window(10, 5), 60)[0], strict=True))
    assert row["interval"] == pytest.approx(np.log(10)) and row["had twice"] == 1
    due = [row[f"due {low:g}"] for low in STAGES[:-1]]
    assert due[3] == pytest.approx(0.5) and due[4] == pytest.approx(0.5)  # 35 to 45 days: 3.5 to 4.5 intervals
    assert due[:3] == [0, 0, 0]
