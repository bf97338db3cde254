"""How far a float32 score can be from the exact one. Proven, so that no row is left out by rounding.

Write a and b for the halves as stored, a* and b* for the exact ones, z = max(a, −b) for what is multiplied, and
γ(n) = n·2⁻²⁴ / (1 − n·2⁻²⁴) for the most that n roundings of float32 can do, in any order and with or without fused
operations. Then the score misses the exact one by at most

    ‖w3‖ ‖W2‖ (‖a − a*‖ + ‖b − b*‖)                 stored halves: relu never widens a difference
  + γ(H + S + 8) (Σ_j |w3_j| m_j + |d3|)            the products: H, then S of them, and a few single steps
    with m_j = ‖W2_j‖ (‖z‖ + ‖b‖) + |d2_j|          no number on the way of unit j is larger (Cauchy and Schwarz)

and ‖z‖² ≤ ‖a‖² + ‖b‖². The largest ‖a‖ and ‖a − a*‖ of all rows are measured when the halves are written, in any form
of storage. The exact pass rounds too, 2²⁹ times finer; a thousandth on top is far more than that.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from merit.retrieval.exact import Doubles
from merit.retrieval.mlp import Mlp

ROUNDING = 2.0**-24


@dataclass(frozen=True)
class Bound:
    """What the bound needs of the weights, computed once: the norm of a matrix is slow."""

    steep: float  # ‖w3‖ ‖W2‖
    growth: float  # Σ_j |w3_j| ‖W2_j‖
    rest: float  # Σ_j |w3_j d2_j| + |d3|
    roundings: float  # γ

    @staticmethod
    def of(mlp: Mlp) -> Bound:
        W2, d2, w3 = (np.abs(array.astype(np.float64)) for array in (mlp.W2, mlp.d2, mlp.w3))
        steps = (sum(W2.shape) + 8) * ROUNDING
        return Bound(
            steep=float(np.linalg.norm(w3) * np.linalg.norm(mlp.W2.astype(np.float64), 2)),
            growth=float(w3 @ np.linalg.norm(W2, axis=1)),
            rest=float(w3 @ d2) + abs(mlp.d3),
            roundings=steps / (1 - steps),
        )

    def most(self, norm: float, error: float, fixed_norms: Doubles, fixed_errors: Doubles) -> Doubles:
        """(F,): for rows with ‖a‖ ≤ norm and ‖a − a*‖ ≤ error against F fixed halves b."""
        reach = np.hypot(norm, fixed_norms) + fixed_norms  # ‖z‖ + ‖b‖
        made: Doubles = 1.001 * (
            self.steep * (error + fixed_errors) + self.roundings * (reach * self.growth + self.rest)
        )
        return made
