"""Small scorers to test on, and the slow twin of them all: one pair at a time, in float64, nothing split or stored."""

from __future__ import annotations

from typing import Literal

import numpy as np
from numpy.typing import NDArray

from merit.core.types import Floats, Ints
from merit.retrieval import store
from merit.retrieval.exact import Doubles, Exact, ScorerWeights
from merit.retrieval.scorer import Scorer
from merit.retrieval.topk import Ranked, RankedLists

Kind = Literal["any", "whole", "close"]
KINDS: tuple[Kind, ...] = ("any", "whole", "close")


def numbers(rng: np.random.Generator, shape: tuple[int, ...], kind: Kind) -> Floats:
    """Any numbers; or small whole ones, where float64 is exact and many pairs have equal scores; or rows that differ in
    their last bits only, which float32 scores put into a wrong order."""
    if kind == "whole":
        return rng.integers(-2, 3, shape).astype(np.float32)
    if kind == "close" and len(shape) == 2:
        same = rng.standard_normal(shape[1:], dtype=np.float32)
        return same * (1 + rng.integers(-4, 5, shape) * np.float32(2**-23))
    return rng.standard_normal(shape, dtype=np.float32)


def weights(
    rng: np.random.Generator, user: int, label: int, first: int, second: int, factors: int, kind: Kind = "any"
) -> ScorerWeights:
    shapes: dict[str, tuple[int, ...]] = {
        "W_u": (first, user),
        "W_e": (first, label),
        "d1": (first,),
        "W2": (second, first),
        "d2": (second,),
        "w3": (second,),
        "d3": (1,),
        "P_u": (factors, user),
        "P_e": (factors, label),
    }
    return ScorerWeights.of(
        {name: numbers(rng, shape, "whole" if kind == "whole" else "any") for name, shape in shapes.items()}
    )


def world(
    seed: int,
    users: int = 40,
    labels: int = 30,
    kind: Kind = "any",
    threads: int = 1,
    block: int | None = None,
    factors: int = 4,
    layers: tuple[int, int] = (16, 6),
) -> Scorer:
    """A third of the users and of the labels are copies of others."""
    rng = np.random.default_rng(seed)
    net = weights(rng, 5, 7, *layers, factors, kind)
    exact = Exact.of(net)
    sides = []
    for name, count, layer in (("users", users, exact.users), ("labels", labels, exact.labels)):
        vectors = numbers(rng, (count, len(layer.weight)), kind)
        copies = rng.random(count) < 1 / 3
        vectors[copies] = vectors[rng.integers(0, count, count)][copies]
        sides.append(store.hold(name, vectors, layer))
    return Scorer(net, *sides, threads=threads, block=block)


def naive_score(net: ScorerWeights, user: Floats, label: Floats) -> float:
    wide = {name: array.astype(np.float64) for name, array in net.arrays().items()}
    first = np.hstack([wide["W_u"], wide["W_e"]]) @ np.concatenate([user, label]).astype(np.float64) + wide["d1"]
    second = wide["W2"] @ np.maximum(first, 0) + wide["d2"]
    product = (wide["P_u"] @ user.astype(np.float64)) @ (wide["P_e"] @ label.astype(np.float64))
    return float(wide["w3"] @ np.maximum(second, 0) + net.d3 + product)


def naive_scores(scorer: Scorer, users: Floats, labels: Floats) -> Doubles:
    """(users, labels)"""
    return np.array([[naive_score(scorer.weights, user, label) for label in labels] for user in users])


def naive_best(scores: Doubles, n: int, mask: NDArray[np.bool_] | None = None) -> list[int]:
    allowed = [row for row in range(len(scores)) if mask is None or mask[row]]
    return sorted(allowed, key=lambda row: (-scores[row], row))[:n]


def users_of(scorer: Scorer) -> Floats:
    return scorer.users.vectors.take(slice(None))


def labels_of(scorer: Scorer) -> Floats:
    return scorer.labels.vectors.take(slice(None))


def grid(scorer: Scorer, users: Ints, labels: Ints) -> Doubles:
    """(users, labels): the exact score of every pair."""
    return scorer.score(np.repeat(users, len(labels)), np.tile(labels, len(users))).reshape(len(users), len(labels))


def audience(scorer: Scorer, label: Floats, n: int, mask: NDArray[np.bool_] | None = None) -> Ranked:
    (ranked,) = scorer.audiences(label[None], [n], None if mask is None else np.flatnonzero(mask))
    return ranked


def interests(scorer: Scorer, user: int, k: int, live: NDArray[np.bool_] | None = None) -> Ranked:
    (ranked,) = per_user(next(scorer.all_interests(k, np.array([user]), live)))
    return ranked


def per_user(lists: RankedLists) -> list[Ranked]:
    """One user's list after the other."""
    edges = zip(lists.labels.offsets[:-1], lists.labels.offsets[1:], strict=True)
    return [Ranked(lists.labels.values[start:stop].astype(np.int64), lists.scores[start:stop]) for start, stop in edges]
