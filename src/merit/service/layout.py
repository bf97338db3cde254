"""Points of many dimensions on a flat map, neighbours beside each other: t-SNE over all pairs, begun from two axes.

It uses no chance, so the same points give the same map. All pairs are n² numbers: meant for some hundred points.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from merit.core.types import Floats

Reals = NDArray[np.float64]
FEW = 16  # points: fewer have no neighbourhoods to speak of, and their two main axes tell more
NEIGHBOURS = 30  # the perplexity, unless a third of the points is less
SEARCHED = 40  # halvings for the width of a neighbourhood
GATHERED, SETTLED = 100, 300  # steps: attraction is exaggerated in the first ones, so that groups find together
EXAGGERATION = 12.0


def layout(points: Floats) -> Reals:
    """(n, d) → (n, 2), the widest direction reaching from -1 to 1."""
    flat = axes(points.astype(np.float64))
    if len(points) >= FEW:
        flat = _descended(attraction(points.astype(np.float64)), 1e-4 * flat / max(float(flat.std()), 1e-12))
    flat = flat - (flat.max(axis=0) + flat.min(axis=0)) / 2
    return np.asarray(flat / max(float(np.abs(flat).max()), 1e-12))


def axes(points: Reals) -> Reals:
    """The two directions in which the points differ most; each turned so that its farthest point is positive."""
    centred = points - points.mean(axis=0)
    left, size, _ = np.linalg.svd(centred, full_matrices=False)
    found = np.zeros((len(points), 2))
    kept = left[:, :2] * size[:2]
    farthest = kept[np.abs(kept).argmax(axis=0), np.arange(kept.shape[1])]
    found[:, : kept.shape[1]] = kept * np.where(farthest < 0, -1, 1)
    return found


def attraction(points: Reals) -> Reals:
    """(n, n), adds up to 1: how much two points are neighbours, each point having about as many."""
    apart = squares(points)
    np.fill_diagonal(apart, np.inf)
    wanted = np.log(min(NEIGHBOURS, (len(points) - 1) / 3))
    low, high = np.full(len(points), 1e-12), np.full(len(points), 1e12)
    near = np.zeros_like(apart)
    for _ in range(SEARCHED):
        sharp = np.sqrt(low * high)
        near = np.exp(-sharp[:, None] * (apart - apart.min(axis=1, keepdims=True)))
        near /= near.sum(axis=1, keepdims=True)
        spread = -(near * np.log(np.maximum(near, 1e-300))).sum(axis=1)  # entropy: the log of how many neighbours
        low, high = np.where(spread > wanted, sharp, low), np.where(spread > wanted, high, sharp)
    both = near + near.T
    return np.asarray(both / both.sum())


def gradient(pull: Reals, flat: Reals) -> Reals:
    """Of the divergence between neighbourhoods given and neighbourhoods on the map."""
    close = squares(flat)
    close += 1
    np.reciprocal(close, out=close)
    np.fill_diagonal(close, 0)
    force = close * (-1 / close.sum())  # in place from here: this is nearly all of the time that a map takes
    force += pull
    force *= close
    return np.asarray(4 * (force.sum(axis=1)[:, None] * flat - force @ flat))


def squares(points: Reals) -> Reals:
    """(n, n): squared distances."""
    sizes = (points**2).sum(axis=1)
    apart: Reals = points @ (-2 * points.T)
    apart += sizes[:, None]
    apart += sizes
    return np.maximum(apart, 0, out=apart)


def _descended(pull: Reals, flat: Reals) -> Reals:
    """Downhill with momentum; a coordinate that keeps its direction takes longer steps."""
    rate = max(len(flat) / EXAGGERATION / 4, 50.0)
    moved, gains = np.zeros_like(flat), np.ones_like(flat)
    for step in range(GATHERED + SETTLED):
        early = step < GATHERED
        slope = gradient(pull * EXAGGERATION if early else pull, flat)
        gains = np.maximum(np.where(slope * moved < 0, gains + 0.2, gains * 0.8), 0.01)
        moved = (0.5 if early else 0.8) * moved - rate * gains * slope
        flat = flat + moved
    return flat
