"""The chance of at least one purchase within a window: a hazard of user and products, times the days.

P = 1 - exp(-exp(x β) · days), the complementary log-log link: windows one after the other add up as hazards do. x is
what `pairs` reads of a user and a set of products:

- how often the user shops, over weeks, months and the year, shrunk towards what all users do (gamma-Poisson), and
  whether the user is overdue by that rate, as in BG/NBD;
- how often all users buy these products, and how often this user did, shrunk towards the product of both;
- when they are due: the share of the window at each stage of the user's own interval between purchases of them;
- what the label model expects, beyond what it expects of all users.

β is one for all products and windows, fitted by Fisher scoring.
"""

from __future__ import annotations

from itertools import pairwise
from typing import NamedTuple

import numpy as np

from merit.propensity.purchases import Activity, Buyers, Mask, Reals, exposure

SHAPE = 0.2  # of the gamma prior of a user's rate for products: most never buy them, some always
SHOPPING = 1.0  # the same of how often users shop
STAGES = (0.5, 0.8, 1.2, 2.0, 4.0, np.inf)  # of the interval since the last purchase; before the first: just bought
USUAL = 28.0  # days of a window, for which the features of windows are zero
WEEK = 7.0
RIDGE = 30.0  # pairs: few against the hundred thousands of a fit, and enough for what a small shop cannot tell
FURTHEST = (-30.0, 5.0)  # of log-hazards
IDEAL = {"shops 56": 1.0, "popular": 1.0, "again 224": 1.0}  # β of a plain gamma-Poisson model, where a fit starts
NAMES = (
    *("one", "shops 14", "shops 56", "shops 224", "shops last", "overdue", "new", "change"),
    *("popular", "rising", "expected", "length", "length, shops", "gap", "gap, shops"),
    *("again 14", "again 56", "again 224", "had", "had last", "had twice", "interval", "share", "amount"),
    *("expected, had", "length, had", "gap, had", *(f"due {low:g}" for low in STAGES[:-1])),
)
OF_BUYERS = NAMES.index("had")


class Window(NamedTuple):
    """`days` days that begin `gap` days after the end of what is known."""

    days: int
    gap: int = 0


class Popularity(NamedTuple):
    """How all users shop, and how often for the wanted products."""

    shops: Reals  # (half-lives,): the count of the mean user
    share: Reals  # (half-lives,): of shopping days, those with the products

    @staticmethod
    def of(shops: Reals, buyers: Reals, users: int) -> Popularity:
        """From the counts of all users and of buyers, added up; half a day is added to both."""
        return Popularity((shops + 0.5) / users, (buyers + 0.5) / (shops + 1))


def pairs(
    shops: Activity, at: Mask, buyers: Buyers, affinity: Reals, popular: Popularity, window: Window, span: float
) -> Reals:
    """(users, features). `buyers` are those of them who had the products, `at` their places; `span`: days known."""
    exposed, length, gap = exposure(span), np.log(window.days / USUAL), np.log1p(window.gap / WEEK)
    rates = (shops.counts + SHOPPING) / (exposed + SHOPPING * exposed / popular.shops)
    expected = rates * popular.share
    logs, last = np.log(rates), np.minimum(shops.last, span)
    busy, nothing = logs[:, 1] + 3, np.log(SHAPE / (SHAPE + expected * exposed))
    columns = np.zeros((len(rates), len(NAMES)))
    shared = (
        *(1.0, *logs.T, np.log1p(last), np.log1p(last * rates[:, 2])),
        *(np.log1p(np.minimum(shops.first, span)) - np.log1p(span), (logs[:, 0] - logs[:, 2]) ** 2),
        *(np.log(popular.share[1]), np.log(popular.share[0] / popular.share[2]), affinity),
        *(length, length * busy, gap, gap * busy, *nothing.T),
    )
    for place, column in enumerate(shared):
        columns[:, place] = column
    if at.any():
        columns[at] = _of_buyers(columns[at], shops.days[at], expected[at], exposed, buyers, affinity[at], window)
    return columns


def _of_buyers(
    columns: Reals,
    shopped: Reals,
    expected: Reals,
    exposed: Reals,
    buyers: Buyers,
    affinity: Reals,
    window: Window,
) -> Reals:
    """The same rows with what is known of those who had the products."""
    own = buyers.activity
    twice = own.days >= 2
    interval = np.maximum((own.first - own.last) / np.maximum(own.days - 1, 1), 1.0)
    start = (own.last + window.gap) / interval
    stop = start + window.days / interval
    due = [np.clip(np.minimum(stop, high) - np.maximum(start, low), 0, None) for low, high in pairwise(STAGES)]
    filled = (
        *np.log((own.counts + SHAPE) / (SHAPE + expected * exposed)).T,
        *(1.0, np.log1p(own.last), twice, twice * np.log(interval), np.log(own.days / np.maximum(shopped, 1))),
        *(np.log(own.lines / own.days), affinity),
        *(np.log(window.days / USUAL), np.log1p(window.gap / WEEK)),
        *(twice * stage / (stop - start) for stage in due),
    )
    for place, column in enumerate(filled):
        columns[:, OF_BUYERS - 3 + place] = column
    return columns


def fit(features: Reals, bought: Mask, days: Reals, weights: Reals, steps: int = 30) -> Reals:
    """(features,): β by Fisher scoring, held near that of a plain gamma-Poisson model; the constant is free."""
    ideal = np.array([IDEAL.get(name, 0.0) for name in NAMES])
    held = np.full(len(NAMES), RIDGE)
    held[0] = 1e-6
    beta, log_days = ideal.copy(), np.log(days)
    beta[0] = np.log(max((weights * bought).sum(), 0.5) / (weights * np.exp(features @ ideal + log_days)).sum())
    best, step = -np.inf, np.zeros_like(beta)
    for _ in range(steps):
        hazard = np.exp(np.clip(features @ beta + log_days, *FURTHEST))
        odds = np.maximum(np.expm1(hazard), 1e-300)  # of a purchase
        value = (weights * (bought * np.log(-np.expm1(-hazard)) - ~bought * hazard)).sum()
        value -= (held * (beta - ideal) ** 2).sum() / 2
        if value < best:  # too far
            step /= 2
            beta = beta - step
            continue
        if value - best < 1e-7 * abs(value):
            break
        best = value
        slope = features.T @ (weights * np.where(bought, hazard / odds, -hazard)) - held * (beta - ideal)
        curvature = (features * (weights * hazard**2 / odds)[:, None]).T @ features + np.diag(held)
        step = np.linalg.solve(curvature, slope)
        beta = beta + step
    return beta


def log_odds(features: Reals, beta: Reals, days: int) -> Reals:
    """(users,): of at least one purchase within the days."""
    hazard = np.exp(np.clip(features @ beta + np.log(days), *FURTHEST))
    odds: Reals = hazard + np.log(-np.expm1(-hazard))  # log(e^h - 1), also where e^h is beyond all numbers
    return odds
