"""Probabilities of a window: the same however users are parted, and refused where the data says nothing."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta
from pathlib import Path

import numpy as np
import polars as pl
import pytest

import merit
from merit.core.errors import DataError
from merit.core.ragged import owners
from merit.propensity import hazard
from merit.propensity.hazard import Popularity
from merit.propensity.purchases import Mask
from merit.retrieval import windows as module
from merit.retrieval.model import Model
from merit.retrieval.windows import WindowQuery, WindowScorer


@pytest.fixture(scope="module")
def shop(quick: Path) -> Model:
    return merit.load(quick)


def popular(windows: WindowScorer) -> Mask:
    """The products of the label that most products carry."""
    items = windows.item_labels
    wanted = np.zeros(len(items), dtype=bool)
    wanted[owners(items)[items.values == np.bincount(items.values).argmax()]] = True
    return wanted


def test_blocks_change_nothing_and_the_formula_is_that_of_all_users(
    shop: Model, monkeypatch: pytest.MonkeyPatch
) -> None:
    windows = shop.windows
    wanted, window = popular(windows), windows.window(14)
    whole = windows.probabilities(wanted, window)
    monkeypatch.setattr(module, "BLOCK", 7)
    assert np.allclose(replace(windows).probabilities(wanted, window), whole, atol=1e-9)
    past, learnt = windows.purchases(), windows.learnt
    shops, buyers = past.activity(), past.buyers(wanted)
    factors = windows.vectors.values @ windows.projection.T - np.array(learnt.centre)
    affinity = factors @ windows.buying(wanted).direction
    at = np.isin(np.arange(len(past)), buyers.users)
    counts = (part.counts.sum(0) for part in (shops, buyers.activity))
    features = hazard.pairs(shops, at, buyers, affinity, Popularity.of(*counts, len(past)), window, learnt.span)
    odds = hazard.log_odds(features, learnt.weights(), 14)
    assert np.allclose(learnt.curve().probability(odds), whole, atol=1e-6)
    assert (windows.bought(wanted) == at).all()
    assert (shop.audience_scores(WindowQuery("q", wanted, window)) == whole).all()


def test_who_bought_more_is_more_likely(shop: Model) -> None:
    windows = shop.windows
    wanted = popular(windows)
    chances = windows.probabilities(wanted, windows.window(28))
    bought = windows.bought(wanted)
    assert ((chances >= 0) & (chances <= 1)).all()
    assert chances[bought].mean() > chances[~bought].mean()
    assert (windows.probabilities(wanted, windows.window(60)) >= chances - 1e-9).all()


def test_windows_that_the_data_says_nothing_about_are_refused(shop: Model) -> None:
    windows = shop.windows
    assert windows.window(7).gap == 0 and windows.window(7, windows.end + timedelta(days=9)).gap == 9
    assert windows.first_day(windows.window(7, windows.end + timedelta(days=9))) == windows.end + timedelta(days=9)
    for days, start, words in (
        (7, windows.end - timedelta(days=1), "data ends"),
        (7, windows.end + timedelta(days=4_000), "4,000 days after"),
        (windows.longest + 1, None, "has learnt windows"),
    ):
        with pytest.raises(DataError, match=words):
            windows.window(days, start)
    with pytest.raises(DataError, match="Nobody bought"):
        windows.probabilities(np.zeros(len(windows.item_labels), dtype=bool), windows.window(7))


def test_some_users_have_a_scorer_of_their_own(shop: Model) -> None:
    assert len(shop.windows.users) == len(shop.users)
    part = shop.for_users(shop.stored_users().head(120))
    assert len(part.windows.users) == 120 and len(shop.windows.users) == len(shop.users)
    events = pl.DataFrame({"user_id": ["new"], "item_id": [shop.items["item_id"][0]]})
    with pytest.raises(DataError, match="new histories"):
        _ = shop.with_histories(events).windows
