"""Matrix factorisation as practitioners use it: `implicit`'s alternating least squares, over users and labels.

Fitted on the history and the gold labels of training users; a test user is folded in from the history alone.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray
from pydantic import Field

from merit.baselines.fitting import TimeBudget, recall_of_scores
from merit.baselines.world import Answer, World, answer_of
from merit.core.config import Frozen
from merit.core.errors import MissingDependency
from merit.core.ragged import Ragged, matrix, stacked
from merit.core.types import Floats
from merit.data.labelled import LabelledExamples


class AlsConfig(Frozen):
    """Given to `implicit` under the same names; validation users choose among CANDIDATES."""

    factors: int = Field(64, ge=1)
    regularization: float = Field(0.05, ge=0)
    alpha: float = Field(10.0, gt=0)
    """How much more an event that happened weighs than one that did not."""
    iterations: int = Field(15, ge=1)


# How much an event that did not happen counts decides, and differs by data set: households buy half of all labels.
CANDIDATES = tuple(AlsConfig(alpha=alpha, regularization=by) for alpha in (1.0, 10.0) for by in (100.0, 10.0, 0.05))


def als(world: World, seed: int, candidates: tuple[AlsConfig, ...] = CANDIDATES) -> Answer:
    """The candidate with the best recall on validation users, of those that were fitted in time."""
    budget = TimeBudget(world.seconds)
    users, first = (world.validation, world.test), len(world.validation)  # both are folded into the same factors
    counts = np.concatenate([part.counts for part in users])
    histories = _matrix(stacked([part.history for part in users]), counts, len(world.labels))
    best, chosen, config = -1.0, np.zeros((0, 0), np.float32), candidates[0]
    for candidate in candidates:
        scores = _scores(world.train, histories, candidate, seed)
        recall = recall_of_scores(scores[:first], world)
        if recall > best:
            best, chosen, config = recall, scores[first:], candidate
        if budget.spent() >= 1:
            break
    summary = {
        "parameters": float(config.factors * (len(world.train) + len(world.labels))),
        "train_seconds": budget.used(),
        "predict_seconds": 0.0,  # folding in is part of the fit of every candidate
        "alpha": config.alpha,
        "regularization": config.regularization,
        "validation_recall": best,
    }
    return answer_of(chosen, world, summary)


def _scores(train: LabelledExamples, histories: Any, config: AlsConfig, seed: int) -> Floats:
    """(users, labels), of users with these histories."""
    model, (users, n_labels) = _model(config, seed), histories.shape
    gold = _matrix(train.gold, np.ones(len(train.gold.values), np.int32), n_labels)
    model.fit(_matrix(train.history, train.counts, n_labels) + gold, False)
    folded = model.recalculate_user(np.arange(users), histories)
    scores: Floats = (folded @ model.item_factors.T).astype(np.float32)
    return scores


def _model(config: AlsConfig, seed: int) -> Any:
    try:
        from implicit.cpu.als import AlternatingLeastSquares
    except ImportError:
        raise MissingDependency("implicit is not installed. Install it with `pip install merit[peers]`.") from None
    return AlternatingLeastSquares(**config.model_dump(), random_state=seed, calculate_training_loss=False)


def _matrix(lists: Ragged, counts: NDArray[np.int32], n_labels: int) -> Any:
    """Log counts: the tenth event of a label adds less than the first."""
    return matrix(lists, np.log1p(counts), n_labels)
