"""Users like the seeds, in a planted space where the answer is known."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from merit.campaigns.audiences.build import auc, likeness, separation
from merit.core.errors import DataError
from merit.core.types import Floats


def space(users: int = 2_000, apart: float = 1.5, seed: int = 2) -> tuple[Floats, np.ndarray, np.ndarray]:
    """Vectors, who is of the kind, and the seeds: a third of those."""
    rng = np.random.default_rng(seed)
    kind = rng.random(users) < 0.3
    noise = rng.normal(size=(users, 8)) * np.array([5.0, 1, 1, 1, 1, 1, 1, 0.1])
    vectors = noise + np.outer(kind, np.eye(8)[1] * apart)
    return vectors.astype(np.float32), kind, kind & (rng.random(users) < 0.33)


def blocks(vectors: Floats, size: int = 300):  # type: ignore[no-untyped-def]
    def once() -> Iterator[Floats]:
        return (vectors[start : start + size] for start in range(0, len(vectors), size))

    return once


def test_those_of_the_kind_come_first_although_another_direction_varies_more() -> None:
    vectors, kind, seeds = space()
    found = likeness(blocks(vectors), seeds)
    others = ~seeds
    assert auc(found[kind & others], found[~kind]) > 0.8
    assert found.mean() == pytest.approx(0, abs=1e-6) and found[seeds].mean() == pytest.approx(1, abs=1e-6)


def test_the_size_of_blocks_changes_nothing() -> None:
    vectors, _, seeds = space()
    assert np.abs(likeness(blocks(vectors, 7), seeds) - likeness(blocks(vectors, 5_000), seeds)).max() < 1e-9


def test_seeds_with_nothing_in_common_are_found_out() -> None:
    vectors, _, seeds = space()
    assert separation(blocks(vectors), seeds) > 0.65
    chance = np.random.default_rng(5).random(len(seeds)) < 0.2
    assert separation(blocks(vectors), chance) < 0.58


def test_a_space_without_differences_is_told() -> None:
    same = np.ones((300, 4), np.float32)
    with pytest.raises(DataError, match="do not differ"):
        likeness(blocks(same), np.arange(300) < 150)


@settings(max_examples=60, deadline=None)
@given(st.lists(st.integers(0, 5), min_size=1), st.lists(st.integers(0, 5), min_size=1))
def test_above_counts_pairs(ours: list[int], others: list[int]) -> None:
    slow = np.mean([(a > b) + 0.5 * (a == b) for a in ours for b in others])
    assert auc(np.array(ours, float), np.array(others, float)) == pytest.approx(slow)
