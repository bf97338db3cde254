"""Methods without a model: popularity, the history's frequencies, and the paper's Trivial.

One formula serves all three: a user's events with a label, plus one event that is divided among labels by popularity.
Shares of it are comparable across users, however busy they are, and rank as count, then popularity, then number.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from merit.baselines.fitting import TimeBudget
from merit.baselines.world import Answer, World, answer_of
from merit.core.ragged import head, matrix, owners, select
from merit.evaluation.predictions import LENGTH


def popularity(world: World, seed: int) -> Answer:
    """The same labels for every user."""
    return _shares(world, np.zeros_like(world.test.counts))


def history_frequency_and_popularity(world: World, seed: int) -> Answer:
    """The labels most frequent in the history, then the most popular ones."""
    return _shares(world, world.test.counts)


def trivial(world: World, seed: int) -> Answer:
    """The paper's: the five most frequently purchased labels. At free length, a user without purchases has none."""
    answer = _shares(world, world.test.purchases)
    bought = matrix(world.test.history, world.test.purchases, len(world.labels)).toarray()
    first = head(answer.ranked, LENGTH)
    return replace(answer, free=select(first, bought[owners(first), first.values] > 0))


def _shares(world: World, events: NDArray[np.int32]) -> Answer:
    budget = TimeBudget(world.seconds)
    shared = world.popularity / max(1, int(world.popularity.sum()) + 1)  # the sum stays under one event
    counts = matrix(world.test.history, events, len(world.labels)).toarray().astype(np.float64)
    scores = (counts + shared) / (counts.sum(axis=1, keepdims=True) + 1)
    return answer_of(scores, world, budget.with_prediction({"parameters": 0.0, "train_seconds": 0.0}))
