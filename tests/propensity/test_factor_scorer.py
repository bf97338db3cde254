"""The factor model in numpy against the one in torch, which training uses."""

from __future__ import annotations

import numpy as np
import torch

from merit.core.ragged import Ragged
from merit.data.trends import Trends
from merit.propensity.factor_model import FactorModel, summed_factors
from merit.propensity.factor_scorer import FactorScorer, FactorWeights
from merit.propensity.features import UserFeatures, no_states

LABELS, FACTORS, TEXT = 7, 5, 4
TRAINED = np.array([True] * 5 + [False, True])


def both() -> tuple[FactorModel, FactorScorer]:
    torch.manual_seed(0)
    model = FactorModel(FACTORS, TEXT, torch.from_numpy(TRAINED))
    with torch.no_grad():
        for value in model.parameters():
            value.copy_(torch.randn_like(value))
    texts = np.random.default_rng(1).standard_normal((LABELS, TEXT)).astype(np.float32)
    arrays = {name: value.numpy() for name, value in model.state_dict().items()}
    return model, FactorScorer(FactorWeights.of(arrays), texts, TRAINED)


def users() -> UserFeatures:
    history = Ragged.of([[0, 3, 5], [], [6], [1, 2, 3, 4, 5, 6]])
    times = np.array([1, 4, 2, 3, 1, 1, 1, 9, 2, 1], np.int32)
    trends = Trends(np.array([0, 1, 1, 2]), np.random.default_rng(2).standard_normal((3, LABELS)).astype(np.float16))
    return UserFeatures(no_states(4), history, times, trends=trends)


def test_scores_are_those_of_the_model_in_torch() -> None:
    model, scorer = both()
    for labels in (np.arange(LABELS), np.array([1, 3, 6])):
        with torch.no_grad():
            expected = model.grid(users(), torch.from_numpy(scorer.texts[labels]), labels).numpy()
        np.testing.assert_allclose(scorer.grid(scorer.users(users()), users(), labels), expected, atol=1e-5)


def test_users_are_those_of_the_model_in_torch_and_each_depends_on_itself_alone() -> None:
    model, scorer = both()
    with torch.no_grad():
        expected = model.user_factors(summed_factors(model, users())).numpy()
    found = scorer.users(users())
    np.testing.assert_allclose(found, expected, atol=1e-6)
    assert all((scorer.users(users().part(row, row + 1)) == found[row]).all() for row in range(4))


def test_a_label_newer_than_the_model_is_scored_by_its_text() -> None:
    _, scorer = both()
    grown = FactorScorer(scorer.weights, np.concatenate([scorer.texts, scorer.texts[:1]]), np.append(TRAINED, True))
    features = UserFeatures(no_states(1), Ragged.of([[0, LABELS]]), np.ones(2, np.int32))
    scores = grown.grid(grown.users(features), features, np.array([LABELS]))
    text = grown.users(features) @ (scorer.weights.of_text @ scorer.texts[0])
    first, often, share = scorer.weights.repeat
    repeated = first + often * np.log1p(1) + share * np.log(0.5)
    np.testing.assert_allclose(scores[0], text + scorer.weights.bias + repeated, atol=1e-5)
