"""Every method meets the same small planted world and keeps the same promises."""

from __future__ import annotations

import numpy as np
import pytest

from merit.baselines import als as als_module
from merit.baselines import fitting
from merit.baselines.methods import METHODS, OFFERED, READS, method
from merit.baselines.world import Answer, World
from merit.core.ragged import Ragged, head
from merit.core.types import Floats
from merit.evaluation.predictions import BUDGET, recall
from tests.baselines.small import ticking

Small = tuple[World, Ragged]

QUICK = {"trivial", "popularity", "history frequency", "linear", "ALS", "label tree"}
NAMES = [pytest.param(name, marks=() if name in QUICK else pytest.mark.slow) for name in METHODS]


def answered(name: str, world: World, monkeypatch: pytest.MonkeyPatch) -> Answer:
    monkeypatch.setattr(fitting, "clock", ticking())
    return method(name)(world.offered(READS[name]), 7)


@pytest.mark.parametrize("name", NAMES)
def test_a_method_keeps_its_promises(name: str, world_and_gold: Small, monkeypatch: pytest.MonkeyPatch) -> None:
    world, gold = world_and_gold
    answer = answered(name, world, monkeypatch)
    live = world.labels.live_mask()
    for said in (answer.ranked, *([answer.free] if answer.free else [])):
        assert len(said) == len(world.test)
        assert live[said.values].all()
        assert all(len(set(said[row].tolist())) == len(said[row]) for row in range(len(said)))
    assert answer.ranked.lengths().min() >= min(BUDGET, int(live.sum()))
    assert {"parameters", "train_seconds", "predict_seconds"} <= answer.summary.keys()
    in_order(answer, world)
    better_than_chance(answer, world, gold)
    same(answer, answered(name, world, monkeypatch), len(world.labels))


def in_order(answer: Answer, world: World) -> None:
    """Scores are finite, zero for what may not be said, and fall along the ranked list."""
    if answer.scores is None:
        return
    scores = answer.scores(np.arange(len(world.labels)))
    assert scores.shape == (len(world.test), len(world.labels))
    assert np.isfinite(scores).all()
    assert not scores[:, ~world.labels.live_mask()].any()
    for row in range(len(scores)):
        assert (np.diff(scores[row, answer.ranked[row]]) <= 0).all()


def better_than_chance(answer: Answer, world: World, gold: Ragged) -> None:
    """By three standard errors: a random ranking finds a gold as often as any label is in the list."""
    chance = BUDGET / int(world.labels.live_mask().sum())
    error = np.sqrt(chance * (1 - chance) / len(gold.values))
    assert recall(head(answer.ranked, BUDGET), gold) > chance + 3 * error


def same(one: Answer, other: Answer, n_labels: int) -> None:
    assert np.array_equal(one.ranked.values, other.ranked.values)
    assert (one.free is None) == (other.free is None)
    if one.free is not None and other.free is not None:
        assert np.array_equal(one.free.values, other.free.values)
    if one.scores is not None and other.scores is not None:
        assert np.array_equal(one.scores(np.arange(n_labels)), other.scores(np.arange(n_labels)))


def test_every_method_says_what_it_reads() -> None:
    assert list(READS) == list(METHODS)


@pytest.mark.parametrize("name", sorted(QUICK))
def test_the_table_names_all_that_is_read(name: str, world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """What a method does not name changes nothing, and without what it names it answers otherwise."""
    fits: list[int] = []
    monkeypatch.setattr(fitting, "TREND_WEIGHTS", (1.0,))
    monkeypatch.setattr(als_module, "recall_of_scores", lambda *_: fits.append(1) or len(fits))  # the last fit wins

    def scores(reads: tuple[str, ...]) -> Floats:
        fits.clear()
        monkeypatch.setattr(fitting, "clock", ticking())
        given = method(name)(world.offered(reads), 7).scores
        assert given is not None
        return given(np.arange(len(world.labels)))

    usual = scores(READS[name])
    assert np.array_equal(usual, scores((*READS[name], *OFFERED)))
    for read in set(OFFERED) & set(READS[name]):
        assert not np.array_equal(usual, scores(tuple(set(READS[name]) - {read}))), read


def test_the_world_does_not_know_what_test_users_bought(world_and_gold: Small) -> None:
    world, gold = world_and_gold
    assert len(gold.values)
    assert not len(world.test.gold.values)
    assert not len(world.test.later.values) and not len(world.test.target_items.values)
