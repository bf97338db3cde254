"""What practitioners use: settings chosen on validation users, and nothing more is begun when the time is over."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from merit.baselines import dense, validation
from merit.baselines.als import AlsConfig, als
from merit.baselines.boosted import BoostedConfig, boosted
from merit.baselines.linear import LinearConfig, linear
from merit.baselines.world import World
from merit.baselines.xmc import XmcConfig, xmc
from merit.core.ragged import Ragged
from tests.baselines.small import make_small


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> World:
    return make_small(Path(tmp_path_factory.mktemp("shop")))[0]


def test_recall_counts_golds_row_by_row() -> None:
    said, gold = Ragged.of([[1, 2], [3], []]), Ragged.of([[2, 3], [3], [1]])
    assert validation.recall(said, gold) == pytest.approx(2 / 4)


def test_the_best_settings_of_validation_users_win(world: World) -> None:
    single = [LinearConfig(strengths=(strength,), pulls=(pull,)) for strength in (1, 1000) for pull in (0.0, 0.3)]
    best = max(linear(world, 7, each).told["validation_recall"] for each in single)
    both = linear(world, 7, LinearConfig(strengths=(1, 1000), pulls=(0.0, 0.3)))
    assert both.told["validation_recall"] == pytest.approx(best)


def test_als_keeps_the_scores_of_its_best_candidate(world: World) -> None:
    poor, good = AlsConfig(factors=1, iterations=1), AlsConfig(factors=16)
    chosen = als(world, 7, (poor, good, poor))
    alone = als(world, 7, (good,))
    assert chosen.told["validation_recall"] == alone.told["validation_recall"]
    assert np.array_equal(chosen.ranked.values, alone.ranked.values)


def test_nothing_more_is_begun_when_the_time_is_over(world: World) -> None:
    late = replace(world, seconds=0.0)
    assert linear(late, 7).told["strength"] == max(LinearConfig().strengths)
    assert boosted(late, 7).told["models"] == 0
    assert als(late, 7).told["regularization"] == 100


def test_labels_without_a_model_get_their_share_of_examples(world: World) -> None:
    answer = boosted(world, 7, BoostedConfig(models=2, iterations=5))
    assert answer.scores is not None
    scores = answer.scores(np.arange(len(world.labels)))
    rates = np.asarray(dense.gold_matrix(world.train.gold, len(world.labels)).mean(axis=0)).ravel()
    modelled = np.ptp(scores, axis=0) > 0
    assert modelled.sum() == answer.told["models"] == 2
    assert set(np.flatnonzero(modelled)) == set(np.argsort(-rates, kind="stable")[:2])
    assert np.allclose(scores[0, ~modelled], rates[~modelled], atol=1e-6)


def test_the_label_tree_gives_probabilities(world: World) -> None:
    answer = xmc(world, 7, XmcConfig(prune=0.0))
    assert answer.scores is not None
    scores = answer.scores(np.arange(len(world.labels)))
    assert scores.min() >= 0 and scores.max() <= 1
    assert scores.sum(axis=1).mean() == pytest.approx(world.train.gold.lengths().mean(), rel=0.3)
    assert answer.told["parameters"] > len(world.labels)
