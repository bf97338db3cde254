"""What practitioners use: settings chosen on validation users, and nothing more is begun when the time is over."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from merit.baselines.als import AlsConfig, als
from merit.baselines.boosted import BoostedConfig, boosted
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
