"""The parts of a transformer in numpy, for small networks that answer without torch."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from merit.core.types import Floats


def gelu(rows: Floats) -> Floats:
    """The exact activation, not the approximation by tanh."""
    from scipy.special import erf  # only this needs it

    activated: Floats = erf(rows * np.float32(np.sqrt(0.5)))
    activated += 1
    activated *= rows
    activated *= np.float32(0.5)
    return activated


def layer_norm(rows: Floats, weight: Floats, bias: Floats, epsilon: float) -> Floats:
    """Rows of mean zero and variance one, scaled and moved."""
    centred = rows - rows.mean(axis=-1, keepdims=True)
    spread = np.sqrt((centred**2).mean(axis=-1, keepdims=True) + np.float32(epsilon))
    normed: Floats = centred / spread * weight + bias
    return normed


def heads_of(rows: Floats, heads: int) -> Floats:
    """(B, T, heads * width) → (B, heads, T, width)"""
    batch, length, _ = rows.shape
    return rows.reshape(batch, length, heads, -1).swapaxes(1, 2)


def attend(query: Floats, key: Floats, value: Floats, seen: NDArray[np.bool_] | None = None) -> Floats:
    """(B, T, heads * width), from (B, heads, T or L, width). `seen` says which of the L positions may be looked at."""
    scores = query @ key.swapaxes(2, 3) / np.float32(np.sqrt(query.shape[-1]))
    if seen is not None:
        scores = np.where(seen, scores, np.float32(-np.inf))
    weights = np.exp(scores - scores.max(axis=-1, keepdims=True))
    weights /= weights.sum(axis=-1, keepdims=True)
    looked = (weights @ value).swapaxes(1, 2)
    joined: Floats = looked.reshape(*looked.shape[:2], -1)
    return joined
