"""Matrix factorisation as practitioners have it: `implicit`'s alternating least squares, over users and labels.

Fitted on what training users had and then bought; a test user is folded in from the history alone.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray
from pydantic import Field

from merit.baselines import dense, validation
from merit.baselines.budget import Budget
from merit.baselines.world import Answer, World
from merit.core.config import Frozen
from merit.core.errors import MissingDependency
from merit.core.ragged import Ragged, matrix
from merit.core.types import Floats
from merit.data.labelled import joined


class AlsConfig(Frozen):
    """Given to `implicit` under the same names; validation users choose among CANDIDATES."""

    factors: int = Field(64, ge=1)
    regularization: float = Field(0.05, ge=0)
    alpha: float = Field(10.0, gt=0)
    """How much more an event that happened weighs than one that did not."""
    iterations: int = Field(15, ge=1)


# How much is believed of what did not happen decides, and differs: households buy half of everything, others little.
CANDIDATES = tuple(AlsConfig(alpha=alpha, regularization=each) for alpha in (1.0, 10.0) for each in (100.0, 10.0, 0.05))


def als(world: World, seed: int, candidates: tuple[AlsConfig, ...] = CANDIDATES) -> Answer:
    """The candidate with the best recall on validation users, of those that were tried in time."""
    budget = Budget(world.seconds)
    asked = joined([world.validation, world.test])  # both are folded into the same factors
    train, first = (world.train.history, world.train.counts), len(world.validation)
    best, kept, config = -1.0, np.zeros((0, 0), np.float32), candidates[0]
    for each in candidates:
        found = scores(train, world.train.gold, (asked.history, asked.counts), len(world.labels), each, seed)
        recall = validation.recall_of_scores(found[:first], world)
        if recall > best:
            best, kept, config = recall, found[first:], each
        if budget.spent() >= 1:
            break
    told = {
        "parameters": float(config.factors * (len(world.train) + len(world.labels))),
        "train_seconds": budget.used(),
        "predict_seconds": 0.0,  # folding in is part of every try
        "alpha": config.alpha,
        "regularization": config.regularization,
        "validation_recall": best,
    }
    return dense.answer(kept, world, told)


def scores(
    train: tuple[Ragged, NDArray[np.int32]],
    gold: Ragged,
    test: tuple[Ragged, NDArray[np.int32]],
    n_labels: int,
    config: AlsConfig,
    seed: int,
) -> Floats:
    """(test users, labels). `train` and `test` are histories with their counts, `gold` what the former then bought."""
    model = _model(config, seed)
    model.fit(_matrix(*train, n_labels) + _matrix(gold, np.ones(len(gold.values), np.int32), n_labels), False)
    asked = _matrix(*test, n_labels)
    users = model.recalculate_user(np.arange(asked.shape[0]), asked)
    found: Floats = (users @ model.item_factors.T).astype(np.float32)
    return found


def _model(config: AlsConfig, seed: int) -> Any:
    try:
        from implicit.cpu.als import AlternatingLeastSquares
    except ImportError:
        raise MissingDependency("implicit is not installed. Install it with `pip install merit[peers]`.") from None
    return AlternatingLeastSquares(**config.model_dump(), random_state=seed, calculate_training_loss=False)


def _matrix(lists: Ragged, counts: NDArray[np.int32], n_labels: int) -> Any:
    """Counts are dampened: the tenth event of a label says less than the first."""
    return matrix(lists, np.log1p(counts), n_labels)
