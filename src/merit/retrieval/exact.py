"""The score of a pair in float64, from the vectors themselves: what every answer is ranked by.

    exact = Exact.of(mlp)
    exact.scores(exact.users.halves(user_vectors), exact.labels.halves(label_vectors))

A pair has one score, to the last bit, whichever call asks for it and whatever stands beside it. A BLAS does not promise
that: it may add in another order where a matrix has another shape or more threads. So all products here are made by one
thread and have one shape, a tile of rows of which the last may be partly unused, and a tile of equal rows is tried once
to see that each of them gives the same.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from hashlib import blake2b

import numpy as np
from numpy.typing import NDArray

from merit.core.seeds import stream
from merit.core.types import Floats
from merit.retrieval.mlp import Mlp
from merit.retrieval.threads import one_blas_thread, spans

Doubles = NDArray[np.float64]
TILE = 128  # rows: within 5 % of the rate of longer ones, and little is wasted on a short list


@dataclass(frozen=True)
class Layer:
    """What makes one side's halves: its part of the first layer, then its factors, which have no bias."""

    weight: Doubles  # (D, H + R)
    bias: Doubles  # (H + R,)
    tile: int

    @one_blas_thread()
    def halves(self, vectors: Floats) -> Doubles:
        """(n, H + R) of vectors (n, D)."""
        made = np.empty((len(vectors), len(self.bias)))
        wide, half = self.buffers()
        for span in spans(len(vectors), self.tile):
            self.fill(vectors[span.start : span.stop], wide, half)
            made[span.start : span.stop] = half[: len(span)]
        return made

    def buffers(self) -> tuple[Doubles, Doubles]:
        """For `fill`, made once for many tiles: memory fresh from the system costs more than the product itself."""
        return np.zeros((self.tile, len(self.weight))), np.empty((self.tile, len(self.bias)))

    def fill(self, vectors: Floats, wide: Doubles, half: Doubles) -> None:
        """half (tile, H + R) of up to a tile of vectors; what is below them is of no meaning."""
        wide[: len(vectors)] = vectors
        np.matmul(wide, self.weight, out=half)
        half += self.bias

    @property
    def fingerprint(self) -> str:
        """Of the weights: halves made with others are refused."""
        return blake2b(self.weight.tobytes() + self.bias.tobytes(), digest_size=16).hexdigest()


@dataclass(frozen=True)
class Exact:
    """The weights in float64, and the rows of the tile that every product has."""

    users: Layer
    labels: Layer
    W2: Doubles  # (H, S)
    d2: Doubles  # (S,)
    w3: Doubles  # (S,)
    d3: float
    tile: int

    @staticmethod
    def of(mlp: Mlp) -> Exact:
        """In tiles of TILE rows, or of one on a machine that does not add alike in all rows of a tile."""
        made = _with_tile(mlp, TILE)
        return made if _rows_alike(made) else _with_tile(mlp, 1)  # one row is always alike

    @one_blas_thread()
    def scores(self, user_projections: Doubles, label_projections: Doubles) -> Doubles:
        """(n,) of (n, H + R) and (n, H + R), or of (n, H + R) and the one (H + R,) that all share."""
        users, labels = np.broadcast_arrays(user_projections, label_projections)
        made, first, second = np.empty(len(users)), np.zeros((self.tile, users.shape[1])), self._second()
        for span in spans(len(users), self.tile):
            some = slice(span.start, span.stop)
            self._join(users[some], labels[some], first[: len(span)])
            made[some] = self._tail(first, second)[: len(span)]
        return made

    @one_blas_thread()
    def against(self, layer: Layer, vectors: Floats, half: Doubles) -> Doubles:
        """(n,) of vectors (n, D) of one side with one half (H + R,) of the other: `scores` that keeps no halves."""
        made, (wide, first), second = np.empty(len(vectors)), layer.buffers(), self._second()
        for span in spans(len(vectors), self.tile):
            layer.fill(vectors[span.start : span.stop], wide, first)
            self._join(first, half, first)
            made[span.start : span.stop] = self._tail(first, second)[: len(span)]
        return made

    def _second(self) -> Doubles:
        return np.empty((self.tile, len(self.w3)))

    def _join(self, ours: Doubles, theirs: Doubles, out: Doubles) -> None:
        """out (n, H + R): the sums of the first layer, then the products of the factors."""
        width = len(self.W2)
        np.add(ours[..., :width], theirs[..., :width], out=out[:, :width])
        np.multiply(ours[..., width:], theirs[..., width:], out=out[:, width:])

    def _tail(self, joined: Doubles, second: Doubles) -> Doubles:
        """(tile,) of joined halves (tile, H + R), which are overwritten."""
        first, products = np.split(joined, [len(self.W2)], axis=1)
        np.maximum(first, 0, out=first)
        np.matmul(first, self.W2, out=second)
        second += self.d2
        np.maximum(second, 0, out=second)
        second *= self.w3
        total: Doubles = second.sum(axis=1)
        total += products.sum(axis=1)
        return total + self.d3


def _with_tile(mlp: Mlp, tile: int) -> Exact:
    wide = {name: array.astype(np.float64) for name, array in mlp.arrays().items()}
    users, labels = (np.ascontiguousarray(np.vstack([wide[f"W_{side}"], wide[f"P_{side}"]]).T) for side in "ue")
    return Exact(
        users=Layer(users, np.zeros(mlp.half), tile),
        labels=Layer(labels, np.pad(wide["d1"], (0, len(mlp.P_e))), tile),
        W2=np.ascontiguousarray(wide["W2"].T),
        d2=wide["d2"],
        w3=wide["w3"],
        d3=mlp.d3,
        tile=tile,
    )


def _rows_alike(exact: Exact) -> bool:
    """Whether equal rows of a tile get equal scores on this machine. Random numbers show any other order of adding."""
    rng = stream(0, "retrieval", "tile")
    users, labels = (
        layer.halves(np.tile(rng.standard_normal(len(layer.weight), dtype=np.float32), (exact.tile, 1)))
        for layer in (exact.users, exact.labels)
    )
    dense = replace(exact, d2=exact.d2 + 1e3)  # no unit of the second layer sleeps, so that all are compared
    linear = replace(exact, w3=np.zeros_like(exact.w3), d3=0.0)  # large sums would hide the last bits of the products
    tried = (users, labels, *(each.scores(users, labels) for each in (dense, linear)))
    return all((found == found[0]).all() for found in tried)
