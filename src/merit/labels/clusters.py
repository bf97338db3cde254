"""Balanced bisecting 2-means over unit vectors: 291k labels → 30k clusters, none larger than its guaranteed bound.

A node holds n points and owes k clusters. It is split in two by 2-means, k is shared in proportion to the squared
error of the sides, and the boundary moves along the centroid difference only as far as needed to keep

    k ≤ n ≤ cap · k        cap = floor(max_ratio · N / K)

on both sides. The root satisfies it, a feasible split always exists, so every leaf (k = 1) has 1 to cap points:
duplicates, identical vectors and n = k included. Ordinary bisecting k-means gives no such bound.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_array

from merit.core.console import track
from merit.core.errors import ConfigError
from merit.core.types import Floats, Ints

Assignment = NDArray[np.int32]  # (n,): the cluster of each row

LLOYD = 10  # steps of 2-means at a node: 2, 5, 10, 20 give 0.479, 0.498, 0.508, 0.505 cosine within clusters
SAMPLE = 4_096  # points that decide the direction of a large node's split; all points are then projected on it


def cluster(vectors: Floats, k: int, rng: np.random.Generator, max_ratio: float = 4.0) -> Assignment:
    """Assign each row to one of `k` clusters, each with at least 1 and at most max_ratio × mean members.

    Neighbouring cluster numbers are siblings in the tree of splits.
    """
    if not 1 <= k <= len(vectors):
        raise ConfigError(f"{len(vectors):,} labels cannot make {k:,} clusters. Ask for 1 to {len(vectors):,}.")
    if max_ratio < 1:
        raise ConfigError(f"max_ratio is {max_ratio}, but no largest cluster is below the mean. Give 1 or more.")
    # Close to ratio 1 the floor can be infeasible (10 points, 3 clusters of at most 3): then as even as can be.
    cap = max(int(max_ratio * len(vectors) / k), -(-len(vectors) // k))
    assignment = np.empty(len(vectors), np.int32)
    leaves = _leaves(np.ascontiguousarray(vectors, np.float32), k, cap, rng)
    for number, members in enumerate(track(leaves, "Clustering labels", total=k)):
        assignment[members] = number
    return assignment


def medoids(vectors: Floats, assignment: Assignment, k: int) -> Ints:
    """(k,): of each cluster, the member nearest to the cluster's mean (the first one of equals); -1 if empty."""
    sums = _sums(vectors, assignment, k)
    nearness = np.empty(len(vectors), np.float32)
    for part in _parts(len(vectors)):  # the gathered sums of all rows would be a second copy of the vectors
        nearness[part] = np.einsum("nd,nd->n", vectors[part], sums[assignment[part]])
    order = np.lexsort((-nearness, assignment))
    first = np.flatnonzero(np.diff(assignment[order], prepend=-1))
    chosen = np.full(k, -1, np.int64)
    chosen[assignment[order[first]]] = order[first]
    return chosen


def quality(vectors: Floats, assignment: Assignment) -> tuple[float, float]:
    """How tight clusters are: the mean cosine of two members of one cluster, and of any two rows.

    Exact over all pairs: |Σ x|² is the sum of every pair's cosine.
    """
    sizes = np.bincount(assignment)
    sums = _sums(vectors, assignment, len(sizes)).astype(np.float64)
    total = sums.sum(axis=0)
    return _pair_mean(float((sums**2).sum()), sizes), _pair_mean(float(total @ total), np.array([len(vectors)]))


def _parts(count: int) -> list[slice]:
    return [slice(at, at + 65_536) for at in range(0, count, 65_536)]


def _pair_mean(squared: float, sizes: NDArray[Any]) -> float:
    pairs = float((sizes.astype(np.float64) * (sizes - 1)).sum())
    return (squared - float(sizes.sum())) / pairs if pairs else 1.0  # singletons: each is only near itself


def _sums(vectors: Floats, assignment: Assignment, k: int) -> Floats:
    """(k, d): the sum of each cluster's members, as a sparse product: no sorted copy of the vectors."""
    rows = np.arange(len(vectors))
    member = csr_array((np.ones(len(vectors), np.float32), (assignment, rows)), shape=(k, len(vectors)))
    sums: Floats = member @ vectors
    return sums


