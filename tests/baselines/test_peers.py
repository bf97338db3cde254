"""What practitioners use: settings chosen on validation users, and nothing more is begun when the time is over."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from merit.baselines import als as als_module
from merit.baselines import fitting
from merit.baselines.als import AlsConfig, als
from merit.baselines.boosted import BoostedConfig, boosted
from merit.baselines.fitting import best_trend, trending
from merit.baselines.linear import LinearConfig, linear
from merit.baselines.world import World
from merit.core.ragged import indicators


def test_the_best_settings_of_validation_users_win(world: World) -> None:
    single = [LinearConfig(strengths=(strength,), pulls=(pull,)) for strength in (1, 1000) for pull in (0.0, 0.3)]
    best = max(linear(world, 7, each).summary["validation_recall"] for each in single)
    both = linear(world, 7, LinearConfig(strengths=(1, 1000), pulls=(0.0, 0.3)))
    assert both.summary["validation_recall"] == pytest.approx(best)


def test_als_keeps_the_scores_of_its_best_candidate(world: World) -> None:
    poor, good = AlsConfig(factors=1, iterations=1), AlsConfig(factors=16)
    chosen = als(world, 7, (poor, good, poor))
    alone = als(world, 7, (good,))
    assert chosen.summary["validation_recall"] == alone.summary["validation_recall"]
    assert np.array_equal(chosen.ranked.values, alone.ranked.values)


def test_nothing_more_is_begun_when_the_time_is_over(world: World) -> None:
    late = replace(world, seconds=0.0)
    assert linear(late, 7).summary["strength"] == max(LinearConfig().strengths)
    assert boosted(late, 7).summary["models"] == 0
    assert als(late, 7).summary["regularization"] == 100


def test_labels_without_a_model_get_their_share_of_examples(world: World) -> None:
    answer = boosted(world, 7, BoostedConfig(models=2, iterations=5))
    assert answer.scores is not None
    scores = answer.scores(np.arange(len(world.labels)))
    rates = np.asarray(indicators(world.train.gold, len(world.labels)).mean(axis=0)).ravel()
    modelled = np.ptp(scores, axis=0) > 0
    assert modelled.sum() == answer.summary["models"] == 2
    assert set(np.flatnonzero(modelled)) == set(np.argsort(-rates, kind="stable")[:2])
    assert np.allclose(scores[0, ~modelled], rates[~modelled], atol=1e-6)


def test_als_folds_users_in_by_labels_and_words(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """The factors of a user are those of a weighted ridge over all columns, solved one user after the other."""
    config, fitted = AlsConfig(factors=5, iterations=2, words=0.1), []
    make = als_module._model
    monkeypatch.setattr(als_module, "_model", lambda *given: fitted.append(make(*given)) or fitted[0])
    fast = als_module._scores(world, config, 7)[len(world.validation) :]
    columns, labels = np.asarray(fitted[0].item_factors, np.float64), len(world.labels)
    assert len(columns) == labels + world.title_words
    test = world.test
    assert test.words is not None
    for row in range(0, len(test), 10):
        seen = np.zeros(len(columns))
        start, stop = test.history.offsets[row : row + 2]
        seen[test.history[row]] = np.log1p(test.counts[start:stop])
        start, stop = test.words.words.offsets[row : row + 2]
        seen[labels + test.words.words[row]] = config.words * np.log1p(test.words.times[start:stop])
        confidence = np.where(seen > 0, config.alpha * seen, 1)
        gram = (columns * confidence[:, None]).T @ columns + config.regularization * np.eye(config.factors)
        user = np.linalg.solve(gram, columns.T @ np.where(seen > 0, config.alpha * seen, 0))
        assert np.allclose(fast[row], columns[:labels] @ user, atol=1e-3)


def test_als_reads_reversed_histories(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    rows = []
    make = als_module._matrix
    monkeypatch.setattr(als_module, "_matrix", lambda *given: rows.append(given[1]) or make(*given))
    als(world, 7, (AlsConfig(factors=2, iterations=1),))
    assert len(rows[0]) == len(world.purchases) > len(world.train)


def test_scores_follow_recent_popularity(world: World) -> None:
    test, labels = world.test, len(world.labels)
    assert test.trends is not None
    scores = np.random.default_rng(7).random((len(test), labels)).astype(np.float32)
    slow = scores.copy()
    for row in range(len(test)):
        for label in range(labels):
            slow[row, label] *= np.exp(0.5 * float(test.trends.table[test.trends.weeks[row], label]))
    assert np.allclose(trending(scores, test, 0.5), slow, rtol=1e-3)
    assert trending(scores, world.offered(()).test, 0.5) is scores


def test_the_weight_of_trends_is_that_of_the_best_recall(world: World) -> None:
    scores = np.ones((len(world.validation), len(world.labels)), np.float32) + 1e-3 * world.popularity
    recalls = {
        weight: fitting.recall_of_scores(trending(scores, world.validation, weight), world)
        for weight in fitting.TREND_WEIGHTS
    }
    recall, weight = best_trend(scores, world)
    assert recall == recalls[weight] == max(recalls.values())
    assert best_trend(scores, world.offered(()))[1] == 0
