"""Meta-analysis of several campaigns: their common lift, the prior for the next one, and the page that shows both.

    pooled = pool([personal_care, toys, sports])    # estimates under a flat prior, never posteriors: a prior
    pooled.common.above(), pooled.following         # that is in each of them would be counted several times

Two models. *Fixed effect*: all campaigns have one and the same lift, and precisions add. *Random effects*: each has its
own, spread around a mean with a standard deviation τ that is not known either, and that few campaigns say little about.
So τ is not estimated and then taken for true: every τ is weighed by how well it fits, and the result is the mixture.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import expm1, log1p, sqrt

import numpy as np
import polars as pl
from scipy.optimize import brentq
from scipy.special import chdtrc, ndtr

from merit.campaigns.experiments.charts import density, forest
from merit.campaigns.experiments.lift import Lift
from merit.campaigns.experiments.power import Prior
from merit.campaigns.experiments.statistics import Reals
from merit.core.errors import DataError
from merit.report.page import Chart, Page, Section, Table, Tile, share, signed, signed_interval

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
    """Both models of the same campaigns; spread and scale are of log(1 + lift)."""

    fixed: Lift
    """Fixed effect: one lift for all."""
    common: Mixture
    """Random effects: the mean of all campaigns there could be, if each has its own lift."""
    shrunk: tuple[Mixture, ...]
    """Every campaign pooled with the others: shrunk to the mean, the more the less is known of it."""
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
    effects = np.array([lift.mean for lift in campaigns])
    noise = np.array([lift.sd for lift in campaigns]) ** 2
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
    shrinkage = noise * precision  # (τ, campaigns): how far each is drawn to the mean
    common = Mixture(weights, means, sums**-0.5)
    spread_squared = float(weights @ spreads**2)
    return Pooled(
        fixed=Lift(float(means[0]), float(sums[0] ** -0.5)),
        common=common,
        shrunk=tuple(
            Mixture(
                weights,
                (1 - shrinkage[:, place]) * effects[place] + shrinkage[:, place] * means,
                np.sqrt((1 - shrinkage[:, place]) * noise[place] + shrinkage[:, place] ** 2 / sums),
            )
            for place in range(len(campaigns))
        ),
        spread=float(weights @ spreads),
        scale=scale,
        alike=float(chdtrc(len(campaigns) - 1, float(misfit[0]))),
        following=Prior(mean=common.lift.mean, sd=sqrt(common.lift.sd**2 + spread_squared)),
    )


def pool_sentence(campaigns: int, pooled: Pooled) -> str:
    """The result for a manager."""
    low, high = pooled.common.interval()
    return (
        f"Over {campaigns} campaigns the lift is {signed(pooled.common.value)} on average (95 % interval {signed(low)} "
        f"to {signed(high)}); the probability that it is positive is {share(pooled.common.above())}."
    )


def pool_page(campaigns: Mapping[str, Lift], pooled: Pooled) -> Page:
    """The page of pooled campaigns: alone, together, and the next. `campaigns`: estimates under a flat prior."""
    common, fixed, prior = pooled.common, pooled.fixed, pooled.following
    intervals = [f"{signed(low)} to {signed(high)}" for low, high in (common.interval(), fixed.interval())]
    tiles = (
        Tile("Campaigns", f"{len(campaigns)}"),
        Tile("Mean lift", signed(common.value), intervals[0]),
        Tile("P(mean lift > 0)", share(common.above())),
        Tile("If all had one lift", signed(fixed.value), intervals[1]),
        Tile("Spread of lifts", signed(pooled.spread)[1:], "standard deviation between campaigns"),
    )
    following = (
        f"From these, a next campaign of the same kind is expected to lift by {signed(prior.mean)}, give or take "
        f"{signed(prior.sd or 0)[1:]} (one standard deviation). To weigh it against the data of that campaign, "
        f"write into its design, before launch: prior = {{ mean = {prior.mean:.6f}, sd = {prior.sd:.6f} }}."
    )
    sections = (
        _together_section(campaigns, pooled),
        Section("Each", tables=(_campaign_table(campaigns, pooled),)),
        Section("The next campaign", (following,)),
    )
    return Page("Pooled campaigns", pool_sentence(len(campaigns), pooled), sections, tiles)


def _together_section(campaigns: Mapping[str, Lift], pooled: Pooled) -> Section:
    rows: dict[str, Lift | Mixture] = {**campaigns, "one lift for all": pooled.fixed, "mean of lifts": pooled.common}
    lifts = {name: (lift.value, *lift.interval()) for name, lift in rows.items()}
    return Section(
        "Together",
        (
            "Two models. One lift for all: campaigns differ by chance only. Mean of lifts: each campaign has its "
            "own, and the spread between them is not known either, so that few campaigns leave a wide interval.",
            f"Had all campaigns one lift, {share(pooled.alike)} of such sets would differ as much.",
        ),
        charts=(
            Chart("Campaigns and their pooled lift", forest(lifts)),
            Chart(
                "If all had one lift", density(pooled.fixed), "The blue area is the probability that it is positive."
            ),
        ),
    )


def _campaign_table(campaigns: Mapping[str, Lift], pooled: Pooled) -> Table:
    rows = [
        (name, _interval(alone), share(alone.above()), _interval(shrunk), share(shrunk.above()))
        for (name, alone), shrunk in zip(campaigns.items(), pooled.shrunk, strict=True)
    ]
    names = ["campaign", "alone", "P(lift > 0)", "pooled", "P(lift > 0), pooled"]
    frame = pl.DataFrame(rows, schema=names, orient="row")
    note = "Pooled: shrunk to the common mean, the more the less is known of the campaign itself."
    return Table("Campaigns", frame, dict.fromkeys(names[1:], "count"), note, wide=True)


def _interval(lift: Lift | Mixture) -> str:
    return signed_interval(lift.value, *lift.interval())
