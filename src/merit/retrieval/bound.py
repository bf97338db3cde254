"""How far a float32 score can be from the exact one. Proven, so that no row is left out by rounding.

Write a and b for the halves as stored, a* and b* for the exact ones, p, q, p* and q* for their factors, z = max(a, −b)
for what is multiplied, and γ(n) = n·2⁻²⁴ / (1 − n·2⁻²⁴) for the most that n roundings of float32 can do, in any order
and with or without fused operations. Then the score misses the exact one by at most

    ‖(‖w3‖ ‖W2‖, ‖q‖)‖ ‖a − a*‖                     stored halves: relu never widens a difference, and the product moves
  + ‖(‖w3‖ ‖W2‖, ‖p*‖)‖ ‖b − b*‖                    by q · (p − p*) + p* · (q − q*)
  + γ(H + S + 8) (Σ_j |w3_j| m_j + |d3|)            the layers: H, then S products, and a few single steps
    with m_j = ‖W2_j‖ (‖z‖ + ‖b‖) + |d2_j|          no number on the way of unit j is larger (Cauchy and Schwarz)
  + γ(R + 8) ‖p‖ ‖q‖                                the R products of factors, and the sum with the rest

The first two lines are Cauchy and Schwarz once more: what a half misses is partly in its layer, which weighs
‖w3‖ ‖W2‖, and partly in its factors, which weigh ‖q‖ or ‖p*‖. No part of a half is longer than the whole, so
‖p‖ ≤ ‖a‖, ‖p*‖ ≤ ‖a‖ + ‖a − a*‖ and ‖z‖² ≤ ‖a‖² + ‖b‖². The largest ‖a‖ and ‖a − a*‖ of all rows are measured when the
halves are written, in any form of storage. The exact pass rounds too, 2²⁹ times finer; a thousandth on top is far more
than that.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from merit.core.types import Floats
from merit.retrieval.exact import Doubles
from merit.retrieval.mlp import Mlp

ROUNDING = 2.0**-24


@dataclass(frozen=True)
class Bound:
    """What the bound needs of the weights, computed once: the norm of a matrix is slow."""

    width: int  # H
    steep: float  # ‖w3‖ ‖W2‖
    growth: float  # Σ_j |w3_j| ‖W2_j‖
    rest: float  # Σ_j |w3_j d2_j| + |d3|
    layers: float  # γ(H + S + 8)
    product: float  # γ(R + 8)

    @staticmethod
    def of(mlp: Mlp) -> Bound:
        """In float64. The norm of W2 is its largest singular value."""
        W2, d2, w3 = (np.abs(array.astype(np.float64)) for array in (mlp.W2, mlp.d2, mlp.w3))
        return Bound(
            width=len(mlp.d1),
            steep=float(np.linalg.norm(w3) * np.linalg.norm(mlp.W2.astype(np.float64), 2)),
            growth=float(w3 @ np.linalg.norm(W2, axis=1)),
            rest=float(w3 @ d2) + abs(mlp.d3),
            layers=_roundings(sum(W2.shape) + 8),
            product=_roundings(len(mlp.P_u) + 8),
        )

    def most(self, norm: float, error: float, halves: Doubles, stored: Floats) -> Doubles:
        """(F,): for rows with ‖a‖ ≤ norm and ‖a − a*‖ ≤ error against F fixed halves b*, of which b is used."""
        b = stored.astype(np.float64)
        fixed_norms, factors, missed = (np.linalg.norm(rows, axis=1) for rows in (b, b[:, self.width :], b - halves))
        reach = np.hypot(norm, fixed_norms) + fixed_norms  # ‖z‖ + ‖b‖
        made: Doubles = 1.001 * (
            np.hypot(self.steep, factors) * error
            + np.hypot(self.steep, norm + error) * missed
            + self.layers * (reach * self.growth + self.rest)
            + self.product * norm * factors
        )
        return made


def _roundings(steps: int) -> float:
    """γ"""
    return steps * ROUNDING / (1 - steps * ROUNDING)
