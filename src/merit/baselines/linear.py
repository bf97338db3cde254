"""Ridge regression from the history's labels and title words to the gold labels: solved in closed form, hard to beat.

With H the labels of histories, X the same with title words and a bias, and Y the gold labels of training users,

    W = argmin |Y − pull·H − X W|² + strength·|W|²,     score = pull·h + x W

so that shrinking W leads back to the frequencies of the history (pull > 0) or to nothing (pull = 0, plain ridge).
Strength and pull are chosen on validation users, and so is how much recent popularity counts. W itself, (labels and
words) × labels, is never formed: only the rows of the users to be scored are solved.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
from pydantic import Field
from scipy.linalg import cho_factor, cho_solve
from scipy.sparse import hstack

from merit.baselines.fitting import TimeBudget, best_trend, recall_of_scores, trending
from merit.baselines.world import Answer, World, WorldExamples, answer_of
from merit.core.config import Frozen
from merit.core.ragged import indicators
from merit.core.seeds import stream
from merit.core.types import Floats, Ints
from merit.data.labelled import LabelledExamples
from merit.propensity.features import history_matrix, with_bias

BUDGETS = (5, 10, 20)  # settings are chosen by the mean recall at these
BLOCK = 16_384  # examples added to the normal equations at a time
SHARE = 0.5  # of the time is for them: further examples are left out


class LinearConfig(Frozen):
    """Every strength is tried with every pull, the strongest first, until the time is over."""

    strengths: tuple[float, ...] = (3, 10, 30, 100, 300, 1000)
    """Of the regularisation. Histories are rows of length one, so the same range fits every data set."""
    pulls: tuple[float, ...] = (0.0, 0.1, 0.3)
    """Towards the frequencies of the history: groceries repeat, beauty does not (docs/log.md)."""
    max_features: int = Field(8_000, ge=1)
    """So many labels and words are read, those in most histories: the normal equations take the square of it in
    memory."""


@dataclass(frozen=True)
class _Problem:
    """The normal equations of the training users."""

    features: Ints
    """The columns that are read, of labels and words."""
    gram: Any  # (F + 1, F + 1)
    to_gold: Floats  # (F + 1, labels)
    to_history: Floats  # (F + 1, labels)
    examples: int

    def scores(self, strength: float, users: Any, pulls: tuple[float, ...]) -> Iterator[Floats]:
        """(users, labels) for each pull, of users with these readings."""
        shrunk = self.gram + strength * np.eye(len(self.gram))
        factor = cho_factor(shrunk, overwrite_a=True, check_finite=False)
        rows = with_bias(users[:, self.features]).toarray().T.astype(np.float64)
        solved = cho_solve(factor, rows, check_finite=False).T.astype(np.float32)
        gold, rest = solved @ self.to_gold, users[:, : self.to_gold.shape[1]].toarray() - solved @ self.to_history
        for pull in pulls:
            yield gold + pull * rest


def linear(world: World, seed: int, config: LinearConfig | None = None) -> Answer:
    """Scores with the strength and pull of the best validation recall."""
    config = config or LinearConfig()
    budget = TimeBudget(world.seconds)
    problem = _problem(world, config, seed, budget)
    recall, strength, pull, trend = _chosen(problem, world, config, budget)
    summary = {
        "parameters": float(problem.to_gold.size),
        "train_seconds": budget.used(),
        "strength": strength,
        "pull": pull,
        "trend": trend,
        "examples": float(problem.examples),
        "validation_recall": recall,
    }
    (scores,) = problem.scores(strength, readings(world, world.test), (pull,))
    return answer_of(trending(scores, world.test, trend), world, budget.with_prediction(summary))


def histories(examples: LabelledExamples, n_labels: int) -> Any:
    """(examples, labels), sparse: rows of length one."""
    return history_matrix(examples.history, examples.counts, n_labels)


def readings(world: World, examples: WorldExamples) -> Any:
    """(examples, labels and title words), sparse: a row of length one of either."""
    labels, words = histories(examples, len(world.labels)), examples.words
    return hstack([labels, history_matrix(words.words, words.times, world.title_words)]).tocsr() if words else labels


def _problem(world: World, config: LinearConfig, seed: int, budget: TimeBudget) -> _Problem:
    """Of the examples, in random order, that fit into a part of the time."""
    n_labels, read = len(world.labels), readings(world, world.purchases)
    features = np.sort(np.argsort(-read.getnnz(axis=0), kind="stable")[: config.max_features])
    order, size = stream(seed, "linear").permutation(read.shape[0]), 1 + len(features)
    gram = np.zeros((size, size))
    to_gold, to_history = np.zeros((2, size, n_labels), np.float32)
    gold = indicators(world.purchases.gold, n_labels)
    for start in range(0, len(order), BLOCK):
        part = np.sort(order[start : start + BLOCK])
        rows = with_bias(read[part][:, features])
        gram += (rows.T @ rows).toarray()
        to_gold += (rows.T @ gold[part]).toarray()
        to_history += (rows.T @ read[part][:, :n_labels]).toarray()
        if budget.spent() >= SHARE:
            break
    return _Problem(features, gram, to_gold, to_history, min(start + BLOCK, len(order)))


def _chosen(problem: _Problem, world: World, config: LinearConfig, budget: TimeBudget) -> tuple[float, ...]:
    """Validation recall, strength, pull, and then the weight of trends. The strongest come first: they are safe when
    time runs out."""
    users, best, chosen = readings(world, world.validation), (-1.0, 0.0, 0.0), np.zeros((0, 0), np.float32)
    for strength in budget.while_left(sorted(config.strengths, reverse=True)):
        for pull, scores in zip(config.pulls, problem.scores(strength, users, config.pulls), strict=True):
            tried = (recall_of_scores(scores, world, BUDGETS), strength, pull)
            if tried > best:
                best, chosen = tried, scores
    recall, trend = best_trend(chosen, world, BUDGETS)
    return recall, *best[1:], trend
