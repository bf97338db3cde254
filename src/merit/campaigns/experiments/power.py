"""Before launch: how small an effect a test can see, how many users that takes, how many days.

The decision is P(lift > 0) ≥ threshold. With a flat prior and no effect at all, a share 1 − threshold of tests passes
by luck: at 0.90, one in ten. `power` is the share that passes when the lift is the one planned for.

On the log scale the variance of the effect needs one figure of the outcome, its coefficient of variation:
Var = cv² (1 − R²) (1/n_T + 1/n_C), with cv² = (1 − p)/p for a binary outcome.
"""

from __future__ import annotations

from bisect import bisect_left
from math import ceil, expm1, inf, log1p, sqrt

import polars as pl
from pydantic import Field
from scipy.special import ndtr, ndtri

from merit.core.config import Frozen

SIZES = (0.5, 0.75, 1.0, 1.5, 2.0, 3.0)  # multiples of the planned lift, in the table of users
WEEKS = (1, 2, 3, 4, 6, 8, 12)
MOST = 10**18  # users: more than any test can have


class Prior(Frozen):
    """What was believed about log(1 + lift) before the campaign. For a few percent that is the lift itself."""

    mean: float = Field(0.0, gt=-1, lt=1)
    sd: float | None = Field(None, gt=0)
    """None: flat. Then the posterior is the estimate, and its interval covers the truth as often as it says."""


FLAT = Prior()


class Outlook(Frozen):
    """What is known of the outcome before the campaign."""

    mean: float = Field(gt=0)
    """Per user of the control: the conversion rate, or the revenue."""
    sd: float | None = Field(None, gt=0)
    """Of the outcome over users. Needed for amounts; a rate has its own, √(p(1 − p))."""
    variance_removed: float = Field(0.0, ge=0, lt=1)
    """R²: the share of the outcome's variance that the covariates explain. Zero is the safe guess."""
    users: int | None = Field(None, gt=0)
    """How many there are in all, over all arms."""
    users_per_day: int | None = Field(None, gt=0)
    """How many enter the test each day, over all arms; gives durations."""

    @property
    def noise(self) -> float:
        """Variance of one user's outcome in squares of the mean, after adjustment."""
        variance = self.sd**2 if self.sd is not None else self.mean * (1 - self.mean)
        return variance / self.mean**2 * (1 - self.variance_removed)


class DecisionRule(Frozen):
    """When a test ships, and how it is split."""

    treatment: float = Field(0.5, gt=0, lt=1)
    control: float = Field(0.5, gt=0, lt=1)
    threshold: float = Field(0.9, gt=0.5, lt=1)
    power: float = Field(0.8, gt=0.5, lt=1)
    prior: Prior = FLAT


def effect_sd(outlook: Outlook, rule: DecisionRule, users: float) -> float:
    """Of log(1 + lift) with that many users over all arms."""
    return sqrt(outlook.noise * (1 / rule.treatment + 1 / rule.control) / users)


def bar(sd: float, rule: DecisionRule) -> float:
    """The smallest estimate of log(1 + lift) that ships."""
    needed = float(ndtri(rule.threshold))
    if rule.prior.sd is None:
        return needed * sd
    precision = sd**-2 + rule.prior.sd**-2
    return sd**2 * (needed * sqrt(precision) - rule.prior.mean * rule.prior.sd**-2)


def chance_to_ship(lift: float, outlook: Outlook, rule: DecisionRule, users: float) -> float:
    """The power against a lift; at lift 0, how often luck alone ships."""
    sd = effect_sd(outlook, rule, users)
    return float(ndtr((log1p(lift) - bar(sd, rule)) / sd))


def smallest_lift(outlook: Outlook, rule: DecisionRule, users: float) -> float:
    """The minimum detectable effect: the lift that ships with the rule's power."""
    return detectable(effect_sd(outlook, rule, users), rule)


def detectable(sd: float, rule: DecisionRule) -> float:
    """The same for a test whose precision is known. Never negative, whatever the prior hopes."""
    effect = max(0.0, bar(sd, rule) + float(ndtri(rule.power)) * sd)
    return expm1(effect) if effect < 100 else inf  # a handful of users against a firm prior


def users_needed(lift: float, outlook: Outlook, rule: DecisionRule) -> int:
    """Over all arms, for that lift to be found with the rule's power. More users always see smaller lifts: bisect.

    Two percent more of five percent who convert:

    >>> users_needed(0.02, Outlook(mean=0.05), DecisionRule())
    873653
    """
    return 4 + bisect_left(range(4, MOST), -lift, key=lambda users: -smallest_lift(outlook, rule, users))


def by_lift(lift: float, outlook: Outlook, rule: DecisionRule) -> pl.DataFrame:
    """Users and days for lifts around the planned one: lift, users, days."""
    lifts = [lift * size for size in SIZES]
    users = [users_needed(lift, outlook, rule) for lift in lifts]
    daily = outlook.users_per_day
    days = [ceil(count / daily) if daily else None for count in users]
    return pl.DataFrame({"lift": lifts, "users": users, "days": days})


def by_week(outlook: Outlook, rule: DecisionRule) -> pl.DataFrame:
    """The smallest lift after whole weeks, as weekdays differ: weeks, users, lift."""
    daily = outlook.users_per_day or 0
    total = outlook.users or 7 * daily * max(WEEKS)
    users = [min(7 * daily * week, total) for week in WEEKS]
    rows = [
        (week, count, smallest_lift(outlook, rule, count)) for week, count in zip(WEEKS, users, strict=True) if count
    ]
    table = pl.DataFrame(rows, schema={"weeks": pl.Int64, "users": pl.Int64, "lift": pl.Float64}, orient="row")
    return table.unique("users", keep="first", maintain_order=True)  # once all users are in, waiting adds nothing
