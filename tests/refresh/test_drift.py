"""Drift that is planted is seen; chance is not taken for it."""

from __future__ import annotations

import numpy as np
import pytest

from benchmarks.drift import DRIFTS, NOTHING, Planted, rate
from merit.refresh import drift
from merit.refresh.drift import Drift, WatchConfig


def test_two_hundred_shops_without_drift_are_left_alone() -> None:
    assert rate(NOTHING, range(200), weeks=1) <= 0.05


@pytest.mark.parametrize("planted", DRIFTS.values(), ids=DRIFTS)
def test_planted_drift_is_seen(planted: Planted) -> None:
    assert rate(planted, range(6), weeks=2) > 0.8


def test_psi_is_that_of_the_formula() -> None:
    before, since = np.array([400, 400, 200]), np.array([200, 400, 400])
    p, q = before / 1000, since / 1000
    assert drift.psi(before, since).value == pytest.approx(((p - q) * np.log(p / q)).sum(), abs=2e-3)
    assert drift.psi(before, before).value == 0
    assert drift.psi(before, since, units=(10, 10)).chance == pytest.approx(
        100 * drift.psi(before, since).chance, abs=0.01
    )


def test_what_chance_gives_is_what_is_seen_without_drift() -> None:
    """A hundredth of samples from one distribution are beyond it, whatever their sizes."""
    rng, shares = np.random.default_rng(5), np.array([0.4, 0.3, 0.2, 0.1])
    pairs = [(rng.multinomial(300, shares), rng.multinomial(900, shares)) for _ in range(4_000)]
    beyond = [found.value > found.chance for found in (drift.psi(*pair) for pair in pairs)]
    assert np.mean(beyond) < 0.02


def test_the_verdict_says_when_and_why() -> None:
    config = WatchConfig()
    still, moving, far = (Drift(value=value, chance=0.05) for value in (0.01, 0.1, 0.4))
    assert drift.verdict([], {"labels": still}, 70, config).startswith("Nothing has moved")
    assert "labels bought reach the limit in about 10 weeks" in drift.verdict([], {"labels": moving}, 70, config)
    why = drift.reasons({"labels": far}, 0.3, None, config)
    said = drift.verdict(why, {"labels": far}, 70, config)
    assert said.startswith("Train anew now: labels bought have drifted (PSI 0.40, limit 0.2); 30% of new events")
