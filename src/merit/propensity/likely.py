"""How much the generator's likely labels add to a score: a logistic regression on users who are not trained on.

    log-odds of a purchase = a · score + b · likely + c        likely_weight = b / a

Calibration comes after it, so that only the ratio matters. Both regressors are log-odds or close to them: a handful of
validation users is enough for three numbers, where an MLP over states would need many training users.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from merit.core.types import Floats

STEPS = 25
ENOUGH = 1e-6  # a step so small ends the search


class Pairs(NamedTuple):
    """Scores of users and labels without likely labels, what these would add, and which pairs came true."""

    scores: Floats
    likely: Floats
    truth: NDArray[np.bool_]


def fit_weight(blocks: Sequence[Pairs]) -> float:
    """b / a by Newton's method; zero where likely labels do not help, or nobody has any."""
    if not any(block.likely.any() for block in blocks):
        return 0.0
    weights = np.array([1.0, 0.0, 0.0])
    for _ in range(STEPS):
        gradient, curvature = np.zeros(3), 1e-9 * np.eye(3)
        for block in blocks:
            values = np.stack([block.scores.ravel(), block.likely.ravel(), np.ones(block.scores.size)]).astype(float)
            chances = 1 / (1 + np.exp(-np.clip(weights @ values, -50, 50)))
            gradient += values @ (block.truth.ravel() - chances)
            curvature += (values * (chances * (1 - chances))) @ values.T
        step = np.linalg.solve(curvature, gradient)
        weights += step
        if np.abs(step).max() < ENOUGH:
            break
    return float(max(0.0, weights[1] / weights[0])) if weights[0] > 0 else 0.0
