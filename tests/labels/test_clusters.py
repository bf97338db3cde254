"""The size bound holds whatever the data; planted groups are found; figures equal their definitions."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from merit.core.errors import ConfigError
from merit.core.types import Floats
from merit.labels import clusters
from merit.labels.clusters import cluster, medoids, quality


def unit(rows: np.ndarray) -> Floats:
    return (rows / np.linalg.norm(rows, axis=1, keepdims=True)).astype(np.float32)


def planted(groups: int, each: int, noise: float, seed: int = 0) -> tuple[Floats, np.ndarray]:
    rng = np.random.default_rng(seed)
    centres = unit(rng.standard_normal((groups, 32)))
    return unit(np.repeat(centres, each, axis=0) + noise * rng.standard_normal((groups * each, 32))), np.repeat(
        np.arange(groups), each
    )


KINDS = {
    "spread": lambda n, rng: rng.standard_normal((n, 6)),
    "equal": lambda n, rng: np.ones((n, 6)),
    "copies": lambda n, rng: rng.standard_normal((3, 6))[rng.integers(3, size=n)],
    "skewed": lambda n, rng: np.where(np.arange(n)[:, None] < 0.9 * n, 1, rng.standard_normal((n, 6))),
}


@settings(max_examples=150, deadline=None)
@given(st.sampled_from(sorted(KINDS)), st.integers(1, 60), st.data(), st.sampled_from([1.0, 1.3, 2.0, 4.0]))
def test_every_cluster_is_filled_and_none_exceeds_the_bound(
    kind: str, n: int, data: st.DataObject, max_ratio: float
) -> None:
    k = data.draw(st.integers(1, n))
    rng = np.random.default_rng(n)
    sizes = np.bincount(cluster(unit(KINDS[kind](n, rng)), k, rng, max_ratio), minlength=k)
    assert len(sizes) == k and sizes.sum() == n and sizes.min() >= 1
    assert sizes.max() <= max(max_ratio * n / k, -(-n // k))


def test_the_bound_holds_where_splits_are_sampled(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(clusters, "SAMPLE", 32)
    vectors = unit(KINDS["skewed"](3_000, np.random.default_rng(1)))
    sizes = np.bincount(cluster(vectors, 300, np.random.default_rng(2)), minlength=300)
    assert sizes.min() >= 1 and sizes.max() <= 40


def test_planted_groups_are_found() -> None:
    vectors, group = planted(16, 25, noise=0.03)
    assignment = cluster(vectors, 16, np.random.default_rng(0))
    pure = [len(set(group[assignment == number])) == 1 for number in range(16)]
    assert np.mean(pure) >= 0.75  # a greedy tree may cut a group; chance would give none


def test_the_same_stream_gives_the_same_clusters() -> None:
    vectors, _ = planted(10, 30, noise=0.2)
    one, again = (cluster(vectors, 40, np.random.default_rng(5)) for _ in range(2))
    np.testing.assert_array_equal(one, again)
    assert one.dtype == np.int32


def test_a_chain_of_one_sided_splits_needs_no_recursion() -> None:
    angles = np.geomspace(1e-4, 1.5, 3_000)  # each split takes little from one end
    vectors = np.stack([np.cos(angles), np.sin(angles)], axis=1).astype(np.float32)
    assert len(np.unique(cluster(vectors, 2_990, np.random.default_rng(0)))) == 2_990


@pytest.mark.parametrize("k", [0, 6])
def test_impossible_numbers_of_clusters_are_refused(k: int) -> None:
    with pytest.raises(ConfigError, match="cannot make"):
        cluster(unit(np.ones((5, 3))), k, np.random.default_rng(0))


def test_a_bound_below_the_mean_is_refused() -> None:
    with pytest.raises(ConfigError, match="max_ratio"):
        cluster(unit(np.ones((5, 3))), 2, np.random.default_rng(0), max_ratio=0.5)


def test_medoids_are_the_members_nearest_to_the_mean() -> None:
    vectors, _ = planted(5, 20, noise=0.3)
    assignment = cluster(vectors, 9, np.random.default_rng(0))
    for number, chosen in enumerate(medoids(vectors, assignment, 9)):
        members = np.flatnonzero(assignment == number)
        nearness = vectors[members] @ vectors[members].mean(axis=0)
        assert chosen in members and nearness.max() - nearness[members == chosen][0] < 1e-5


def test_of_equal_members_the_first_is_the_medoid_and_an_empty_cluster_has_none() -> None:
    vectors = unit(np.ones((4, 3)))
    assert medoids(vectors, np.array([2, 0, 0, 2], np.int32), 4).tolist() == [1, -1, 0, -1]


def test_quality_equals_its_definition_over_all_pairs() -> None:
    vectors, _ = planted(4, 10, noise=0.1)
    assignment = cluster(vectors, 7, np.random.default_rng(0))
    pairs = list(itertools.combinations(range(40), 2))
    cosine = np.array([vectors[i] @ vectors[j] for i, j in pairs])
    together = np.array([assignment[i] == assignment[j] for i, j in pairs])
    within, random = quality(vectors, assignment)
    assert within == pytest.approx(cosine[together].mean(), abs=1e-5)
    assert random == pytest.approx(cosine.mean(), abs=1e-5)
    assert within > random + 0.3
