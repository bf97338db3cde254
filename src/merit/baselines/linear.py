"""Ridge regression from the history's labels to the gold ones: a matrix, solved in closed form, and hard to beat.

With X the histories, H the same without the bias, and Y the gold labels of training users,

    W = argmin |Y − pull·H − X W|² + strength·|W|²,     score = pull·h + x W

so that shrinking W leads back to the frequencies of the history (pull > 0) or to nothing (pull = 0, plain ridge).
Strength and pull are chosen on validation users. W itself, labels × labels, is never formed: only the rows of the
users to be scored are solved.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
from pydantic import Field
from scipy.linalg import cho_factor, cho_solve

from merit.baselines.fitting import TimeBudget, recall_of_scores
from merit.baselines.world import Answer, World, answer_of
from merit.core.config import Frozen
from merit.core.ragged import indicators
from merit.core.types import Floats, Ints
from merit.data.labelled import LabelledExamples
from merit.propensity.features import history_matrix, with_bias

BUDGETS = (5, 10, 20)  # settings are chosen by the mean recall at these


class LinearConfig(Frozen):
    """Every strength is tried with every pull, the strongest first, until the time is over."""

    strengths: tuple[float, ...] = (3, 10, 30, 100, 300, 1000)
    """Of the regularisation. Histories are rows of length one, so the same range fits every data set."""
    pulls: tuple[float, ...] = (0.0, 0.1, 0.3)
    """Towards the frequencies of the history: groceries repeat, beauty does not (docs/log.md)."""
    max_features: int = Field(8_000, ge=1)
    """So many of the most popular labels are read: the normal equations take the square of it in memory."""


@dataclass(frozen=True)
class _Problem:
    """The normal equations of the training users."""

    features: Ints
    gram: Any  # (F + 1, F + 1)
    to_gold: Floats  # (F + 1, labels)
    to_history: Floats  # (F + 1, labels)

    def scores(self, strength: float, users: Any, pulls: tuple[float, ...]) -> Iterator[Floats]:
        """(users, labels) for each pull, of users with these histories."""
        shrunk = self.gram + strength * np.eye(len(self.gram))
        factor = cho_factor(shrunk, overwrite_a=True, check_finite=False)
        rows = with_bias(users[:, self.features]).toarray().T.astype(np.float64)
        solved = cho_solve(factor, rows, check_finite=False).T.astype(np.float32)
        for pull in pulls:
            yield solved @ (self.to_gold - pull * self.to_history) + pull * users.toarray()


def linear(world: World, seed: int, config: LinearConfig | None = None) -> Answer:
    """Scores with the strength and pull of the best validation recall."""
    config = config or LinearConfig()
    budget = TimeBudget(world.seconds)
    problem = _problem(world, config)
    recall, strength, pull = _chosen(problem, world, config, budget)
    summary = {
        "parameters": float(problem.to_gold.size),
        "train_seconds": budget.used(),
        "strength": strength,
        "pull": pull,
        "validation_recall": recall,
    }
    (scores,) = problem.scores(strength, histories(world.test, len(world.labels)), (pull,))
    return answer_of(scores, world, budget.with_prediction(summary))


def histories(examples: LabelledExamples, n_labels: int) -> Any:
    """(examples, labels), sparse: rows of length one."""
    return history_matrix(examples.history, examples.counts, n_labels)


def _problem(world: World, config: LinearConfig) -> _Problem:
    n_labels = len(world.labels)
    features = np.sort(np.argsort(-world.popularity, kind="stable")[: config.max_features])
    history, gold = histories(world.train, n_labels), indicators(world.train.gold, n_labels)
    rows = with_bias(history[:, features])
    gram = (rows.T @ rows).toarray().astype(np.float64)
    return _Problem(features, gram, (rows.T @ gold).toarray(), (rows.T @ history).toarray())


def _chosen(problem: _Problem, world: World, config: LinearConfig, budget: TimeBudget) -> tuple[float, float, float]:
    """Validation recall, strength and pull. The strongest come first: they are safe when time runs out."""
    users = histories(world.validation, len(world.labels))
    tried = []
    for strength in sorted(config.strengths, reverse=True):
        scored = zip(config.pulls, problem.scores(strength, users, config.pulls), strict=True)
        tried += [(recall_of_scores(scores, world, BUDGETS), strength, pull) for pull, scores in scored]
        if budget.spent() >= 1:
            break
    return max(tried)
