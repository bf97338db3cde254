"""How long a list should be, by the expected F-score of calibrated probabilities."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray
from pydantic import Field

from merit.core.config import Frozen
from merit.core.types import Ints

Doubles = NDArray[np.float64]


class LengthConfig(Frozen):
    """Where a list ends: whether precision or recall counts for more."""

    recall_weight: float = Field(1.0, gt=0)
    """β of the F-score: 1 weighs precision and recall alike, 2 makes longer lists."""


def best_lengths(best: Doubles, expected: Doubles, config: LengthConfig | None = None) -> Ints:
    """(users,): the length at which the expected F-score of a list is highest, at least 1; of equal ones the shortest.

    `best` (users, k) are the calibrated probabilities of each user's first labels, falling; `expected` (users,) is how
    many of all labels are expected to be right. The first k labels are expected to hold Σ_{i≤k} p_i of them, so that
    F_β(k) ≈ (1 + β²) Σ_{i≤k} p_i / (k + β² Σ_i p_i), the ratio of expectations. Nothing is learnt for it.
    """
    weight = (config or LengthConfig()).recall_weight ** 2
    sizes = np.arange(1, best.shape[1] + 1)
    scores = (1 + weight) * np.cumsum(best, axis=1, dtype=np.float64) / (sizes + weight * expected[:, None])
    lengths: Ints = 1 + np.argmax(scores, axis=1)
    return lengths
