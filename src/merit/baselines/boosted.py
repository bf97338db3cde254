"""What a marketing team has today: one boosted-tree model for each of the twenty most frequent labels.

Features are the counts and purchases of frequent labels, and how busy the user is. A label without a model gets the
share of training examples that have it, the same for every user, so all scores are probabilities.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray
from pydantic import Field

from merit.baselines.fitting import TimeBudget
from merit.baselines.world import Answer, World, answer_of
from merit.core.config import Frozen
from merit.core.ragged import indicators, matrix
from merit.core.types import Floats, Ints
from merit.data.labelled import LabelledExamples


class BoostedConfig(Frozen):
    """The same for each of the models; the most frequent labels get them, `models` at most."""

    models: int = Field(20, ge=1)
    features: int = Field(100, ge=1)
    """Labels whose counts and purchases are read: boosting looks at every feature in every split."""
    iterations: int = Field(100, ge=1)
    learning_rate: float = Field(0.1, gt=0)
    leaves: int = Field(15, ge=2)
    """Few: most labels are rare, and deep trees would learn single users by heart."""


def boosted(world: World, seed: int, config: BoostedConfig | None = None) -> Answer:
    """Probabilities by the models that were fitted in time, the most frequent labels first."""
    config = config or BoostedConfig()
    budget = TimeBudget(world.seconds)
    gold = indicators(world.train.gold, len(world.labels))
    rates = np.asarray(gold.mean(axis=0), dtype=np.float32).ravel()
    read = np.argsort(-world.popularity, kind="stable")[: config.features]
    train, test = (_features(part, read, len(world.labels)) for part in (world.train, world.test))
    scores: Floats = np.tile(rates, (len(world.test), 1))
    fitted, nodes = 0, 0
    for label in np.argsort(-np.where(world.popularity > 0, rates, 0), kind="stable")[: config.models]:
        if budget.spent() >= 1:
            break
        target = gold[:, [label]].toarray().ravel()
        if 0 < target.sum() < len(target):  # otherwise there is nothing to tell apart
            model = _model(config, seed).fit(train, target)
            scores[:, label] = model.predict_proba(test)[:, 1]
            fitted, nodes = fitted + 1, nodes + model.n_iter_ * (2 * config.leaves - 1)
    summary = {
        "parameters": float(nodes),
        "train_seconds": budget.used(),
        "predict_seconds": 0.0,  # twenty columns: nothing beside the training they are mixed with
        "models": float(fitted),
    }
    return answer_of(scores, world, summary)


def _features(examples: LabelledExamples, read: Ints, n_labels: int) -> NDArray[np.float32]:
    """(examples, 2 · labels read + 2)"""
    counts, purchases = (
        matrix(examples.history, values, n_labels)[:, read].toarray()
        for values in (examples.counts, examples.purchases)
    )
    busy = np.stack([examples.items.lengths(), examples.history.lengths()], axis=1)
    return np.concatenate([counts, purchases, busy], axis=1).astype(np.float32)


def _model(config: BoostedConfig, seed: int) -> Any:
    from sklearn.ensemble import HistGradientBoostingClassifier

    return HistGradientBoostingClassifier(
        max_iter=config.iterations,
        learning_rate=config.learning_rate,
        max_leaf_nodes=config.leaves,
        early_stopping=True,
        random_state=seed,
    )
