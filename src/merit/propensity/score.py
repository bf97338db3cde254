"""The score of a user for a label, in log-odds before calibration: the one place where the formula is written.

    score(u, c) = p_u · q_c                                      factor model: a dot product
                + repeat(u, c)                                   c is in the history of u
                + trend_weight · trend(c)                        c is more popular than it used to be
                + likely_weight · likely(u, c)                   the generator finds c likely as the first label
                + w3 · relu(W2 · relu(a_u + b_c) + d2) + d3      states model: an MLP over the sum of two projections

Any part may be missing: by default there is no states model where the generator reads items.

The projection of a user is a_u, then p_u; that of a label b_c, then q_c: H + R numbers, computed once for each. A pair
then costs the layers above the first and R products. The functions take torch tensors, so that training has gradients,
and numpy arrays, so that a model answers without torch. `retrieval.fast` is the one fast path beside them: the first
two lines in float32, with a proven bound, to find candidates.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np
from numpy.typing import NDArray

if TYPE_CHECKING:
    from torch import Tensor

Array = TypeVar("Array", "NDArray[np.float64]", "Tensor")


def pair_score(
    users: Array, labels: Array, width: int, second: Callable[[Array], Array], last: Callable[[Array], Array]
) -> Array:
    """What states and factors give pairs of projections (…, H + R), which are broadcast against each other.

    `width` is H; `second` and `last` are the layers above the first, without their activation.
    """
    first = _relu(users[..., :width] + labels[..., :width])
    factors = (users[..., width:] * labels[..., width:]).sum(-1)
    scores: Array = last(_relu(second(first))) + factors
    return scores


def repeat_score(times: Array, shares: Array, weights: Iterable[Any], labels: Array | float) -> Array:
    """What labels in a user's history add: by how often, by their share of the history, and by label.

    `times` below one, where products only name the label, count by as much; `shares` are then those of once. `labels`
    are how much more than the average label each is bought again.
    """
    first, often, share = weights
    xp = _namespace(times)
    added = first + often * xp.log1p(times.clip(1)) + share * xp.log(shares.clip(1e-9)) + labels
    scores: Array = xp.where(times > 0, added * times.clip(max=1), 0.0)
    return scores


def _relu(array: Array) -> Array:
    """Of an array that nobody else reads: numpy overwrites it."""
    return np.maximum(array, 0, out=array) if isinstance(array, np.ndarray) else array.relu()


def _namespace(array: Any) -> Any:
    if isinstance(array, np.ndarray):
        return np
    import torch  # it is loaded already: the array is a tensor

    return torch
