"""Ridge regression from the history's labels to the next ones: a matrix, solved in closed form, and hard to beat.

With X the histories, H the same without the bias, and Y the golds of training users,

    W = argmin |Y − pull·H − X W|² + strength·|W|²,     score = pull·h + x W

so that shrinking W leads back to the history's own frequencies (pull > 0) or to nothing (pull = 0, plain ridge).
Strength and pull are chosen on validation users. W itself, labels × labels, is never formed: only the rows that are
asked for are solved.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
from pydantic import Field
from scipy.linalg import cho_factor, cho_solve

from merit.baselines import dense, validation
from merit.baselines.budget import Budget
from merit.baselines.world import Answer, World
from merit.core.config import Frozen
from merit.core.types import Floats, Ints
from merit.data.labelled import Labelled
from merit.propensity.ridge import rows_of_length_one, with_bias

BUDGETS = (5, 10, 20)  # settings are chosen by the mean recall at these


class LinearConfig(Frozen):
    """Every strength is tried with every pull, the strongest first, until the time is over."""

    strengths: tuple[float, ...] = (3, 10, 30, 100, 300, 1000)
    """Of the regularisation. Histories are rows of length one, so the same range fits every data set."""
    pulls: tuple[float, ...] = (0.0, 0.1, 0.3)
    """Towards the history's own frequencies: groceries repeat, beauty does not (docs/log.md)."""
    max_features: int = Field(8_000, ge=1)
    """So many of the most popular labels are read: the normal equations take the square of it in memory."""


@dataclass(frozen=True)
class _Problem:
    """The normal equations of the training users."""

    features: Ints
    gram: Any  # (F + 1, F + 1)
    to_gold: Floats  # (F + 1, labels)
    to_own: Floats  # (F + 1, labels)

    def scores(self, factor: Any, own: Any, pulls: tuple[float, ...]) -> Iterator[Floats]:
        """(users, labels) for each pull, of users with these histories."""
        rows = with_bias(own[:, self.features]).toarray().T.astype(np.float64)
        solved = cho_solve(factor, rows, check_finite=False).T.astype(np.float32)
        for pull in pulls:
            yield solved @ (self.to_gold - pull * self.to_own) + pull * own.toarray()


def linear(world: World, seed: int, config: LinearConfig | None = None) -> Answer:
    """Solve for every strength, keep the settings with the best validation recall, score the test users."""
    config = config or LinearConfig()
    budget = Budget(world.seconds)
    problem = _problem(world, config)
    strength, pull, recall = _chosen(problem, world, config, budget)
    trained = budget.used()
    own = histories(world.test, len(world.labels))
    (scores,) = problem.scores(_factor(problem, strength), own, (pull,))
    told = {
        "parameters": float(problem.to_gold.size),
        "train_seconds": trained,
        "predict_seconds": budget.used() - trained,
        "strength": strength,
        "pull": pull,
        "validation_recall": recall,
    }
    return dense.answer(scores, world, told)


def histories(examples: Labelled, n_labels: int) -> Any:
    """(examples, labels), sparse."""
    return rows_of_length_one(examples.history, examples.counts, n_labels)


def _problem(world: World, config: LinearConfig) -> _Problem:
    n_labels = len(world.labels)
    features = np.sort(np.argsort(-world.popularity, kind="stable")[: config.max_features])
    own, gold = histories(world.train, n_labels), dense.gold_matrix(world.train.gold, n_labels)
    rows = with_bias(own[:, features])
    gram = (rows.T @ rows).toarray().astype(np.float64)
    return _Problem(features, gram, (rows.T @ gold).toarray(), (rows.T @ own).toarray())


def _factor(problem: _Problem, strength: float) -> Any:
    return cho_factor(problem.gram + strength * np.eye(len(problem.gram)), overwrite_a=True, check_finite=False)


def _chosen(problem: _Problem, world: World, config: LinearConfig, budget: Budget) -> tuple[float, float, float]:
    """Strength, pull and their validation recall. The strongest come first: they are safe when time runs out."""
    own = histories(world.validation, len(world.labels))
    tried = []
    for strength in sorted(config.strengths, reverse=True):
        for pull, scores in zip(
            config.pulls, problem.scores(_factor(problem, strength), own, config.pulls), strict=True
        ):
            tried.append((validation.recall_of_scores(scores, world, BUDGETS), strength, pull))
        if budget.spent() >= 1:
            break
    recall, strength, pull = max(tried)
    return strength, pull, recall
