"""The three layers and the product that score a pair, as plain arrays.

    score(u, c) = w3 · relu(W2 · relu(W_u u + W_e e_c + d1) + d2) + d3  +  (P_u u) · (P_e e_c)

The first layer is a sum of what a user gives, W_u u, and what a label gives, W_e e_c + d1. With the factors P_u u or
P_e e_c behind it, that is a *half*, of H + R numbers. Each half is computed once and kept, and a pair costs the other
two layers and R products only: with the default sizes an eleventh of the work.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from merit.core.errors import DamagedArtifact
from merit.core.types import Floats


@dataclass(frozen=True)
class Mlp:
    """The weights in float32. Made by `load`, they are known to fit each other."""

    W_u: Floats  # (H, user)   H = width of the first layer
    W_e: Floats  # (H, label)
    d1: Floats  # (H,)
    W2: Floats  # (S, H)      S = width of the second layer
    d2: Floats  # (S,)
    w3: Floats  # (S,)
    d3: float
    P_u: Floats  # (R, user)   R = number of factors; 0 for the layers alone
    P_e: Floats  # (R, label)

    @cached_property
    def W2_columns(self) -> Floats:
        """(H, S): W2 the way round in which rows are multiplied by it."""
        return np.ascontiguousarray(self.W2.T)

    @property
    def half(self) -> int:
        """H + R: the width of a half."""
        return len(self.W_u) + len(self.P_u)

    def arrays(self) -> dict[str, Floats]:
        """As plain arrays, ready for safetensors."""
        return {name: getattr(self, name) for name in _SHAPES} | {"d3": np.array([self.d3], np.float32)}


_SHAPES = {"W_u": "HU", "W_e": "HE", "d1": "H", "W2": "SH", "d2": "S", "w3": "S", "P_u": "RU", "P_e": "RE"}


def load(arrays: Mapping[str, NDArray[Any]]) -> Mlp:
    """From what `arrays()` gave, or from a model's own weights, after a check that they fit each other."""
    if missing := [name for name in (*_SHAPES, "d3") if name not in arrays]:
        raise DamagedArtifact(f"The scorer has no array {', '.join(missing)}. Train the propensity model again.")
    taken = {name: np.ascontiguousarray(arrays[name], np.float32) for name in (*_SHAPES, "d3")}
    sizes: dict[str, int] = {}
    for name, letters in _SHAPES.items():
        fits = taken[name].ndim == len(letters) and all(
            sizes.setdefault(letter, size) == size for letter, size in zip(letters, taken[name].shape, strict=True)
        )
        if not fits:
            raise DamagedArtifact(
                f"{name} of the scorer has the shape {taken[name].shape}, which does not fit the rest."
            )
    if taken["d3"].size != 1 or not all(np.isfinite(array).all() for array in taken.values()):
        raise DamagedArtifact("Some weights of the scorer are not numbers. Train the propensity model again.")
    return Mlp(**{name: taken[name] for name in _SHAPES}, d3=float(taken["d3"].item()))
