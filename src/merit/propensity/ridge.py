"""The regression from the labels of histories to the next ones, in closed form: where the factor model starts.

With X the histories and Y the golds of training users, W = (XᵀX + strength)⁻¹ XᵀY, and its best approximation of low
rank, U S Vᵀ, is a factor model: U √S are history factors, V √S label factors. The quick preset stays with that.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.linalg import qr, svd
from numpy.typing import NDArray
from pydantic import Field
from scipy.linalg import cho_factor, cho_solve

from merit.core.config import Frozen
from merit.core.ragged import Ragged, indicators
from merit.core.seeds import derive, stable_hash, stream
from merit.core.types import Floats, Ints
from merit.propensity.features import history_matrix, with_bias

Equations = tuple[NDArray[np.float64], NDArray[np.float64]]  # XᵀX (labels + 1, labels + 1) and XᵀY (labels + 1, labels)
SPARE, ROUNDS = 10, 8  # of subspace iteration: within 0.05 % of the best approximation


class RidgeConfig(Frozen):
    """How the regression is solved, and how much of it the factor model starts with."""

    weight: float = Field(5.0, ge=0)
    """Log-odds for a probability of one. 0 starts at random factors."""
    strength: float = Field(100.0, gt=0)
    """Of the regularisation. Histories are rows of length one, so one number fits every data set."""
    labels: int = Field(4_096, ge=1)
    """So many of the most popular labels are solved for, in memory of their square; the others start at random."""


def fold_of_users(users: list[str], folds: int, seed: int) -> Ints:
    """The fold of each of these users, a random one that depends on nobody else."""
    fold: Ints = (derive(stable_hash(users, "folds"), seed) % np.uint64(max(1, folds))).astype(np.int64)
    return fold


def most_bought(gold: Ragged, n_labels: int, most: int) -> Ints:
    """The labels bought most often, ascending."""
    bought = np.bincount(gold.values, minlength=n_labels)
    labels: Ints = np.sort(np.argsort(-bought, kind="stable")[:most])
    return labels


def equations(history: Ragged, times: NDArray[np.integer], gold: Ragged, n_labels: int, labels: Ints) -> Equations:
    """The normal equations of these labels, with a bias. Those of several parts of the users add up."""
    rows = with_bias(history_matrix(history, times, n_labels)[:, labels])
    golds: Any = indicators(gold, n_labels)[:, labels]
    return (rows.T @ rows).toarray().astype(np.float64), (rows.T @ golds).toarray().astype(np.float64)


def solve(parts: Equations, strength: float) -> Floats:
    """(labels, labels): the regression. The bias is solved for as well, and left out."""
    gram, to_gold = parts
    shrunk = gram + strength * np.eye(len(gram))
    solved = cho_solve(cho_factor(shrunk, overwrite_a=True), to_gold.copy(), overwrite_b=True)[:-1]
    weights: Floats = solved.astype(np.float32)
    return weights


def low_rank(weights: Floats, rank: int, seed: int) -> tuple[Floats, Floats]:
    """(labels, rank) twice: history and label factors, whose product is as near to the weights as so few can come."""
    rank = min(rank, len(weights))
    width = min(rank + SPARE, len(weights))
    basis = stream(seed, "ridge").standard_normal((len(weights), width), dtype=np.float32)
    for _ in range(ROUNDS):
        basis = qr(weights @ qr(weights.T @ basis)[0])[0]
    left, sizes, right = svd(basis.T @ weights, full_matrices=False)
    roots = np.sqrt(sizes[:rank])
    return (basis @ left[:, :rank]) * roots, right[:rank].T * roots


def ridge_factors(
    history: Ragged, times: NDArray[np.integer], gold: Ragged, n_labels: int, rank: int, config: RidgeConfig, seed: int
) -> tuple[Ints, Floats, Floats]:
    """The regression of the most popular labels, the history factors (labels, rank) of these, and the label factors.

    The product of both is the regression, as near as so few numbers come; the rank is smaller where labels are fewer.
    """
    labels = most_bought(gold, n_labels, config.labels)
    solved = solve(equations(history, times, gold, n_labels, labels), config.strength)
    return labels, *low_rank(config.weight * solved, rank, seed)
