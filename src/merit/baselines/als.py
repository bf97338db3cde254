"""Matrix factorisation as practitioners use it: `implicit`'s alternating least squares, over users and labels.

Fitted on the history and the gold labels of training users; a test user is folded in from the history alone. Title
words are further columns, which are never recommended.
"""

from __future__ import annotations

from operator import itemgetter
from typing import Any

import numpy as np
from pydantic import Field
from scipy.sparse import hstack, vstack

from merit.baselines.fitting import TimeBudget, best_trend, recall_of_scores, trending
from merit.baselines.world import Answer, World, WorldExamples, answer_of
from merit.core import extras
from merit.core.config import Frozen
from merit.core.ragged import indicators, matrix
from merit.core.types import Floats


class AlsConfig(Frozen):
    """Given to `implicit` under the same names, but for `words`; validation users choose among CANDIDATES."""

    factors: int = Field(64, ge=1)
    regularization: float = Field(0.05, ge=0)
    alpha: float = Field(10.0, gt=0)
    """How much more an event that happened weighs than one that did not."""
    iterations: int = Field(15, ge=1)
    words: float = Field(0.0, ge=0)
    """What a title word weighs, where a label weighs one: a history has many more words."""


# How much an event that did not happen counts decides, and differs by data set: households buy half of all labels.
CANDIDATES = tuple(AlsConfig(alpha=alpha, regularization=by) for alpha in (1.0, 10.0) for by in (100.0, 10.0, 0.05))
WORDS = 0.1  # is tried with the best of them


def als(world: World, seed: int, candidates: tuple[AlsConfig, ...] = CANDIDATES) -> Answer:
    """The candidate with the best recall on validation users, of those that were fitted in time."""
    budget, first = TimeBudget(world.seconds), len(world.validation)

    def fitted(config: AlsConfig) -> tuple[float, AlsConfig, Floats]:
        scores = _scores(world, config, seed)
        return recall_of_scores(scores[:first], world), config, scores

    best = max(budget.while_left(map(fitted, candidates)), key=itemgetter(0))
    if world.title_words and budget.spent() < 1:
        best = max(best, fitted(best[1].model_copy(update={"words": WORDS})), key=itemgetter(0))
    _, config, scores = best
    recall, trend = best_trend(scores[:first], world)
    columns = len(world.labels) + (world.title_words if config.words else 0)
    summary = {
        "parameters": float(config.factors * (len(world.purchases) + columns)),
        "train_seconds": budget.used(),
        "predict_seconds": 0.0,  # folding in is part of the fit of every candidate
        "alpha": config.alpha,
        "regularization": config.regularization,
        "words": config.words,
        "trend": trend,
        "validation_recall": recall,
    }
    return answer_of(trending(scores[first:], world.test, trend), world, summary)


def _scores(world: World, config: AlsConfig, seed: int) -> Floats:
    """(validation and test users, labels): both are folded into the same factors."""
    model, n_labels = _model(config, seed), len(world.labels)
    train, *users = (_matrix(world, part, config) for part in (world.purchases, world.validation, world.test))
    gold = indicators(world.purchases.gold, n_labels) * np.log(2)
    gold.resize(train.shape)
    model.fit((train + gold).tocsr(), False)
    histories = vstack(users, format="csr")
    folded = model.recalculate_user(np.arange(histories.shape[0]), histories)
    scores: Floats = (folded @ model.item_factors[:n_labels].T).astype(np.float32)
    return scores


def _model(config: AlsConfig, seed: int) -> Any:
    with extras.needed_by("ALS"):
        from implicit.cpu.als import AlternatingLeastSquares
    settings = config.model_dump(exclude={"words"})
    return AlternatingLeastSquares(**settings, random_state=seed, calculate_training_loss=False)


def _matrix(world: World, examples: WorldExamples, config: AlsConfig) -> Any:
    """(examples, labels and words): log counts, for the tenth event of a label adds less than the first."""
    labels, words = matrix(examples.history, np.log1p(examples.counts), len(world.labels)), examples.words
    if words is None or not config.words:
        return labels
    return hstack([labels, matrix(words.words, config.words * np.log1p(words.times), world.title_words)]).tocsr()
