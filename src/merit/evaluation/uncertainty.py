"""How sure we are: users are drawn again with replacement, the same users for every method.

    user_weights = weights(truth.users, seed=7)
    gain = minus(pool(sample(merit, user_weights) for each seed), sample(trivial, user_weights))
    interval(gain)                                        # Estimate(value, low, high, …)

A metric is a function of sums over users, so a resample costs one row of a matrix product. The interval speaks of the
choice of users only; `spread` tells how much the training seed moved the figure.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from merit.core.seeds import stream

Reals = NDArray[np.float64]
Form = Callable[[Reals], Reals]
Name = TypeVar("Name")
RESAMPLES = 2_000
BLOCK = 1 << 21  # counts drawn at a time


def ratio(sums: Reals) -> Reals:
    """One sum over another. Undefined where there is nothing to divide by, never zero."""
    with np.errstate(invalid="ignore", divide="ignore"):
        return np.where(sums[..., 1] > 0, sums[..., 0] / sums[..., 1], np.nan)


def f1(sums: Reals) -> Reals:
    """The harmonic mean of precision and recall, from their numerators and denominators; zero when nothing is right."""
    precision, recall = np.nan_to_num(ratio(sums[..., :2])), ratio(sums[..., 2:])
    with np.errstate(invalid="ignore", divide="ignore"):
        mean = 2 * precision * recall / (precision + recall)
    return np.where(precision + recall == 0, 0.0, mean)


@dataclass(frozen=True)
class Metric:
    """A figure and what every user adds to it."""

    columns: Reals
    """(users, 2 or more): numerator, denominator, numerator, denominator…"""
    form: Form = ratio

    @property
    def value(self) -> float:
        """Over all users, each of them once; not a number where `form` has nothing to divide by."""
        return float(self.form(self.columns.sum(axis=0)))

    @property
    def users(self) -> int:
        """Those the figure is about: with something in a denominator."""
        return int((self.columns[:, 1::2] > 0).any(axis=1).sum())


@dataclass(frozen=True)
class BootstrapSample:
    """A figure, and what it would have been with other users."""

    values: Reals  # (seeds,)
    draws: Reals  # (resamples,)
    users: int


@dataclass(frozen=True)
class Estimate:
    """A figure with its interval, as tables show it; `low` and `high` are not numbers where no draw is."""

    value: float
    low: float
    high: float
    spread: float
    """Standard deviation over seeds; not a number when there is one."""
    users: int
    seeds: int


def weights(users: int, seed: int, resamples: int = RESAMPLES) -> NDArray[np.uint8]:
    """How often each user is drawn in each resample, (resamples, users). Nobody is ever drawn 256 times."""
    rng = stream(seed, "bootstrap", users)
    drawn = np.empty((resamples, users), dtype=np.uint8)
    step = max(1, BLOCK // max(users, 1))
    for start in range(0, resamples, step):
        rows = min(step, resamples - start)
        picked = rng.integers(0, users, size=(rows, users)) + users * np.arange(rows)[:, None]
        drawn[start : start + rows] = np.bincount(picked.ravel(), minlength=rows * users).reshape(rows, users)
    return drawn


def sample(metrics: Mapping[Name, Metric], user_weights: NDArray[np.uint8]) -> dict[Name, BootstrapSample]:
    """Every metric under every resample. Two calls with the same `user_weights` are paired."""
    if not metrics:
        return {}
    places: dict[bytes, int] = {}  # a denominator serves many metrics and is summed once
    where = [
        [places.setdefault(column.tobytes(), len(places)) for column in metric.columns.T] for metric in metrics.values()
    ]
    columns = np.stack([np.frombuffer(column) for column in places], axis=1).astype(np.float32)
    sums = _sums(columns, user_weights)
    return {
        name: BootstrapSample(np.array([metric.value]), metric.form(sums[:, at]), metric.users)
        for (name, metric), at in zip(metrics.items(), where, strict=True)
    }


def _sums(columns: NDArray[np.float32], user_weights: NDArray[np.uint8]) -> Reals:
    """(resamples, columns). Counts below 2²⁴ are exact in single precision, and far below the width of any interval."""
    step = max(1, BLOCK // max(len(columns), 1))
    starts = range(0, len(user_weights), step)
    parts = [user_weights[start : start + step].astype(np.float32) @ columns for start in starts]
    return np.concatenate(parts).astype(np.float64)


def pool(samples: Sequence[BootstrapSample]) -> BootstrapSample:
    """Several seeds of one method as one figure: their mean, with users drawn jointly for all of them."""
    draws = np.mean([seed.draws for seed in samples], axis=0)
    return BootstrapSample(
        np.concatenate([seed.values for seed in samples]), draws, max(seed.users for seed in samples)
    )


def minus(first: BootstrapSample, second: BootstrapSample) -> BootstrapSample:
    """The difference of two figures on the same resamples of the same users."""
    return BootstrapSample(
        first.values - second.values.mean(), first.draws - second.draws, min(first.users, second.users)
    )


def interval(drawn: BootstrapSample, level: float = 0.95) -> Estimate:
    """The mean over seeds with a percentile interval over users."""
    usable = drawn.draws[~np.isnan(drawn.draws)]
    tail = 50 * (1 - level)
    low, high = np.percentile(usable, [tail, 100 - tail]) if len(usable) else (np.nan, np.nan)
    spread = float(np.std(drawn.values, ddof=1)) if len(drawn.values) > 1 else float("nan")
    return Estimate(float(drawn.values.mean()), float(low), float(high), spread, drawn.users, len(drawn.values))


def per_user(user: NDArray[np.int64], users: int, amounts: NDArray[Any] | None = None) -> Reals:
    """What belongs to each user, added up; without amounts, how often each user is there."""
    return np.bincount(user, weights=amounts, minlength=users).astype(np.float64)


def mean(user: NDArray[np.int64], users: int, amounts: NDArray[Any]) -> Metric:
    """The mean amount, such as the share of hits: of every user, the sum of the amounts and how many there are."""
    return Metric(np.stack([per_user(user, users, amounts), per_user(user, users)], axis=1))
