"""What an audience promises: one score from several interests, expected conversions with an interval, and money.

How interests go together in one user is not known: the model predicts each of them by itself. The combined score takes
them as independent given the user; its bounds hold whatever goes with what (Fréchet's bounds).

Two things keep conversions from being what probabilities add up to. Chance: every user converts or not. And the
probabilities themselves: how far such predictions were off among test users is measured, and widens the interval as if
all of them could be off together.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from typing import Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy import special

from merit.campaigns.audiences.request import Economics
from merit.core.config import Frozen

Reals = NDArray[np.float64]
TAIL = 0.025
SHARES = (1, 2, 5, 10, 20, 50, 100)  # percent of the eligible users, for the table of sizes
EDGES: tuple[float, ...] = tuple(
    10.0**power for power in np.arange(-4, 0.01, 0.25).tolist()
)  # of probability: four bins a decade


class CombinedScores(NamedTuple):
    """The score of each user and its bounds, which are the score itself for one interest and for weighted ones."""

    score: Reals  # (users,)
    low: Reals
    high: Reals


class ReliabilityBins(NamedTuple):
    """Predicted and observed conversions of test users, in bins of probability that rise: sums over pairs."""

    low: Reals
    predicted: Reals
    observed: Reals
    spread: float = 0.0
    """How far the buyers of some products are from the expectation beyond that, as a share: of windows."""


class Forecast(Frozen):
    """The expected conversions of the users who are contacted."""

    users: int | None = None
    """Contacted; None where there are too few to be shown."""
    conversions: float
    low: float
    high: float
    """95 of 100 such campaigns end between them, if nothing else changes."""
    least: float
    most: float
    """The bounds of the conversions, whatever interests go together in one user."""
    doubt: float
    """How far probabilities like these may be off, all together, as a share."""
    value: float | None = None
    value_low: float | None = None
    value_high: float | None = None
    cost: float | None = None


class SizeForecast(Frozen):
    """A size the audience could have."""

    percent: float
    users: int
    lowest: float
    conversions: float
    gain: float | None


def combined(interests: Iterable[tuple[Reals, float]], how: Literal["any", "all", "weighted"]) -> CombinedScores:
    """One score per user. `interests`: probabilities and a weight, one at a time: they need not fit in memory."""
    total, count, scores, low = 0.0, 0, np.empty(0), np.zeros(1)
    score = high = np.ones(1) if how == "all" else np.zeros(1)
    for scores, weight in interests:
        match how:
            case "any":
                score, low, high = score + _log_none(scores), np.maximum(low, scores), high + scores
            case "all":
                score, low, high = score * scores, low + scores, np.minimum(high, scores)
            case "weighted":
                score = score + weight * scores
        total, count = total + weight, count + 1
    if count == 1:
        return CombinedScores(scores, scores, scores)
    match how:
        case "any":
            return CombinedScores(-np.expm1(score), low, np.minimum(high, 1.0))
        case "all":
            return CombinedScores(score, np.maximum(low - (count - 1), 0.0), high)
        case "weighted":  # an offer about one interest, drawn by weight: which others go with it does not matter
            mean = score / total
            return CombinedScores(mean, mean, mean)


def _log_none(probability: Reals) -> Reals:
    with np.errstate(divide="ignore"):  # a probability of one is allowed
        return np.log1p(-probability)


def forecast(scores: CombinedScores, reliability: ReliabilityBins, economics: Economics | None) -> Forecast:
    """The forecast of the users whose scores are given: the contacted ones alone."""
    mean, doubt, users = float(scores.score.sum()), miscalibration(scores.score, reliability), len(scores.score)
    chance = float((scores.score * (1 - scores.score)).sum())
    low, high = count_interval(mean, chance + (doubt * mean) ** 2, users)
    money: dict[str, float] = {}
    if economics:
        money["cost"] = economics.cost_per_contact * users
    if economics and economics.value_per_conversion:
        value = economics.value_per_conversion * economics.caused
        ends = {"value": mean, "value_low": low, "value_high": high}
        money |= {name: conversions * value - money["cost"] for name, conversions in ends.items()}
    least, most = float(scores.low.sum()), float(scores.high.sum())
    return Forecast(users=users, conversions=mean, low=low, high=high, least=least, most=most, doubt=doubt, **money)


def count_interval(mean: float, variance: float, most: int) -> tuple[float, float]:
    """The 95 % interval of a count with this mean and variance.

    The count is taken as binomial, Poisson or negative binomial, as the variance is below, at or above the mean: one
    family, whose members have the given mean and variance, and no mass below zero.
    """
    if mean <= 0:
        return 0.0, 0.0
    tails = np.array([TAIL, 1 - TAIL])
    if variance < mean * (1 - 1e-6):
        trials = max(math.ceil(mean), round(mean * mean / (mean - variance)))
        ends = special.bdtrik(tails, trials, mean / trials)
    elif variance <= mean * (1 + 1e-6):
        ends = special.pdtrik(tails, mean)
    else:
        ends = special.nbdtrik(tails, mean * mean / (variance - mean), mean / variance)
    low, high = np.nan_to_num(ends).tolist()  # nan: nothing lies below the tail, so zero is its end
    return float(max(0, math.floor(low))), float(min(most, math.ceil(high)))


def miscalibration(scores: Reals, reliability: ReliabilityBins) -> float:
    """How far predictions like these were off: the observed over the predicted less one, and the noise of that ratio.

    Bins count by how much the audience leans on them; one that no test pair fell into borrows from the nearest below.
    """
    low, predicted, observed, spread = reliability
    bins = np.clip(np.searchsorted(low, scores, side="right") - 1, 0, None)
    weights = np.bincount(bins, weights=scores, minlength=len(low))
    if not weights.sum() or not len(low):
        return 1.0
    weights = weights / weights.sum()
    ratio = observed / predicted
    noise = (observed + 1) / predicted**2  # as if one more had converted: no bin is certain
    return float(np.sqrt((weights**2 * noise).sum() + ((weights * ratio).sum() - 1) ** 2 + spread**2))


def gain(scores: Reals, economics: Economics) -> Reals:
    """The expected value of contacting each user, less the cost."""
    return scores * economics.caused * (economics.value_per_conversion or 0) - economics.cost_per_contact


def sizes(falling: Reals, economics: Economics | None) -> tuple[SizeForecast, ...]:
    """Forecasts of other sizes, before holdout and control. `falling`: scores of eligible users, best first."""
    total, rows = np.cumsum(falling), []
    for percent in SHARES:
        if users := math.floor(len(falling) * percent / 100):
            value = float(gain(falling[:users], economics).sum()) if economics else None
            lowest, conversions = float(falling[users - 1]), float(total[users - 1])
            rows.append(SizeForecast(percent=percent, users=users, lowest=lowest, conversions=conversions, gain=value))
    return tuple(rows)


def histogram(falling: Reals) -> tuple[int, ...]:
    """Users between the EDGES of probability, from scores best first; what lies beyond counts at the ends."""
    below = np.searchsorted(falling[::-1], EDGES[1:-1], side="left")
    return tuple(np.diff(below, prepend=0, append=len(falling)).tolist())


def merged(counts: Sequence[int], least: int, whole: bool = False) -> list[tuple[int, int, int]]:
    """Neighbouring bins together until each holds at least so many: first bin, bin behind the last, count.

    Empty bins at the ends are left out, and so are all where they hold too few. With `whole`, every bin is in one.
    """
    bins: list[tuple[int, int, int]] = []
    start, total = 0, 0
    end = len(counts) if whole else max((place + 1 for place, count in enumerate(counts) if count), default=0)
    for place, count in enumerate(counts[:end]):
        start, total = (place, count) if not total and not whole else (start, total + count)
        if total >= least:
            bins.append((start, place + 1, total))
            start, total = place + 1, 0
    if start < end and total < least and (bins or whole):
        first, _, before = bins.pop() if bins else (start, end, 0)
        bins.append((first, end, before + total))
    return bins
