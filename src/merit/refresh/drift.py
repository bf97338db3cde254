"""How far figures have moved since the training, and whether that is more than chance: pure functions of counts.

The population stability index of two distributions is Σ (p − q) ln(p / q). By convention 0.1 is some and 0.2 to 0.25
much; of few users it is as large by chance, so that what chance gives in one of a hundred times is computed beside it.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray
from pydantic import Field
from scipy.special import chdtri

from merit.core.config import Frozen
from merit.core.types import Ints

CHANCE = 1e-2  # how often chance alone goes beyond `Drift.chance`
COUNTS = np.array([0, 1, 2, 3, 5, 8, 13, 21, 34, 55])  # where bins of events per user begin
LABELS, EACH = 30, 10  # the most frequent labels are a bin each, as long as there are ten buyers to each
NAMES = {"events": "events per user", "labels": "labels bought", "scores": "scores"}


class WatchConfig(Frozen):
    """From when on a refreshed model should be trained anew (`benchmarks.drift` shows how often chance says so)."""

    psi: float = Field(0.2, gt=0)
    """Of events per user, labels bought, or scores, since the training."""
    unknown: float = Field(0.1, gt=0)
    """Share of new events with an item that no table has."""
    calibration: float = Field(1.5, gt=1)
    """Purchases that were expected over those that came, or the other way round."""


class Drift(Frozen):
    """A population stability index, and what chance makes of one."""

    value: float
    chance: float

    def beyond(self, limit: float) -> bool:
        """Whether it is beyond a limit, and beyond chance."""
        return self.value > max(limit, self.chance)


class Kept(Frozen):
    """Probabilities against what came true: sums over users."""

    users: int
    expected: float
    observed: float
    deviation: float
    """How many standard deviations, over users, the two are apart."""
    recall_at_10: float
    log_loss: float
    bins: tuple[tuple[float, float, int, float, int], ...] = ()
    """low, high, pairs, expected, observed."""

    @property
    def ratio(self) -> float:
        """Observed over expected, or the other way round: one or more."""
        low, high = sorted((max(self.expected, 1e-9), max(self.observed, 1e-9)))
        return high / low

    def broken(self, limit: float) -> bool:
        """Whether probabilities are off by more than this factor, and by more than chance."""
        return self.ratio > limit and abs(self.deviation) > 4


def psi(before: Ints, since: Ints, units: tuple[int, int] | None = None) -> Drift:
    """Of counts in the same bins. `units` are how many independent ones are counted, if fewer than all."""
    sizes = units or (int(before.sum()), int(since.sum()))
    bins = len(before)
    p, q = ((counts + 0.5) / (counts.sum() + 0.5 * bins) for counts in (before, since))
    value = float(((p - q) * np.log(p / q)).sum())
    return Drift(
        value=round(value, 4), chance=round(float(chdtri(bins - 1, CHANCE)) * sum(1 / max(n, 1) for n in sizes), 4)
    )


def per_user(events: Ints) -> Ints:
    """How many users have so many events."""
    return np.bincount(np.searchsorted(COUNTS, events, side="right") - 1, minlength=len(COUNTS))


def labels(before: Ints, since: Ints, buyers: tuple[int, int]) -> Drift:
    """Of labels bought: those that were most frequent before, and all others together."""
    best = np.argsort(-before, kind="stable")[: min(LABELS, max(1, min(buyers) // EACH))]
    first, second = (np.append(counts[best], counts.sum() - counts[best].sum()) for counts in (before, since))
    return psi(first, second, buyers)


def kept(expected: NDArray[np.float64], observed: Ints, recall: NDArray[np.float64], loss: NDArray[np.float64]) -> Kept:
    """Of users: how many labels each was expected to buy and bought, the recall of the list, the log loss."""
    apart = observed - expected
    return Kept(
        users=len(expected),
        expected=round(float(expected.sum()), 2),
        observed=float(observed.sum()),
        deviation=round(float(apart.sum() / max(np.sqrt((apart**2).sum()), 1e-9)), 2),
        recall_at_10=round(float(recall.mean()), 4),
        log_loss=round(float(loss.mean()), 6),
    )


def reasons(drifts: dict[str, Drift], unknown: float, judged: Kept | None, config: WatchConfig) -> list[str]:
    """Why the model should be trained anew; none where nothing has moved beyond its limit and beyond chance."""
    moved = [
        f"{NAMES[name]} have drifted (PSI {drift.value:.2f}, limit {config.psi:g})"
        for name, drift in drifts.items()
        if drift.beyond(config.psi)
    ]
    if unknown > config.unknown:
        moved.append(f"{unknown:.0%} of new events have an item that no table has (limit {config.unknown:.0%})")
    if judged and judged.broken(config.calibration):
        moved.append(
            f"probabilities do not hold: {judged.expected:,.0f} labels were expected, {judged.observed:,.0f} bought"
        )
    return moved


def verdict(why: list[str], drifts: dict[str, Drift], days: float, config: WatchConfig) -> str:
    """When to train anew, in a sentence; `days` are those since the training."""
    if why:
        return f"Train anew now: {'; '.join(why)}."
    moving = {name: drift for name, drift in drifts.items() if drift.value > drift.chance}
    if not moving or not days:
        return "Nothing has moved beyond chance: no need to train anew."
    name, drift = max(moving.items(), key=lambda item: item[1].value)
    weeks = max(1, round(days * (config.psi / drift.value - 1) / 7))
    return f"No need to train anew yet; at the pace so far, {NAMES[name]} reach the limit in about {weeks} weeks."
