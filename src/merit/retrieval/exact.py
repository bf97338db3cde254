"""The weights of the score (see `propensity.score`), and the exact score of a pair in float64, from the vectors.

    exact = Exact.read(model.file("mlp.safetensors"))
    exact.scores(exact.users.of(user_vectors), exact.labels.of(label_vectors))

The projection of a user is W_u u, then the factors P_u u; that of a label W_e e_c + d1, then P_e e_c: H + R numbers.
Each is computed once, and a pair costs the other two layers and R products: at the default sizes, an eleventh.

A pair has one score, to the last bit, whatever else is scored with it. A BLAS does not promise that: it may add in
another order where a matrix has another shape or more threads. So all products here are made by one thread and have one
shape, a tile of rows of which the last may be partly unused, and a tile of equal rows is tried once to see that each of
them gives the same.

`map_threads` shares blocks of rows among a few threads, each with such a BLAS: numpy releases the interpreter's lock
inside its loops and products, so they never wait for each other, while the threads of a BLAS meet after every product.
Measured on 2 busy cores, one label over a million users: 0.6 s this way, 1.7 s with a BLAS of two threads.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from functools import cache, cached_property
from hashlib import blake2b
from pathlib import Path
from threading import Lock
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray
from safetensors.numpy import load_file
from threadpoolctl import ThreadpoolController  # type: ignore[import-untyped]

from merit.core.errors import DamagedArtifact
from merit.core.seeds import stream
from merit.core.types import Floats
from merit.propensity.score import pair_score

Doubles = NDArray[np.float64]
T = TypeVar("T")
R = TypeVar("R")
TILE = 128  # rows: within 5 % of the rate of longer ones, and little is wasted on a short list
_SHAPES = {"W_u": "HU", "W_e": "HE", "d1": "H", "W2": "SH", "d2": "S", "w3": "S", "P_u": "RU", "P_e": "RE"}


def map_threads(work: Callable[[T], R], items: Sequence[T], threads: int) -> list[R]:
    """work(item) of every item, in the order of the items. The first error is raised after all threads have ended."""
    with one_blas_thread():
        if threads == 1 or len(items) < 2:
            return [work(item) for item in items]
        with ThreadPoolExecutor(min(threads, len(items))) as pool:
            return list(pool.map(work, items))


def spans(count: int, size: int) -> list[range]:
    """range(count) in ranges of `size`; the last may be shorter."""
    return [range(start, min(start + size, count)) for start in range(0, count, size)]


_lock, _held, _inside = Lock(), ExitStack(), 0
_controller = cache(ThreadpoolController)  # it looks at all loaded libraries, which takes milliseconds: once


@contextmanager
def one_blas_thread() -> Iterator[None]:
    """The setting is the process's: the first to come in makes it, and the last to leave takes it back."""
    global _inside  # noqa: PLW0603
    with _lock:
        if _inside == 0:
            _held.enter_context(_controller().limit(limits=1, user_api="blas"))
        _inside += 1
    try:
        yield
    finally:
        with _lock:
            _inside -= 1
            if _inside == 0:
                _held.close()


@dataclass(frozen=True)
class ScorerWeights:
    """The weights in float32. `of` checks that they fit each other."""

    W_u: Floats  # (H, user)   H = width of the first layer
    W_e: Floats  # (H, label)
    d1: Floats  # (H,)
    W2: Floats  # (S, H)      S = width of the second layer
    d2: Floats  # (S,)
    w3: Floats  # (S,)
    d3: float
    P_u: Floats  # (R, user)   R = number of factors; 0 for the MLP alone
    P_e: Floats  # (R, label)

    @staticmethod
    def of(arrays: Mapping[str, NDArray[Any]]) -> ScorerWeights:
        """From what `arrays()` gave; arrays that are missing or do not fit are refused."""
        if missing := [name for name in (*_SHAPES, "d3") if name not in arrays]:
            raise DamagedArtifact(f"The scorer has no array {', '.join(missing)}. Train the propensity model again.")
        checked = {name: np.ascontiguousarray(arrays[name], np.float32) for name in (*_SHAPES, "d3")}
        sizes: dict[str, int] = {}
        for name, letters in _SHAPES.items():
            shape = checked[name].shape
            fits = len(shape) == len(letters) and all(
                sizes.setdefault(letter, size) == size for letter, size in zip(letters, shape, strict=True)
            )
            if not fits:
                raise DamagedArtifact(f"{name} of the scorer has the shape {shape}, which does not fit the rest.")
        if checked["d3"].size != 1 or not all(np.isfinite(array).all() for array in checked.values()):
            raise DamagedArtifact("Some weights of the scorer are not numbers. Train the propensity model again.")
        return ScorerWeights(**{name: checked[name] for name in _SHAPES}, d3=float(checked["d3"].item()))

    @cached_property
    def W2_columns(self) -> Floats:
        """(H, S): W2 the way round in which rows are multiplied by it."""
        return np.ascontiguousarray(self.W2.T)

    @property
    def width(self) -> int:
        """H + R: the width of a projection."""
        return len(self.W_u) + len(self.P_u)

    def arrays(self) -> dict[str, Floats]:
        """Plain arrays, ready for safetensors."""
        return {name: getattr(self, name) for name in _SHAPES} | {"d3": np.array([self.d3], np.float32)}


