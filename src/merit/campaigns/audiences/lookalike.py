"""Users like those of a list: the direction in which the seeds differ most from everybody, in the model's own space.

Fisher's discriminant over user vectors: w = (Σ + λ)⁻¹ (mean of the seeds − mean of all). A user's likeness is their
place along w, where everybody's mean is 0 and the seeds' is 1. Vectors come in blocks, so they need not fit in memory.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

import numpy as np
from numpy.typing import NDArray

from merit.campaigns.audiences.combine import Reals
from merit.core.errors import DataError
from merit.core.types import Floats

Blocks = Callable[[], Iterator[Floats]]  # a pass over all vectors, in the order of the users
RIDGE = 1e-3  # of the mean variance: directions that hardly vary must not decide
DIGITS = 10  # kept of a likeness: the last ones differ between machines, and would shuffle ties


def likeness(blocks: Blocks, seeds: NDArray[np.bool_]) -> Reals:
    """(users,): 0 for the mean of all, 1 for the mean of the seeds."""
    mean, spread, apart = _moments(blocks, seeds)
    scale = np.trace(spread) / len(mean)
    if not scale > 0 or not np.abs(apart).max() > 1e-9 * np.sqrt(scale):
        raise DataError("The seeds do not differ from everybody in what the model knows. Choose other seeds.")
    direction = np.linalg.solve(spread + RIDGE * scale * np.eye(len(mean)), apart)
    direction = direction / (direction @ apart)
    return np.concatenate([np.round((block - mean) @ direction, DIGITS) for _, block in _doubles(blocks)])


def _moments(blocks: Blocks, seeds: NDArray[np.bool_]) -> tuple[Reals, Reals, Reals]:
    """The mean of all, their covariance, and how far the mean of the seeds is from that of all."""
    sums = [
        (block.sum(axis=0), block.T @ block, block[seeds[start : start + len(block)]].sum(axis=0))
        for start, block in _doubles(blocks)
    ]
    total, products, own = (np.sum(each, axis=0) for each in zip(*sums, strict=True))
    mean = total / len(seeds)
    return mean, products / len(seeds) - np.outer(mean, mean), own / seeds.sum() - mean


def separation(blocks: Blocks, seeds: NDArray[np.bool_]) -> float:
    """How well one half of the seeds finds the other: chance that a seed not used ranks above a user who is none."""
    rows = np.flatnonzero(seeds)
    found = []
    for half in (0, 1):
        used = np.zeros_like(seeds)
        used[rows[half::2]] = True
        scores = likeness(blocks, used)
        found.append(above(scores[seeds & ~used], scores[~seeds]))
    return float(np.mean(found))


def above(ours: Reals, others: Reals) -> float:
    """Chance that one of ours is above one of the others, ties counting half."""
    ranked = np.sort(others)
    below = np.searchsorted(ranked, ours, side="left") + np.searchsorted(ranked, ours, side="right")
    return float(below.mean() / 2 / max(1, len(others)))


def _doubles(blocks: Blocks) -> Iterator[tuple[int, Reals]]:
    start = 0
    for block in blocks():
        yield start, block.astype(np.float64)
        start += len(block)
