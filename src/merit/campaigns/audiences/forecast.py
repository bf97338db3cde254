"""What an audience promises: conversions with an interval, money, and how users spread over probabilities.

Two things keep conversions from being what probabilities add up to. Chance: every user converts or not. And the
probabilities themselves: how far such promises were from the truth among test users is measured, and widens the
interval as if all of them could be off together.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy import special

from merit.campaigns.audiences.combine import CombinedScores, Reals
from merit.campaigns.audiences.request import Economics
from merit.campaigns.audiences.sizing import gain
from merit.core.config import Frozen

TAIL = 0.025
SHARES = (1, 2, 5, 10, 20, 50, 100)  # percent of the eligible users, for the table of sizes
EDGES = tuple(10.0**power for power in np.arange(-4, 0.01, 0.25).tolist())  # of probability: four bins a decade


class ReliabilityBins(NamedTuple):
    """How promises were kept by test users, in bins of probability that rise: sums over pairs."""

    low: Reals
    promised: Reals
    true: Reals


class Forecast(Frozen):
    """Of the users who are contacted."""

    users: int
    conversions: float
    low: float
    high: float
    """95 of 100 such campaigns end between them, if nothing else changes."""
    least: float
    most: float
    """What the conversions add up to, whatever interests go together in one person."""
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


def forecast(found: CombinedScores, kept: ReliabilityBins, economics: Economics | None) -> Forecast:
    """`found`: of the contacted users alone."""
    mean, doubt = float(found.score.sum()), unkept(found.score, kept)
    chance = float((found.score * (1 - found.score)).sum())
    low, high = between(mean, chance + (doubt * mean) ** 2, len(found.score))
    money: dict[str, float] = {}
    if economics:
        money["cost"] = economics.cost_per_contact * len(found.score)
    if economics and economics.value_per_conversion:
        each = economics.value_per_conversion * economics.caused
        ends = {"value": mean, "value_low": low, "value_high": high}
        money |= {name: conversions * each - money["cost"] for name, conversions in ends.items()}
    return Forecast(
        users=len(found.score),
        conversions=mean,
        low=low,
        high=high,
        least=float(found.low.sum()),
        most=float(found.high.sum()),
        doubt=doubt,
        **money,
    )


def between(mean: float, variance: float, most: int) -> tuple[float, float]:
    """A 95 % interval of a count of which mean and variance are known.

    The count is taken as binomial, Poisson or negative binomial, as the variance is below, at or above the mean: one
    family, whose members have the mean and the variance asked for, and no mass below zero.
    """
    if mean <= 0:
        return 0.0, 0.0
    if variance < mean * (1 - 1e-6):
        trials = max(math.ceil(mean), round(mean * mean / (mean - variance)))
        ends = [float(special.bdtrik(tail, trials, mean / trials)) for tail in (TAIL, 1 - TAIL)]
    elif variance <= mean * (1 + 1e-6):
        ends = [float(special.pdtrik(tail, mean)) for tail in (TAIL, 1 - TAIL)]
    else:
        ends = [
            float(special.nbdtrik(tail, mean * mean / (variance - mean), mean / variance)) for tail in (TAIL, 1 - TAIL)
        ]
    low, high = (0.0 if math.isnan(end) else end for end in ends)  # nothing lies below the tail: then zero is its end
    return float(max(0, math.floor(low))), float(min(most, math.ceil(high)))


def unkept(scores: Reals, kept: ReliabilityBins) -> float:
    """How far promises like these were from the truth: their ratio less one, and the noise of that ratio.

    Bins count by how much the audience leans on them; one that no test pair fell into borrows from the nearest below.
    """
    weights = np.bincount(_bins(scores, kept.low), weights=scores, minlength=len(kept.low))
    if not weights.sum() or not len(kept.low):
        return 1.0
    weights = weights / weights.sum()
    ratio = kept.true / kept.promised
    noise = (kept.true + 1) / kept.promised**2  # as if one more had come true: no bin is certain
    return float(np.sqrt((weights**2 * noise).sum() + ((weights * ratio).sum() - 1) ** 2))


def _bins(scores: Reals, low: Reals) -> NDArray[np.int64]:
    return np.clip(np.searchsorted(low, scores, side="right") - 1, 0, None)


def sizes(falling: Reals, economics: Economics | None, shares: Sequence[float] = SHARES) -> tuple[SizeForecast, ...]:
    """What other sizes would bring, holdout and control not yet taken out. `falling`: of eligible users, best first."""
    total = np.cumsum(falling)
    made = []
    for percent in shares:
        users = math.floor(len(falling) * percent / 100)
        if users:
            worth = float(gain(falling[:users], economics).sum()) if economics else None
            conversions, lowest = float(total[users - 1]), float(falling[users - 1])
            made.append(SizeForecast(percent=percent, users=users, lowest=lowest, conversions=conversions, gain=worth))
    return tuple(made)


def histogram(falling: Reals) -> tuple[int, ...]:
    """Users between the EDGES of probability, from scores best first; what lies beyond counts at the ends."""
    below = np.searchsorted(falling[::-1], EDGES[1:-1], side="left")
    return tuple(np.diff(below, prepend=0, append=len(falling)).tolist())


def merged(counts: Sequence[int], least: int) -> list[tuple[int, int, int]]:
    """Neighbouring bins together until each holds at least so many: first bin, bin behind the last, count."""
    found: list[tuple[int, int, int]] = []
    start, held = 0, 0
    for place, count in enumerate(counts):
        start, held = (place, count) if not held else (start, held + count)
        if held >= least:
            found.append((start, place + 1, held))
            held = 0
    if held and found:
        first, _, had = found.pop()
        last = max(place for place, count in enumerate(counts) if count) + 1
        found.append((first, last, had + held))
    return found
