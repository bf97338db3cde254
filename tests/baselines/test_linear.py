"""The rows that are solved for are those of scikit-learn's ridge, and the pull leads back to the history."""

from __future__ import annotations

import numpy as np
import pytest
from sklearn.linear_model import Ridge

from merit.baselines.linear import LinearConfig, _problem, histories, linear
from merit.baselines.world import World
from merit.core.ragged import indicators


@pytest.mark.parametrize("pull", [0.0, 0.3])
def test_it_is_ridge_regression(world: World, pull: float) -> None:
    problem, strength, size = _problem(world, LinearConfig()), 5.0, len(world.labels)
    (fast,) = problem.scores(strength, histories(world.test, size), (pull,))
    train, test = (histories(part, size).toarray().astype(np.float64) for part in (world.train, world.test))
    gold = indicators(world.train.gold, size).toarray().astype(np.float64)
    ones = (np.ones((len(train), 1)), np.ones((len(test), 1)))  # a bias that is regularised like the rest
    slow = Ridge(alpha=strength, fit_intercept=False).fit(np.hstack([train, ones[0]]), gold - pull * train)
    assert np.allclose(fast, slow.predict(np.hstack([test, ones[1]])) + pull * test, atol=1e-4)


def test_histories_are_rows_of_length_one(world: World) -> None:
    rows = histories(world.train, len(world.labels))
    assert np.allclose(np.sqrt(rows.multiply(rows).sum(axis=1)), 1, atol=1e-5)


def test_without_weights_only_the_history_speaks(world: World) -> None:
    answer = linear(world, 7, LinearConfig(strengths=(1e12,), pulls=(1.0,)))
    assert answer.scores is not None
    own = histories(world.test, len(world.labels)).toarray()
    live = world.labels.live_mask()
    assert np.allclose(answer.scores(np.flatnonzero(live)), own[:, live], atol=1e-5)


def test_few_features_still_score_all_labels(world: World) -> None:
    answer = linear(world, 7, LinearConfig(max_features=5))
    assert answer.summary["parameters"] == 6 * len(world.labels)
    assert len(np.unique(answer.ranked.values)) > 5
