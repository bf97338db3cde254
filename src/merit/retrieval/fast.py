"""Scores in float32 of a few fixed projections against many rows, streamed through a block that stays in cache.

This is the fast path beside `propensity.score`: it finds candidates, which are then scored exactly. relu(a + b) is
max(a, −b) + b, and b is the same for every row. So the sum moves behind the product, where it is one number per unit,
and a block costs one pass of max before the product instead of an addition and a relu:

    W2 relu(a + b) + d2  =  W2 max(a, −b) + c           with c = W2 b + d2
    w3 · relu(y + c)     =  w3 · max(y, −c) + w3 · c

The factors of a projection have a floor of −∞: they go through the same pass unchanged, which is faster than to leave
them out of it, and are in cache for their product.

`Bound` proves how far such a score can be from the exact one, so that no row is left out by rounding. Write a and b for
the projections as stored, a* and b* for the exact ones, p, q, p* and q* for their factors, z = max(a, −b) for what is
multiplied, and γ(n) = n·2⁻²⁴ / (1 − n·2⁻²⁴) for the most that n roundings of float32 can do, in any order and with or
without fused operations. Then the score misses the exact one by at most

    ‖(‖w3‖ ‖W2‖, ‖q‖)‖ ‖a − a*‖                     stored projections: relu never widens a difference, and the product
  + ‖(‖w3‖ ‖W2‖, ‖p*‖)‖ ‖b − b*‖                    moves by q · (p − p*) + p* · (q − q*)
  + γ(H + S + 8) (Σ_j |w3_j| m_j + |d3|)            the layers: H, then S products, and a few single steps
    with m_j = ‖W2_j‖ (‖z‖ + ‖b‖) + |d2_j|          no number on the way of unit j is larger (Cauchy and Schwarz)
  + γ(R + 8) ‖p‖ ‖q‖                                the R products of factors, and the sum with the rest

The first two lines are Cauchy and Schwarz once more: the error of a projection is partly in its layer, which weighs
‖w3‖ ‖W2‖, and partly in its factors, which weigh ‖q‖ or ‖p*‖. No part of a projection is longer than the whole, so
‖p‖ ≤ ‖a‖, ‖p*‖ ≤ ‖a‖ + ‖a − a*‖ and ‖z‖² ≤ ‖a‖² + ‖b‖². The largest ‖a‖ and ‖a − a*‖ of all rows are measured when
projections are stored. The exact pass rounds too, 2²⁹ times finer; a thousandth on top is far more than
that.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from merit.core.types import Floats, Ints
from merit.retrieval.exact import Doubles, ScorerWeights, map_threads, spans
from merit.retrieval.store import Rows

CACHED = 2**19  # bytes of a block: half of a core's own cache, the rest is for W2 and the result
STRETCH = 65_536  # rows after which their memory is let go
TALL = 32  # rows that max takes as one long row: numpy's loop starts anew at each row, a twentieth of the whole
LITTLE = 65_536  # pairs: a thread takes longer to start than to score them
ROUNDING = 2.0**-24


class Fixed(NamedTuple):
    """A projection that stays while the rows of the other side go by."""

    floor: Floats  # (TALL · (H + R),)  −b, then −∞ for the factors, over and over
    second_floor: Floats  # (S,)  −c
    constant: np.float32  # w3 · c + d3
    factors: Floats  # (R,)


Buffers = tuple[Floats, Floats]  # (block, H + R) and (block, S): what one thread works in, made once for all its blocks


def fix(weights: ScorerWeights, projections: Floats) -> list[Fixed]:
    """Projections (F, H + R) made ready. The constants in float64: they are in every score."""
    b, factors = np.split(projections, [len(weights.d1)], axis=1)
    floors = np.hstack([-b, np.full_like(factors, -np.inf)])
    c = b.astype(np.float64) @ weights.W2_columns.astype(np.float64) + weights.d2
    constant = c @ weights.w3.astype(np.float64) + weights.d3
    parts = zip(floors, -c.astype(np.float32), constant.astype(np.float32), factors, strict=True)
    return [Fixed(np.tile(floor, TALL), *others) for floor, *others in parts]


def buffers(weights: ScorerWeights, block: int) -> Buffers:
    """For one thread, which may use them for blocks of up to so many rows."""
    return np.empty((block, weights.width), np.float32), np.empty((block, len(weights.d2)), np.float32)


def scores(
    weights: ScorerWeights, side: Rows, fixed: list[Fixed], rows: Ints | None, threads: int, block: int
) -> Floats:
    """(F, n): of these rows (ascending) of a side's projections, or of all."""
    count = len(side) if rows is None else len(rows)
    made = np.empty((len(fixed), count), np.float32)

    def stretch(span: range) -> None:
        work = buffers(weights, block)
        for part in range(span.start, span.stop, block):
            place = slice(part, min(part + block, span.stop))
            chosen = place if rows is None else rows[place]
            for one, row in zip(fixed, made, strict=True):
                score_block(weights, side, chosen, one, work, row[place])
        if side.file and side.file.large:
            side.release(span if rows is None else range(int(rows[span.start]), int(rows[span.stop - 1]) + 1))

    if count * len(fixed) < LITTLE:
        threads = 1
    share = min(STRETCH, -(-count // threads))  # so that a small side is shared among the threads as well
    stretches = spans(count, max(1, -(-share // block)) * block)  # whole blocks: threads change no bit
    map_threads(stretch, stretches, threads)
    return made


def score_block(
    weights: ScorerWeights, side: Rows, rows: Ints | slice, fixed: Fixed, work: Buffers, out: Floats
) -> None:
    """Write the scores (n,) of one fixed projection and up to a block of rows into `out`."""
    first, second = (array[: len(out)] for array in work)
    if not len(weights.d1) + len(weights.d2):  # no layers: a product and nothing else
        np.matmul(side.values[rows], fixed.factors, out=out)
        out += fixed.constant
        return
    _raise(side.values[rows], fixed.floor, first)
    width = len(weights.d1)
    np.matmul(first[:, :width], weights.W2_columns, out=second)
    np.maximum(second, fixed.second_floor, out=second)
    np.matmul(second, weights.w3, out=out)
    out += first[:, width:] @ fixed.factors
    out += fixed.constant


def _raise(rows: Floats, floor: Floats, out: Floats) -> None:
    """out (n, H + R) = max(rows, floor), TALL rows at a time as far as that goes."""
    whole = len(rows) // TALL * TALL
    np.maximum(rows[:whole].reshape(-1, len(floor)), floor, out=out[:whole].reshape(-1, len(floor)))
    if whole < len(rows):
        np.maximum(rows[whole:], floor[: rows.shape[1]], out=out[whole:])


@dataclass(frozen=True)
class Bound:
    """What the bound needs of the weights, computed once: the norm of a matrix is slow."""

    width: int  # H
    steep: float  # ‖w3‖ ‖W2‖
    growth: float  # Σ_j |w3_j| ‖W2_j‖
    rest: float  # Σ_j |w3_j d2_j| + |d3|
    layers: float  # γ(H + S + 8)
    factors: float  # γ(R + 8)

    @staticmethod
    def of(weights: ScorerWeights) -> Bound:
        """In float64. The norm of W2 is its largest singular value."""
        W2, d2, w3 = (np.abs(array.astype(np.float64)) for array in (weights.W2, weights.d2, weights.w3))
        return Bound(
            width=len(weights.d1),
            steep=float(np.linalg.norm(w3) * np.linalg.norm(weights.W2.astype(np.float64), 2)) if W2.size else 0.0,
            growth=float(w3 @ np.linalg.norm(W2, axis=1)),
            rest=float(w3 @ d2) + abs(weights.d3),
            layers=_roundings(sum(W2.shape) + 8),
            factors=_roundings(len(weights.P_u) + 8),
        )

    def most(self, norm: float, error: float, projections: Doubles, stored: Floats) -> Doubles:
        """(F,): for rows with ‖a‖ ≤ norm and ‖a − a*‖ ≤ error against F fixed b*, of which `stored` b is used."""
        b = stored.astype(np.float64)
        fixed_norms, factors, missed = (
            np.linalg.norm(rows, axis=1) for rows in (b, b[:, self.width :], b - projections)
        )
        reach = np.hypot(norm, fixed_norms) + fixed_norms  # ‖z‖ + ‖b‖
        bounds: Doubles = 1.001 * (
            np.hypot(self.steep, factors) * error
            + np.hypot(self.steep, norm + error) * missed
            + self.layers * (reach * self.growth + self.rest)
            + self.factors * norm * factors
        )
        return bounds


def _roundings(steps: int) -> float:
    """γ"""
    return steps * ROUNDING / (1 - steps * ROUNDING)
