"""The map of points: its gradient is the one of its divergence, and neighbours stay neighbours."""

from __future__ import annotations

import numpy as np
import pytest

from merit.service import layout
from merit.service.layout import Reals


def divergence(pull: Reals, flat: Reals) -> float:
    """The slow, obvious version: Kullback and Leibler's, pair by pair."""
    pairs = [(i, j) for i in range(len(flat)) for j in range(len(flat)) if i != j]
    close = {(i, j): 1 / (1 + float(((flat[i] - flat[j]) ** 2).sum())) for i, j in pairs}
    total = sum(close.values())
    return sum(float(pull[pair]) * np.log(float(pull[pair]) / (close[pair] / total)) for pair in pairs)


def groups(number: int, each: int, seed: int = 0) -> tuple[Reals, Reals]:
    """Points around a few middles in many dimensions, and whose they are."""
    rng = np.random.default_rng(seed)
    own = np.repeat(np.arange(number), each)
    points = rng.normal(size=(number, 64))[own] + 0.7 * rng.normal(size=(len(own), 64))
    return points / np.linalg.norm(points, axis=1, keepdims=True), own


def kept(points: Reals, own: Reals, nearest: int = 5) -> float:
    """The share of the nearest points that are of the same group."""
    apart = layout.squares(points)
    np.fill_diagonal(apart, np.inf)
    return float((own[np.argsort(apart, axis=1)[:, :nearest]] == own[:, None]).mean())


def test_the_gradient_is_the_slope_of_the_divergence() -> None:
    rng = np.random.default_rng(1)
    pull, flat = layout.attraction(rng.normal(size=(12, 5))), rng.normal(size=(12, 2))
    found, step = layout.gradient(pull, flat), 1e-6
    for row, column in ((0, 0), (3, 1), (11, 0)):
        moved = np.zeros_like(flat)
        moved[row, column] = step
        slope = (divergence(pull, flat + moved) - divergence(pull, flat - moved)) / (2 * step)
        assert found[row, column] == pytest.approx(slope, rel=1e-5, abs=1e-9)


def test_every_point_has_as_many_neighbours() -> None:
    points, _ = groups(4, 20)
    near = layout.attraction(points)
    assert near.sum() == pytest.approx(1) and np.array_equal(near, near.T) and not near.diagonal().any()
    shares = near / near.sum(axis=1, keepdims=True)
    alike = np.exp(-(shares * np.log(np.maximum(shares, 1e-300))).sum(axis=1))
    assert 0.7 < np.median(alike) / ((len(points) - 1) / 3) < 1.4


def test_neighbours_stay_together_where_two_axes_would_mix_them() -> None:
    points, own = groups(12, 15)
    assert kept(layout.axes(points), own) < 0.7
    assert kept(layout.layout(points.astype(np.float32)), own) > 0.95


def test_a_map_is_always_the_same_and_fits_its_frame() -> None:
    points = groups(5, 10)[0].astype(np.float32)
    first, second = layout.layout(points), layout.layout(points)
    assert np.array_equal(first, second) and np.abs(first).max() == pytest.approx(1)


@pytest.mark.parametrize("number", [1, 2, 3, 15, 16, 17])
def test_few_points_and_equal_points_have_a_place_too(number: int) -> None:
    rng = np.random.default_rng(2)
    for points in (rng.normal(size=(number, 8)), np.ones((number, 8))):
        made = layout.layout(points.astype(np.float32))
        assert made.shape == (number, 2) and np.isfinite(made).all() and np.abs(made).max() <= 1 + 1e-9
