"""Where the product starts: at a ridge regression from the labels of histories to the next ones, as factors.

With X the histories and Y the golds of training users, W = (XᵀX + strength)⁻¹ XᵀY has a closed form, and its best
approximation of low rank, U S Vᵀ, is a product already: U √S is what a label says of who had it, V √S what a label is.
Started there, training has only to learn what a linear model does not know (docs/decisions/0012-start-at-the-ridge.md).
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from pydantic import Field
from scipy.linalg import cho_factor, cho_solve
from scipy.sparse import csr_matrix, hstack

from merit.core.config import Frozen
from merit.core.ragged import Ragged, matrix
from merit.core.seeds import stream
from merit.core.types import Floats


class RidgeConfig(Frozen):
    """How the regression is solved, and how much of it the product starts with."""

    weight: float = Field(5.0, ge=0)
    """Log-odds for a probability of one. 0 starts the product at random numbers."""
    strength: float = Field(100.0, gt=0)
    """Of the regularisation. Histories are rows of length one, so one number fits every data set."""
    labels: int = Field(4_096, ge=1)
    """So many of the most popular labels are solved for, in memory of their square; the others start at random."""


class Factors(NamedTuple):
    """Of some labels: their product is the regression, as near as so few numbers come."""

    labels: NDArray[np.int64]
    says: Floats  # (labels, rank)
    own: Floats  # (labels, rank)


def factors(
    history: Ragged, times: NDArray[np.integer], gold: Ragged, n_labels: int, rank: int, config: RidgeConfig, seed: int
) -> Factors:
    """The rank is smaller where there are fewer labels."""
    from sklearn.utils.extmath import randomized_svd  # half a second, and only training needs it

    bought = np.bincount(gold.values, minlength=n_labels)
    labels = np.sort(np.argsort(-bought, kind="stable")[: config.labels])
    own = rows_of_length_one(history, times, n_labels)[:, labels]
    found = solve(own, matrix(gold, np.ones(len(gold.values)), n_labels)[:, labels], config.strength)
    lot = int(stream(seed, "ridge").integers(2**31))
    left, sizes, right = randomized_svd(config.weight * found, min(rank, len(labels)), random_state=lot)
    return Factors(labels, left * np.sqrt(sizes), right.T * np.sqrt(sizes))


def solve(own: Any, gold: Any, strength: float) -> Floats:
    """(labels had, labels bought). What is bought whatever was had is solved for as well, and left out."""
    rows = with_bias(own)
    gram = (rows.T @ rows).toarray().astype(np.float64) + strength * np.eye(rows.shape[1])
    to_gold = (rows.T @ gold).toarray().astype(np.float64)
    found: Floats = cho_solve(cho_factor(gram, overwrite_a=True), to_gold, overwrite_b=True)[:-1].astype(np.float32)
    return found


def with_bias(rows: Any) -> Any:
    """One more column, of ones."""
    return hstack([rows, csr_matrix(np.ones((rows.shape[0], 1), np.float32))]).tocsr()


def rows_of_length_one(history: Ragged, times: NDArray[np.integer], n_labels: int) -> Any:
    """(users, labels), sparse: dampened counts, every row of length one, so that the busy do not rule the fit."""
    rows = matrix(history, np.log1p(times), n_labels)
    sizes = np.sqrt(np.asarray(rows.multiply(rows).sum(axis=1))).ravel()
    return rows.multiply(1 / np.maximum(sizes, 1e-9)[:, None]).tocsr().astype(np.float32)