@dataclass(frozen=True)
class Projection:
    """What projects one side: its part of the first layer, then its factors, which have no bias."""

    weight: Doubles  # (D, H + R)
    bias: Doubles  # (H + R,)
    tile: int

    @one_blas_thread()
    def of(self, vectors: Floats) -> Doubles:
        """(n, H + R): the projections of vectors (n, D)."""
        projections = np.empty((len(vectors), len(self.bias)))
        tile, product = np.zeros((self.tile, len(self.weight))), np.empty((self.tile, len(self.bias)))
        for span in spans(len(vectors), self.tile):
            tile[: len(span)] = vectors[span.start : span.stop]
            self.fill(tile, product)
            projections[span.start : span.stop] = product[: len(span)]
        return projections

    def fill(self, tile: Doubles, out: Doubles) -> None:
        """Write the projections of a whole tile of vectors into `out`."""
        np.matmul(tile, self.weight, out=out)
        out += self.bias

    @property
    def fingerprint(self) -> str:
        """Of the weights: stored projections made with others are refused."""
        return blake2b(self.weight.tobytes() + self.bias.tobytes(), digest_size=16).hexdigest()


@dataclass(frozen=True)
class Exact:
    """The weights in float64, and the number of rows of every product."""

    users: Projection
    labels: Projection
    W2: Doubles  # (H, S)
    d2: Doubles  # (S,)
    w3: Doubles  # (S,)
    d3: float
    tile: int

    @staticmethod
    def of(weights: ScorerWeights) -> Exact:
        """In tiles of TILE rows, or of one on a machine that does not add alike in all rows of a tile."""
        exact = _with_tile(weights, TILE)
        return exact if _rows_alike(exact) else _with_tile(weights, 1)  # one row is always alike

    @staticmethod
    def read(file: Path) -> Exact:
        """From a model's mlp.safetensors."""
        return Exact.of(ScorerWeights.of(load_file(file)))

    @one_blas_thread()
    def scores(self, users: Doubles, labels: Doubles) -> Doubles:
        """(n,): of projections (n, H + R) and (n, H + R), or of (n, H + R) and the one (H + R,) that all share."""
        users, labels = np.broadcast_arrays(users, labels)
        scores = np.empty(len(users))
        for span in spans(len(users), self.tile):
            ours, theirs = (_whole(side[span.start : span.stop], self.tile) for side in (users, labels))
            pairs = pair_score(  # a sum, not a product, ends it: the order of its additions is numpy's own
                ours, theirs, len(self.W2), lambda first: first @ self.W2 + self.d2, lambda x: (x * self.w3).sum(-1)
            )
            scores[span.start : span.stop] = pairs[: len(span)]
        return scores + self.d3


def _whole(rows: Doubles, tile: int) -> Doubles:
    """These rows and zeros below, to fill a tile."""
    return rows if len(rows) == tile else np.pad(rows, ((0, tile - len(rows)), (0, 0)))


def _with_tile(weights: ScorerWeights, tile: int) -> Exact:
    wide = {name: array.astype(np.float64) for name, array in weights.arrays().items()}
    users, labels = (np.ascontiguousarray(np.vstack([wide[f"W_{side}"], wide[f"P_{side}"]]).T) for side in "ue")
    return Exact(
        users=Projection(users, np.zeros(weights.width), tile),
        labels=Projection(labels, np.pad(wide["d1"], (0, len(weights.P_e))), tile),
        W2=np.ascontiguousarray(wide["W2"].T),
        d2=wide["d2"],
        w3=wide["w3"],
        d3=weights.d3,
        tile=tile,
    )


def _rows_alike(exact: Exact) -> bool:
    """Whether equal rows of a tile get equal scores on this machine. Random numbers show any other order of adding."""
    rng = stream(0, "retrieval", "tile")
    users, labels = (
        side.of(np.tile(rng.standard_normal(len(side.weight), dtype=np.float32), (exact.tile, 1)))
        for side in (exact.users, exact.labels)
    )
    dense = replace(exact, d2=exact.d2 + 1e3)  # no unit of the second layer is zero, so that all are compared
    linear = replace(exact, w3=np.zeros_like(exact.w3), d3=0.0)  # large sums would hide the last bits of the factors
    rows = (users, labels, *(variant.scores(users, labels) for variant in (dense, linear)))
    return all((values == values[0]).all() for values in rows)
