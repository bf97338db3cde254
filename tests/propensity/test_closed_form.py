"""The closed form on a planted world, and its parts against slow twins."""

from __future__ import annotations

import numpy as np
from sklearn.linear_model import LogisticRegression

from merit.core.ragged import Ragged
from merit.propensity import closed_form
from merit.propensity.closed_form import WEIGHTS, ClosedFormConfig, fit_closed_form
from merit.propensity.factor_scorer import FactorScorer
from merit.propensity.features import UserFeatures, no_states

LABELS = 12
LIVE = np.array([True] * (LABELS - 1) + [False])


def world(users: int, seed: int) -> tuple[UserFeatures, Ragged]:
    """Who has label c in the history buys label c + 1 in half of all cases, and else label 0."""
    rng = np.random.default_rng(seed)
    had = rng.integers(0, LABELS - 2, users)
    gold = np.where(rng.random(users) < 0.5, had + 1, 0)
    others = (had + rng.integers(3, LABELS - 2, users)) % (LABELS - 1)
    history = Ragged.of([sorted({int(a), int(b)}) for a, b in zip(had, others, strict=True)])
    return (
        UserFeatures(no_states(users), history, np.ones(len(history.values), np.int32)),
        Ragged.of([[int(label)] for label in gold]),
    )


def fitted(**settings: float) -> tuple[FactorScorer, dict[str, float]]:
    features, gold = world(4_000, 0)
    texts = np.random.default_rng(5).standard_normal((LABELS, 6)).astype(np.float32)
    config = ClosedFormConfig.model_validate({"factors": LABELS, "strength": 1.0, "sampled": 6} | settings)
    fold = np.arange(len(gold)) % 2
    weights, few = fit_closed_form(features, gold, fold, LIVE, texts, config, 7)
    return FactorScorer(weights, texts, LIVE), few


def test_it_finds_what_follows_what() -> None:
    scorer, _ = fitted()
    features = UserFeatures(no_states(8), Ragged.of([[c] for c in range(1, 9)]), np.ones(8, np.int32))
    scores = scorer.grid(scorer.users(features), features, np.arange(LABELS))
    best = np.argsort(-scores, axis=1)[:, :2]
    assert all({0, c + 1} == set(best[c - 1].tolist()) for c in range(1, 9))
    chances = 1 / (1 + np.exp(-scores[:, : LABELS - 1]))
    assert abs(chances.sum(axis=1).mean() - 1) < 0.4  # log-odds that are about right before calibration


def test_a_label_that_nobody_bought_before_has_what_its_text_says() -> None:
    scorer, _ = fitted(labels=6)  # the others are not solved for
    own, text = scorer.weights.label_factors, scorer.texts @ scorer.weights.of_text.T
    bare = np.flatnonzero(~own[:, :-1].any(axis=1))
    assert len(bare) == LABELS - 6
    np.testing.assert_allclose(scorer.label_factors[bare, :-1], text[bare, :-1], atol=1e-6)


def test_the_same_seed_gives_the_same_bits() -> None:
    (one, few), (other, others) = fitted(), fitted()
    assert few == others
    assert all((array == other.weights.arrays()[name]).all() for name, array in one.weights.arrays().items())


def test_the_few_weights_are_those_of_a_logistic_regression() -> None:
    rng = np.random.default_rng(3)
    columns = rng.standard_normal((3_000, len(WEIGHTS))).astype(np.float32)
    columns[:, 2] *= 40
    columns[:, -1] = 1
    truth = rng.random(3_000) < 1 / (1 + np.exp(-columns[:, 3] + columns[:, 5]))
    pairs = closed_form._Pairs(np.zeros(3_000, np.int64), np.zeros(3_000, np.int64), truth, rng.random(3_000) + 0.5)
    found = closed_form._logistic(columns, pairs)
    shrink = closed_form.SHRINK * (pairs.weights * truth).sum()
    judge = LogisticRegression(C=1 / (2 * shrink), tol=1e-10, max_iter=10_000)
    scale = columns[:, :-1].std(axis=0)
    judge.fit(columns[:, :-1] / scale, truth, sample_weight=pairs.weights)
    np.testing.assert_allclose(found, [*(judge.coef_[0] / scale), judge.intercept_[0]], atol=2e-3)


def test_sampled_pairs_stand_for_all() -> None:
    features, gold = world(300, 1)
    chosen = np.arange(0, 300, 2)
    pairs = closed_form._sampled(features.history, gold, chosen, LIVE, 64, 7)
    assert LIVE[pairs.labels].all() and len(np.unique(pairs.owner * LABELS + pairs.labels)) == len(pairs.owner)
    totals = np.bincount(pairs.owner, weights=pairs.weights)
    np.testing.assert_allclose(totals, LIVE.sum())
    bought = np.sort(pairs.owner[pairs.truth] * LABELS + pairs.labels[pairs.truth])
    assert bought.tolist() == [row * LABELS + int(gold[user][0]) for row, user in enumerate(chosen.tolist())]
