"""How much better the treatment is, in percent of the control, and how sure that is.

    comparison = compare(treatment, control)        # two `Moments`
    lift = update(comparison.lift, Prior(sd=0.02))  # the posterior
    lift.value, lift.interval(), lift.above(0.0)

The effect is the logarithm of the ratio of means, and it is the effect that is Gaussian: 1 + lift = e^effect. For lifts
of a few percent both scales agree to the second figure; with few conversions the logarithm is the calibrated one
(docs/decisions/0005).

The treatment's mean is adjusted for covariates from before the campaign, the control's mean is the plain one. The
slopes of the covariates are those that leave the difference of the arms the least variance. With arms of
equal size that is CUPED, or a regression on arm and covariates; with any sizes it is the regression with a slope per
arm, which cannot do worse than no adjustment.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import exp, expm1, inf, log, log1p, sqrt

import numpy as np
from scipy.special import ndtr, ndtri

from merit.campaigns.experiments.power import Prior
from merit.campaigns.experiments.statistics import Moments, Reals, standardised
from merit.core.errors import DataError


@dataclass(frozen=True)
class Lift:
    """A relative lift that is not known exactly: log(1 + lift) is Gaussian."""

    mean: float
    sd: float

    @property
    def value(self) -> float:
        """The median: as likely too high as too low."""
        return expm1(self.mean)

    def above(self, bar: float = 0.0) -> float:
        """The probability that the lift is greater than `bar`."""
        return float(ndtr((self.mean - log1p(bar)) / self.sd))

    def interval(self, level: float = 0.95) -> tuple[float, float]:
        """Holds the lift with the probability `level`, as much on either side; longer above the median than below."""
        reach = float(ndtri((1 + level) / 2)) * self.sd
        return expm1(self.mean - reach), expm1(self.mean + reach)

    @property
    def loss_of_shipping(self) -> float:
        """How much is lost on average by taking the treatment: the mean of max(−lift, 0)."""
        z = self.mean / self.sd
        return float(ndtr(-z) - exp(self.mean + self.sd**2 / 2) * ndtr(-z - self.sd))

    @property
    def loss_of_keeping(self) -> float:
        """How much is lost on average by staying with the control: the mean of max(lift, 0)."""
        z = self.mean / self.sd
        return float(exp(self.mean + self.sd**2 / 2) * ndtr(z + self.sd) - ndtr(z))

    def density(self, lifts: Reals) -> Reals:
        """Per unit of lift, for drawing."""
        effects = np.log1p(lifts)
        heights = np.exp(-(((effects - self.mean) / self.sd) ** 2) / 2) / (self.sd * sqrt(2 * np.pi))
        densities: Reals = heights / (1 + lifts)
        return densities


@dataclass(frozen=True)
class Difference:
    """Treatment minus control, in units of the outcome."""

    value: float
    sd: float

    def interval(self, level: float = 0.95) -> tuple[float, float]:
        """Holds the difference with the probability `level`; symmetric, in units of the outcome."""
        reach = float(ndtri((1 + level) / 2)) * self.sd
        return self.value - reach, self.value + reach


@dataclass(frozen=True, eq=False)
class Comparison:
    """Two arms compared, before any prior."""

    lift: Lift
    """With covariates, under a flat prior."""
    plain_lift: Lift
    """Without covariates."""
    difference: Difference
    adjusted_mean: float
    """The treatment's mean, had its users been like those of the control before the campaign."""
    slopes: Reals
    """(covariates,): how much outcome goes with one unit of each."""
    variance_removed: float
    """Share of the difference's variance that the covariates explain."""


def published(value: float, low: float, high: float, level: float = 0.95) -> Lift:
    """A lift from a table that gives only its interval.

    The first campaign of the paper, +0.23 % (−0.12 %, +0.57 %), which it calls 90 % likely to help:

    >>> print(f"{published(0.0023, -0.0012, 0.0057).above(0.0):.2f}")
    0.90
    """
    if not -1 < low < high or not low < value < high:
        raise DataError(
            f"A lift of {value:g} with the interval ({low:g}, {high:g}) cannot be: the lower end must be above −1 "
            "and the lift between the ends. Write lifts as fractions: 0.0023 for 0.23 %."
        )
    return Lift(log1p(value), (log1p(high) - log1p(low)) / (2 * float(ndtri((1 + level) / 2))))


