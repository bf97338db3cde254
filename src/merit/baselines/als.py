"""Matrix factorisation as practitioners have it: `implicit`'s alternating least squares, over users and labels.

Fitted on what training users had and then bought; a test user is folded in from the history alone.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray
from pydantic import Field
from scipy.sparse import csr_matrix

from merit.config import Frozen
from merit.data.ragged import Ragged
from merit.errors import MissingDependency
from merit.types import Floats


class AlsConfig(Frozen):
    factors: int = Field(64, ge=1)
    regularization: float = Field(0.05, ge=0)
    alpha: float = Field(10.0, gt=0)
    """How much more an event that happened weighs than one that did not."""
    iterations: int = Field(15, ge=1)


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
    weights = np.log1p(counts).astype(np.float32)
    return csr_matrix((weights, lists.values, lists.offsets), shape=(len(lists), n_labels))