def _leaves(vectors: Floats, k: int, cap: int, rng: np.random.Generator) -> Iterator[NDArray[np.int64]]:
    """The members of each cluster, depth first with a stack of our own: 30k levels must not meet a recursion limit."""
    waiting = [(np.arange(len(vectors)), k)]
    while waiting:
        members, share = waiting.pop()
        if share == 1:
            yield members
        elif share == len(members):
            yield from members[:, None]
        else:
            left, right, left_share = _split(vectors, members, share, cap, rng)
            waiting += [(right, share - left_share), (left, left_share)]


def _split(
    vectors: Floats, members: NDArray[np.int64], k: int, cap: int, rng: np.random.Generator
) -> tuple[NDArray[np.int64], NDArray[np.int64], int]:
    """Two sides of a node and the clusters the left one owes. Both sides keep k ≤ n ≤ cap · k."""
    along, spreads = _project(vectors, members, rng)
    n = len(members)
    natural = int(np.count_nonzero(along > 0))
    k_left = _share(k, natural, n - natural, spreads, cap)
    least = max(k_left, n - cap * (k - k_left))
    most = min(cap * k_left, n - (k - k_left))
    n_left = min(max(natural, least), most)
    if n_left == natural:
        is_left = along > 0
    else:
        is_left = np.zeros(n, bool)
        is_left[np.argsort(-along, kind="stable")[:n_left]] = True  # stable: equal points divide by their order
    return members[is_left], members[~is_left], k_left


def _share(k: int, n_left: int, n_right: int, spreads: tuple[float, float], cap: int) -> int:
    """The clusters owed by the left side: in proportion to the squared error there, as far as the bound allows.

    By size alone, a dense side would get clusters it does not need: 0.509 cosine within clusters instead of 0.523.
    """
    least = max(1, -(-n_left // cap), k - n_right)
    most = min(k - 1, n_left, k - -(-n_right // cap))
    if least > most:  # these sides cannot be kept; the boundary will move
        return min(max(round(k * n_left / (n_left + n_right)), 1), k - 1)
    left, right = n_left * spreads[0], n_right * spreads[1]
    return min(max(round(k * left / (left + right)), least), most)


def _project(
    vectors: Floats, members: NDArray[np.int64], rng: np.random.Generator
) -> tuple[Floats, tuple[float, float]]:
    """(n,): the signed distance of each member from the plane between two means; and the spread of either side."""
    n = len(members)
    if n <= SAMPLE:
        points = vectors[members]
        direction, middle, spreads = _two_means(points, rng)
        return points @ direction - middle, spreads
    sample = vectors[members[np.sort(rng.choice(n, SAMPLE, replace=False))]]
    direction, middle, spreads = _two_means(sample, rng)
    return np.concatenate([vectors[members[part]] @ direction for part in _parts(n)]) - middle, spreads


def _two_means(points: Floats, rng: np.random.Generator) -> tuple[Floats, np.float32, tuple[float, float]]:
    """The plane between two means. One product projects, another sums: no distances are computed.

    The spread of a side is its mean squared distance from its mean, 1 - |mean|² for unit vectors.
    """
    total = points.sum(axis=0)
    direction, middle = _first_plane(points, rng)
    spreads, count = (1.0, 1.0), -1
    for _ in range(LLOYD):
        is_left = points @ direction > middle
        before, count = count, int(np.count_nonzero(is_left))
        if count in (0, len(points), before):  # one-sided, or (nearly always) settled
            break
        left = is_left.astype(np.float32) @ points
        mean, other = left / count, (total - left) / (len(points) - count)
        spreads = (max(1 - float(mean @ mean), 1e-6), max(1 - float(other @ other), 1e-6))
        direction = mean - other
        middle = np.float32(direction @ (mean + other) / 2)
    return direction, middle, spreads


def _first_plane(points: Floats, rng: np.random.Generator) -> tuple[Floats, np.float32]:
    """Between a random point and another drawn in proportion to its distance (k-means++ for two)."""
    one = points[int(rng.integers(len(points)))]
    apart = np.maximum(1 - points @ one, 0).cumsum(dtype=np.float64)
    other = points[min(int(np.searchsorted(apart, rng.random() * apart[-1], side="right")), len(points) - 1)]
    direction = one - other
    return direction, np.float32(direction @ (one + other) / 2)
