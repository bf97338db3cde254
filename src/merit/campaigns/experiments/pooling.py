"""Several campaigns as one body of evidence, and what it makes us expect of the next.

    found = pool([personal_care, toys, sports])     # estimates under a flat prior, never posteriors: a prior
    found.common.above(), found.following           # that is in each of them would be counted several times

Two readings. *Fixed*: all campaigns have one and the same lift, and precisions add. *Random*: each has its own, spread
around a mean with a standard deviation τ that is not known either, and that few campaigns say little about. So τ is not
estimated and then taken for true: every τ is weighed by how well it fits, and the answer is the mixture.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import expm1, log1p, sqrt

import numpy as np
from scipy.optimize import brentq
from scipy.special import gammaincc, ndtr

from merit.campaigns.experiments.lift import Lift, Prior
from merit.campaigns.experiments.moments import Reals
from merit.core.errors import DataError

GRID = 601  # values of τ; the integrand is smooth, and 100 would do
FARTHEST = 6.0  # of τ, in scales of its prior: beyond lie 2·10⁻⁹ of it


@dataclass(frozen=True, eq=False)
class Mixture:
    """A lift that is one of many Gaussians on the log scale."""

    weights: Reals
    means: Reals
    sds: Reals

    @property
    def lift(self) -> Lift:
        """The one Gaussian of the same mean and variance."""
        mean = float(self.weights @ self.means)
        return Lift(mean, sqrt(float(self.weights @ (self.sds**2 + (self.means - mean) ** 2))))

    @property
    def value(self) -> float:
        """That of the one Gaussian, which is near the median and needs no search for it."""
        return self.lift.value

    def above(self, bar: float = 0.0) -> float:
        """The probability that the lift is greater than `bar`: the Gaussians' own, by weight."""
        return float(self.weights @ ndtr((self.means - log1p(bar)) / self.sds))

    def interval(self, level: float = 0.95) -> tuple[float, float]:
        """Between quantiles of the mixture itself, not of the one Gaussian, as lifts."""
        low, high = (self._quantile(share) for share in ((1 - level) / 2, (1 + level) / 2))
        return expm1(low), expm1(high)

    def _quantile(self, share: float) -> float:
        def excess(effect: float) -> float:
            return float(self.weights @ ndtr((effect - self.means) / self.sds)) - share

        near, reach = self.lift.mean, 40 * float(self.sds.max())
        return float(brentq(excess, near - reach, near + reach, xtol=1e-14))


@dataclass(frozen=True, eq=False)
class Pooled:
    """Both readings of the same campaigns; spread and scale are of log(1 + lift)."""

    fixed: Lift
    """If there is one lift for all."""
    common: Mixture
    """The mean of all campaigns there could be, if each has its own."""
    each: tuple[Mixture, ...]
    """Every campaign in the light of the others: drawn to the mean, the more the less is known of it."""
    spread: float
    """τ: how much the campaigns' own lifts differ; the mean of its posterior."""
    scale: float
    """Of the half-normal prior of τ."""
    alike: float
    """Probability of differences at least as large as these if all lifts were equal (Cochran's Q)."""
    following: Prior
    """What to expect of the next campaign: the mean, its uncertainty, and the spread."""


def pool(campaigns: Sequence[Lift], scale: float | None = None) -> Pooled:
    """Pool disjoint groups of users. `scale`: of τ's half-normal prior; default: the spread and noise of these."""
    if len(campaigns) < 2:
        raise DataError(f"Pooling needs at least two campaigns; {len(campaigns)} given.")
    effects = np.array([each.mean for each in campaigns])
    noise = np.array([each.sd for each in campaigns]) ** 2
    scale = scale or sqrt(float(noise.mean() + effects.var(ddof=1)))
    spreads = np.linspace(0, FARTHEST * scale, GRID)
    precision = 1 / (noise + spreads[:, None] ** 2)  # (τ, campaigns)
    sums = precision.sum(axis=1)
    means = precision @ effects / sums
    misfit = (precision * (effects - means[:, None]) ** 2).sum(axis=1)
    density = np.log(precision).sum(axis=1) / 2 - np.log(sums) / 2 - misfit / 2 - (spreads / scale) ** 2 / 2
    weights = np.exp(density - density.max())
    weights[[0, -1]] /= 2  # the trapezoid rule
    weights /= weights.sum()
    drawn = noise * precision  # (τ, campaigns): how far each is drawn to the mean
    common = Mixture(weights, means, sums**-0.5)
    spread_squared = float(weights @ spreads**2)
    return Pooled(
        fixed=Lift(float(means[0]), float(sums[0] ** -0.5)),
        common=common,
        each=tuple(
            Mixture(
                weights,
                (1 - drawn[:, place]) * effects[place] + drawn[:, place] * means,
                np.sqrt((1 - drawn[:, place]) * noise[place] + drawn[:, place] ** 2 / sums),
            )
            for place in range(len(campaigns))
        ),
        spread=float(weights @ spreads),
        scale=scale,
        alike=float(gammaincc((len(campaigns) - 1) / 2, float(misfit[0]) / 2)),
        following=Prior(mean=common.lift.mean, sd=sqrt(common.lift.sd**2 + spread_squared)),
    )
