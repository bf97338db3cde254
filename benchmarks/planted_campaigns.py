"""Campaigns whose true lift is known, to ask whether an analysis finds it as often as it promises.

for treatment, control in campaigns(PlantedCampaign(lift=0.05), number=2000, seed=7):
    low, high = compare(treatment, control).lift.interval()
"""

from __future__ import annotations

from collections.abc import Iterator
from math import exp, log, log1p, sqrt
from typing import Literal

import numpy as np
from pydantic import Field, model_validator
from scipy.optimize import brentq
from scipy.special import ndtr

from merit.campaigns.experiments.statistics import Moments, Reals
from merit.core.config import Frozen
from merit.core.seeds import stream

BLOCK = 1 << 21  # outcomes drawn at a time


class PlantedCampaign(Frozen):
    """What users are drawn from; refused where somebody would convert with a probability above one."""

    users: int = Field(4_000, ge=8)
    """Of both arms together."""
    treated: float = Field(0.5, gt=0, lt=1)
    """Share of them in the treatment."""
    kind: Literal["binary", "amount", "heavy"] = "binary"
    rate: float = Field(0.2, gt=0, lt=1)
    """Who converts in the control, of a binary outcome; who buys at all, of heavy amounts."""
    shape: float = Field(0.5, gt=0)
    """Of the gamma distribution of amounts: the smaller, the more a few users spend of all. Of heavy amounts, the
    standard deviation of their logarithm: the larger, the heavier the tail."""
    cap: float | None = Field(None, gt=0)
    """Above which an amount counts as that."""
    winsorise: float | None = Field(None, gt=0, lt=1)
    """The same with a cap that nobody knows before: this quantile of both arms together. Of heavy amounts only."""
    lift: float = 0.0
    explained: float = Field(0.0, ge=0, lt=1)
    """R²: what one covariate from before the campaign explains of the outcome."""

    @model_validator(mode="after")
    def _can_be(self) -> PlantedCampaign:
        if self.kind == "binary" and self.rate * (1 + self._tilt) * max(1, 1 + self.lift) > 1:
            raise ValueError("so high a rate leaves no room for so much that a covariate explains, or for such a lift")
        if self.winsorise and (self.kind != "heavy" or self.cap or 1 - self.winsorise >= self.rate):
            raise ValueError("winsorise is for heavy amounts without a cap, and a quantile that only buyers reach")
        return self

    @property
    def true_lift(self) -> float:
        """Of the mean outcomes: with a cap it is smaller than the lift of each amount."""
        if (cap := self.cap or self._quantile) is None:
            return self.lift
        treated, control = (self._capped_mean(lift, cap) for lift in (self.lift, 0.0))
        return treated / control - 1

    def _capped_mean(self, lift: float, cap: float) -> float:
        """E[min(X, cap)] of a log-normal X."""
        z = (log(cap) - log1p(lift)) / self.shape
        return (1 + lift) * exp(self.shape**2 / 2) * float(ndtr(z - self.shape)) + cap * float(ndtr(-z))

    @property
    def _quantile(self) -> float | None:
        """Of all users that could be drawn, with the treated ones among them."""
        if self.winsorise is None:
            return None
        above = 1 - self.winsorise

        def excess(z: float) -> float:
            shares = ((self.treated, log1p(self.lift)), (1 - self.treated, 0.0))
            return self.rate * sum(part * float(ndtr((moved - z) / self.shape)) for part, moved in shares) - above

        return exp(brentq(excess, -40 * self.shape, 40 * self.shape))

    @property
    def _tilt(self) -> float:
        """How far one half of the users is above the mean rate, and the other below, in parts of it."""
        return sqrt(self.explained * (1 - self.rate) / self.rate)

    def draw(self, rng: np.random.Generator, size: tuple[int, int], lift: float) -> Reals:
        """(campaigns, users, 2): outcome and covariate."""
        if self.kind == "binary":
            before = rng.integers(0, 2, size).astype(np.float64)
            rates = self.rate * (1 + lift) * (1 + self._tilt * (2 * before - 1))
            return np.stack([(rng.random(size) < rates).astype(np.float64), before], axis=-1)
        if self.kind == "heavy":
            amounts = np.where(rng.random(size) < self.rate, rng.lognormal(0.0, self.shape, size), 0.0)
            return np.stack([np.minimum((1 + lift) * amounts, self.cap or np.inf), np.zeros(size)], axis=-1)
        before = rng.gamma(self.shape * self.explained, 1.0, size) if self.explained else np.zeros(size)
        after = rng.gamma(self.shape * (1 - self.explained), 1.0, size)
        return np.stack([(1 + lift) * (before + after), before], axis=-1)


def campaigns(world: PlantedCampaign, number: int, seed: int) -> Iterator[tuple[Moments, Moments]]:
    """That many campaigns, as moments of treatment and control; without the covariate where it explains nothing."""
    rng = stream(seed, "planted campaigns")
    treated = round(world.users * world.treated)
    columns = 2 if world.explained else 1
    step = max(1, BLOCK // world.users)
    for start in range(0, number, step):
        some = min(step, number - start)
        arms = ((treated, world.lift), (world.users - treated, 0.0))
        drawn = [world.draw(rng, (some, users), lift)[..., :columns] for users, lift in arms]
        if world.winsorise:
            pooled = np.concatenate([rows[..., 0] for rows in drawn], axis=1)
            caps = np.quantile(pooled, world.winsorise, axis=1, keepdims=True)
            drawn = [np.minimum(rows, caps[..., None]) for rows in drawn]
        yield from zip(*map(_moments, drawn), strict=True)


def _moments(rows: Reals) -> list[Moments]:
    means = rows.mean(axis=1)
    away = rows - means[:, None]
    scatters = np.einsum("cui,cuj->cij", away, away)
    extremes = zip(rows[..., 0].min(axis=1).tolist(), rows[..., 0].max(axis=1).tolist(), strict=True)
    return [Moments(rows.shape[1], *values) for values in zip(means, scatters, extremes, strict=True)]
