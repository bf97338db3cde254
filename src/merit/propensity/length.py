"""How long a list of interests should be: as long as the expected F-score grows.

With calibrated probabilities p_1 ≥ p_2 ≥ …, the first k labels are expected to hold Σ_{i≤k} p_i of the Σ_i p_i labels
that are right, so that

    F_β(k) ≈ (1 + β²) Σ_{i≤k} p_i / (k + β² Σ_i p_i)

(the ratio of expectations). A user of whom little is known gets a short list, one who buys much a longer one; nothing
is learnt for it, or set for a data set.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray
from pydantic import Field

from merit.core.config import Frozen
from merit.core.types import Ints

Reals = NDArray[np.float64]


class LengthConfig(Frozen):
    """What counts for more where a list ends: that it is right, or that nothing is missing."""

    recall_weight: float = Field(1.0, gt=0)
    """β of the F-score: 1 weighs precision and recall alike, 2 makes longer lists."""


def best_lengths(best: Reals, expected: Reals, config: LengthConfig | None = None) -> Ints:
    """One length for each user, 1 at least.

    `best` are the probabilities of each user's first labels in falling order, (users, k); `expected` is how many of all
    labels are expected to be right, (users,). Of equal scores the shorter list.
    """
    weight = (config or LengthConfig()).recall_weight ** 2
    sizes = np.arange(1, best.shape[1] + 1)
    score = (1 + weight) * np.cumsum(best, axis=1, dtype=np.float64) / (sizes + weight * expected[:, None])
    lengths: Ints = 1 + np.argmax(score, axis=1)
    return lengths