def compare(treatment: Moments, control: Moments) -> Comparison:
    """The lift of one arm over another. Refuses arms without users, variance or a positive mean."""
    _require_outcomes(treatment, control)
    slopes = best_slopes(treatment, control)
    none = np.zeros_like(slopes)
    difference, plain = _difference(treatment, control, slopes), _difference(treatment, control, none)
    if difference.sd <= 1e-6 * plain.sd:
        raise DataError(
            "The covariates explain the outcome completely, so one of them is the outcome itself or was measured after "
            "the campaign began. Take it out of the design's covariates."
        )
    return Comparison(
        lift=_lift(treatment, control, slopes),
        plain_lift=_lift(treatment, control, none),
        difference=difference,
        adjusted_mean=float(control.mean[0]) + difference.value,
        slopes=slopes,
        variance_removed=1 - (difference.sd / plain.sd) ** 2,
    )


def best_slopes(treatment: Moments, control: Moments) -> Reals:
    """The θ with the least Var[(ȳ_T − ȳ_C) − θ·(x̄_T − x̄_C)]. One that never varies gets none, twins share theirs."""
    joint = treatment.covariance / treatment.users + control.covariance / control.users
    shared, scale = standardised(joint[1:, 1:])
    slopes: Reals = np.linalg.lstsq(shared, joint[1:, 0] / scale, rcond=1e-10)[0] / scale
    return slopes


def update(estimate: Lift, prior: Prior) -> Lift:
    """Bayes' rule for two Gaussians: precisions add, and weigh the means."""
    if prior.sd is None:
        return estimate
    precision = estimate.sd**-2 + prior.sd**-2
    return Lift((estimate.mean * estimate.sd**-2 + prior.mean * prior.sd**-2) / precision, precision**-0.5)


def doubt_needed(estimate: Lift, threshold: float) -> float:
    """The sd of the widest prior around no effect that undoes P(lift > 0) ≥ threshold; ∞ if it does not hold anyway."""
    needed = float(ndtri(threshold))
    z = estimate.mean / estimate.sd
    return estimate.sd / sqrt((z / needed) ** 2 - 1) if z > needed else inf


def conversions(arm: Moments) -> float:
    """How many equal buyers the outcome is worth, (Σy)² / Σy²: for a binary outcome, the users who converted."""
    total = arm.users * float(arm.mean[0])
    squares = float(arm.scatter[0, 0]) + total * float(arm.mean[0])
    return total**2 / squares if squares > 0 else 0.0


def _lift(treatment: Moments, control: Moments, slopes: Reals) -> Lift:
    """log(a / c), a = ȳ_T − θ·(x̄_T − x̄_C), c = ȳ_C, and its variance to first order."""
    c = float(control.mean[0])
    a = float(treatment.mean[0] - slopes @ (treatment.mean - control.mean)[1:])
    if a <= 0:
        raise DataError(
            f"Adjusted for covariates, the treatment's mean is {a:.3g}: a lift in percent has no meaning. "
            "The covariates explain more than there is; take out those that are not from before the campaign."
        )
    variance = _variance(treatment, np.append(1, -slopes) / a) + _variance(control, np.append(-1 / c, slopes / a))
    return Lift(log(a / c), sqrt(variance))


def _difference(treatment: Moments, control: Moments, slopes: Reals) -> Difference:
    weights = np.append(1, -slopes)
    variance = _variance(treatment, weights) + _variance(control, weights)
    return Difference(float(weights @ (treatment.mean - control.mean)), sqrt(variance))


def _variance(arm: Moments, weights: Reals) -> float:
    """Of a weighted sum of an arm's means."""
    return float(weights @ arm.covariance @ weights) / arm.users


def _require_outcomes(treatment: Moments, control: Moments) -> None:
    for name, arm in (("treatment", treatment), ("control", control)):
        users, variables, mean = arm.users, len(arm.mean), float(arm.mean[0])
        if users < variables + 2:
            raise DataError(f"The {name} has {users} users: too few to say anything. Wait for more, or pool arms.")
        if mean == 0 and arm.scatter[0, 0] == 0:
            raise DataError(
                f"Nobody in the {name} ({users:,} users) has an outcome above zero, so there is no lift in percent. "
                "Check that the outcome column is the right one, or wait until there are conversions."
            )
        if mean <= 0:
            raise DataError(
                f"The {name}'s mean outcome is {mean:.3g}: a lift in percent of it has no meaning. "
                "Use an outcome that is positive on average, such as revenue before returns."
            )
        if arm.scatter[0, 0] <= 1e-12 * users * mean**2:  # what rounding leaves of nothing
            raise DataError(
                f"Every user of the {name} has the same outcome, {mean:g}: nothing varies, so nothing can be learned. "
                "Check that the outcome column is the right one."
            )
