"""The methods without a model say what the evaluator's own baselines say."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from merit.baselines import frequency
from merit.baselines.world import World
from merit.core.ragged import Ragged
from merit.evaluation import trivial
from merit.evaluation.predictions import Truth


def truth(world: World) -> Truth:
    test, size = world.test, len(world.labels)
    nobody = np.zeros(size, dtype=np.int64)
    users = np.arange(len(test))
    had, none = (test.history, test.counts, test.purchases), Ragged.empty(len(test))
    return Truth(test.gold, none, *had, users, nobody, ["all"], world.vectors, nobody)


def equal(one: Ragged, other: Ragged) -> bool:
    return np.array_equal(one.offsets, other.offsets) and np.array_equal(one.values, other.values)


def test_trivial_is_the_papers(world: World) -> None:
    free = frequency.trivial(world, 7).free
    assert free is not None
    assert equal(free, trivial.trivial(truth(world), world.popularity).free)


def test_history_frequency_is_filled_with_popular_labels(world: World) -> None:
    ranked = trivial.history_frequency_and_popularity(truth(world), world.popularity).ranked
    assert ranked is not None
    assert equal(frequency.history_frequency_and_popularity(world, 7).ranked, ranked)


def test_popularity_is_the_same_for_everyone(world: World) -> None:
    ranked = trivial.popular(truth(world), world.popularity).ranked
    assert ranked is not None
    answer = frequency.popularity(world, 7)
    assert equal(answer.ranked, ranked)
    assert answer.scores is not None
    assert np.ptp(answer.scores(np.arange(len(world.labels))), axis=0).max() == 0


def test_shares_do_not_depend_on_how_busy_a_user_is(world: World) -> None:
    busy = replace(world, test=replace(world.test, counts=1000 * world.test.counts))
    one, other = (
        frequency.history_frequency_and_popularity(world, 7),
        frequency.history_frequency_and_popularity(busy, 7),
    )
    assert one.scores is not None and other.scores is not None
    totals = one.scores(np.arange(len(world.labels))).sum(axis=1)
    assert (totals <= 1).all()
    assert np.abs(other.scores(np.arange(len(world.labels))).sum(axis=1) - 1).max() < 1e-3
