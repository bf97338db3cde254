"""Sections about audiences and probabilities: what they say, and what they keep back."""

from __future__ import annotations

import numpy as np
import polars as pl

from merit.core.ragged import Ragged
from merit.evaluation import tables
from merit.evaluation.audience_report import audience_section, reliability_section
from merit.evaluation.calibration import Bins
from merit.evaluation.predictions import Predictions, Truth
from merit.evaluation.ranking import measure_audiences
from merit.report import page

USERS = 400


def _figures() -> pl.DataFrame:
    """Two verticals: 380 users want something of the first, 20 something of the second."""
    gold = Ragged.of([[0] if user < 380 else [1] for user in range(USERS)])
    none = np.zeros(0, np.int32)
    nothing = Ragged(np.zeros(USERS + 1, np.int64), none)
    truth = Truth(
        gold=gold,
        history=nothing,
        counts=none,
        purchases=none,
        user=np.arange(USERS),
        vertical=np.array([0, 1]),
        verticals=["food", "garden"],
        vectors=np.eye(2, dtype=np.float32),
        cluster=np.zeros(2, np.int64),
    )
    scores = np.random.default_rng(0).random((USERS, 2)).astype(np.float32)
    shares = np.eye(2, dtype=np.float32)
    judged = [
        (
            Predictions(name, 1, nothing),
            measure_audiences(lambda labels: scores[:, labels], truth, shares),
        )
        for name in ("history frequency", "ours")
    ]
    return tables.compare(judged, USERS, 7, "history frequency", 100)


def test_small_verticals_are_left_out_and_counted() -> None:
    by_vertical = audience_section(_figures(), "history frequency").tables[-1]
    assert by_vertical.frame["vertical"].to_list() == ["food"]
    assert "1 verticals with fewer than 50" in by_vertical.note


def test_the_sections_make_a_page_that_asks_for_nothing() -> None:
    bins = Bins.empty(2)
    rng = np.random.default_rng(0)
    chance = rng.random(5000) ** 3
    bins.add(chance, rng.random(5000) < chance, rng.integers(2, size=5000))
    sections = (
        audience_section(_figures(), "history frequency"),
        reliability_section(bins.table(["food", "garden"])),
    )
    html = page.render(page.Page("Results", "", sections))
    assert "Users for an interest" in html
    assert "Expected calibration error" in html
    assert "://" not in html.replace("http://www.w3.org", "")
