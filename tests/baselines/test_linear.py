"""The rows that are solved for are those of scikit-learn's ridge, and the pull leads back to the history."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from sklearn.linear_model import Ridge

from merit.baselines.fitting import TimeBudget
from merit.baselines.linear import LinearConfig, _problem, histories, linear, readings
from merit.baselines.world import World, WorldExamples
from merit.core.ragged import indicators
from merit.core.types import Floats


def features(examples: WorldExamples, labels: int, words: int) -> Floats:
    """Labels, words and a one, user by user."""
    rows = np.zeros((len(examples), labels + words + 1))
    assert examples.words is not None
    for row in range(len(examples)):
        start, stop = examples.history.offsets[row : row + 2]
        for label, count in zip(examples.history[row], examples.counts[start:stop], strict=True):
            rows[row, label] = np.log1p(count)
        start, stop = examples.words.words.offsets[row : row + 2]
        for word, count in zip(examples.words.words[row], examples.words.times[start:stop], strict=True):
            rows[row, labels + word] = np.log1p(count)
        for block in (slice(0, labels), slice(labels, labels + words)):
            rows[row, block] /= np.linalg.norm(rows[row, block]) or 1
        rows[row, -1] = 1  # a bias that is regularised like the rest
    return rows


@pytest.mark.parametrize("pull", [0.0, 0.3])
def test_it_is_ridge_regression(world: World, pull: float) -> None:
    """On all that is offered: reversed histories and title words as well."""
    strength, labels, words = 5.0, len(world.labels), world.title_words
    problem = _problem(world, LinearConfig(), 7, TimeBudget(60))
    (fast,) = problem.scores(strength, readings(world, world.test), (pull,))
    assert words and problem.examples == len(world.purchases) > len(world.train)
    train, test = (features(part, labels, words) for part in (world.purchases, world.test))
    gold = indicators(world.purchases.gold, labels).toarray().astype(np.float64)
    slow = Ridge(alpha=strength, fit_intercept=False).fit(train, gold - pull * train[:, :labels])
    assert np.allclose(fast, slow.predict(test) + pull * test[:, :labels], atol=1e-4)


def test_without_time_a_part_of_the_examples_is_read(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("merit.baselines.linear.BLOCK", 100)
    assert linear(replace(world, seconds=0.0), 7).summary["examples"] == 100


def test_histories_are_rows_of_length_one(world: World) -> None:
    rows = histories(world.train, len(world.labels))
    assert np.allclose(np.sqrt(rows.multiply(rows).sum(axis=1)), 1, atol=1e-5)


def test_without_weights_only_the_history_speaks(world: World) -> None:
    answer = linear(world.offered(()), 7, LinearConfig(strengths=(1e12,), pulls=(1.0,)))
    assert answer.scores is not None
    own = histories(world.test, len(world.labels)).toarray()
    live = world.labels.live_mask()
    assert np.allclose(answer.scores(np.flatnonzero(live)), own[:, live], atol=1e-5)


def test_few_features_still_score_all_labels(world: World) -> None:
    answer = linear(world, 7, LinearConfig(max_features=5))
    assert answer.summary["parameters"] == 6 * len(world.labels)
    assert len(np.unique(answer.ranked.values)) > 5
