"""Who buys some products within a window: learnt from windows inside the data, for any products and any days.

For several moments in the past, windows behind them and sets of products (labels, parts of them, several together), the
outcome is whether a user bought one of the products within the window, and the features are what was known before it
(`hazard.pairs`). β is fitted on training users, the curve on validation users, and checked on test users.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np
import polars as pl
from numpy.typing import NDArray
from pydantic import Field

from merit.core.config import Frozen
from merit.core.ragged import Ragged, column_lists, owners
from merit.core.seeds import stream
from merit.core.types import Floats, Ints
from merit.propensity import hazard
from merit.propensity.calibration import CalibrationCurve, ScoreTally, calibrate
from merit.propensity.hazard import Popularity, Window
from merit.propensity.purchases import Mask, PurchaseHistories, Reals

FIT, CURVE, CHECK = range(3)
WINDOWS = ((7, 0), (7, 14), (14, 0), (14, 28), (28, 0), (28, 14), (60, 0), (90, 0), (90, 28), (180, 0))  # days, gap
SHOWN = (7, 28, 90)  # windows whose calibration the model card names
EARLIEST = 0.6  # of the data: a moment before that has too little history
SHIFT = 60  # days by which the second moment of a window lies further back, at most
FEWEST = 3  # purchases before a moment: with fewer a user is not one of a model
SOLD = 10  # purchases of a set of products, at least
PARTS = (0.05, 0.1, 0.3, 0.6)  # of a label's products
LARGE = 20  # expected buyers from which a set says how far expectations are off
BINS = 40
BLOCK = 8_192  # users


class WindowConfig(Frozen):
    """What the window model of audiences learns from."""

    sets: int = Field(40, ge=1)
    """Sets of products for each moment and window."""
    users: int = Field(20_000, ge=100)
    """Users that are learnt from, at most."""
    pairs: int = Field(250, ge=10)
    """Users for each set, at most: so many who had the products, and as many who had not."""


class WindowBin(Frozen):
    """Pairs of test users by predicted probability: sums."""

    low: float
    predicted: float
    observed: float


class WindowModel(Frozen):
    """What is learnt, as it is stored with a model."""

    beta: dict[str, float]
    scores: tuple[float, ...]
    log_odds: tuple[float, ...]
    """Of the calibration curve."""
    span: int
    """Days of the data that histories cover."""
    longest: int
    """Days of the longest window that was learnt."""
    spread: float
    """How far the buyers of a set of products are from their expectation beyond chance, as a share."""
    ece: dict[str, float]
    """By days: the calibration error of test users."""
    bins: tuple[WindowBin, ...]
    centre: tuple[float, ...]
    """The mean factors of all users."""

    def weights(self) -> Reals:
        """β in the order of the features."""
        return np.array([self.beta[name] for name in hazard.NAMES])

    def curve(self) -> CalibrationCurve:
        """From log-odds of a hazard to probabilities."""
        return CalibrationCurve(self.scores, self.log_odds)


def events_of(users: pl.DataFrame, gap_days: int, purchases: bool = True) -> PurchaseHistories:
    """From items, days (`gap_days` more than the age) and bought of a model's users; without the last, all count."""
    items, days = column_lists(users["items"]), column_lists(users["days"]).values
    known = purchases and "bought" in users.columns
    bought = users["bought"].explode(empty_as_null=False).to_numpy() if known else None
    return PurchaseHistories.of(items, np.maximum(days - gap_days, 0), bought)


@dataclass(frozen=True)
class WindowData:
    """All that windows are learnt from."""

    purchases: PurchaseHistories
    events: PurchaseHistories
    """The same with all that is no purchase, as the label model reads it."""
    role: Ints
    """By user: FIT, CURVE or CHECK."""
    item_labels: Ragged
    label_factors: Floats
    """(labels, R)"""
    factors: Callable[[Ragged], Floats]
    """(users, R) of histories of items."""

    def gather(self, rows: Ints) -> WindowData:
        """Of these users."""
        purchases, events = self.purchases.gather(rows), self.events.gather(rows)
        return replace(self, purchases=purchases, events=events, role=self.role[rows])


class WindowPairs(NamedTuple):
    """Pairs of user and products for one window."""

    features: Reals
    bought: Mask
    weights: Reals
    role: Ints
    days: int


def learn(data: WindowData, config: WindowConfig, seed: int) -> WindowModel | None:
    """The model of windows; None where the data is too short, or nobody buys within it."""
    ages = data.purchases.ages
    span = int(ages.max(initial=-1)) + 1
    some = np.sort(stream(seed, "windows").permutation(len(data.purchases))[: config.users])
    parts = list(_all_pairs(data.gather(some), span, config, seed))
    if not any(part.bought[part.role == FIT].any() for part in parts):
        return None
    features, bought, weights, role = (np.concatenate([part[place] for part in parts]) for place in range(4))
    days = np.concatenate([np.full(len(part.bought), part.days) for part in parts]).astype(np.float64)
    learnt = role == FIT
    beta = hazard.fit(features[learnt], bought[learnt], days[learnt], weights[learnt])
    tally = ScoreTally()
    scores = [hazard.log_odds(part.features, beta, part.days) for part in parts]
    for part, odds in zip(parts, scores, strict=True):
        held = part.role == CURVE
        tally.add(odds[held], part.bought[held], part.weights[held])
    curve = calibrate(tally) if tally.hits.sum() else CalibrationCurve((0.0, 1.0), (0.0, 1.0))
    chances = [curve.probability(odds) for odds in scores]
    return WindowModel(
        beta={name: round(float(value), 6) for name, value in zip(hazard.NAMES, beta, strict=True)},
        scores=curve.scores,
        log_odds=curve.log_odds,
        span=span,
        longest=max(part.days for part in parts),
        spread=round(_spread(parts, chances), 4),
        ece={f"{days}": _error(parts, chances, days) for days in SHOWN if any(part.days == days for part in parts)},
        bins=tuple(_bins(parts, chances)),
        centre=tuple(_centre(data).tolist()),
    )


def _all_pairs(data: WindowData, span: int, config: WindowConfig, seed: int) -> Iterator[WindowPairs]:
    """Of all windows that fit into the data, from two moments each."""
    for days, gap in WINDOWS:
        random = stream(seed, "windows", f"{days}+{gap}")
        nearest, furthest = days + gap, int(EARLIEST * span)
        for shift in (0, 1 + int(random.integers(SHIFT))):
            if nearest + shift <= furthest:
                yield from _pairs_before(data, nearest + shift, Window(days, gap), span, config, random)


def _pairs_before(
    data: WindowData, cut: int, window: Window, span: int, config: WindowConfig, random: np.random.Generator
) -> Iterator[WindowPairs]:
    """Pairs of the window behind one moment, set by set; only who had enough history then is one of the users."""
    whole = data.purchases.before(cut)
    rows = np.flatnonzero(whole.items.lengths() >= FEWEST)
    if not len(rows):
        return
    past, later, role = whole.gather(rows), data.purchases.gather(rows), data.role[rows]
    shops, sold = past.activity(), np.bincount(past.items.values, minlength=len(data.item_labels))
    factors = data.factors(data.events.gather(rows).before(cut).items).astype(np.float64)
    factors -= factors.mean(0)
    first, last = cut - window.gap - window.days, cut - window.gap - 1
    for wanted in sets_of(data.item_labels, sold, config.sets, random):
        buyers = past.buyers(wanted)
        popular = Popularity.of(shops.counts.sum(0), buyers.activity.counts.sum(0), len(past))
        bought = later.bought_between(first, last, wanted)
        others = np.setdiff1d(np.arange(len(past)), buyers.users, assume_unique=True)
        chosen = [random.permutation(group)[: config.pairs] for group in (buyers.users, others)]
        weight = [len(group) / max(1, len(some)) for group, some in zip((buyers.users, others), chosen, strict=True)]
        some = np.sort(np.concatenate(chosen))
        at, own = buyers.among(some)
        mask = np.zeros(len(some), dtype=bool)
        mask[at] = True
        affinity = factors[some] @ direction(wanted, sold, data.item_labels, data.label_factors)
        features = hazard.pairs(shops.gather(some), mask, own, affinity, popular, window, span - cut)
        weights = np.where(mask, *weight)
        yield WindowPairs(features, bought[some], weights / weights.mean(), role[some], window.days)


def sets_of(item_labels: Ragged, sold: NDArray[np.integer], count: int, random: np.random.Generator) -> Iterator[Mask]:
    """Masks of items: those of a label, a part of them, those of several labels, and parts of many, as in campaigns."""
    order = np.argsort(item_labels.values, kind="stable")
    items = owners(item_labels)[order]
    stops = np.cumsum(np.bincount(item_labels.values))
    bought = np.diff(np.concatenate([[0], np.cumsum(sold[items])])[np.concatenate([[0], stops])])
    labels = np.flatnonzero(bought >= 3 * SOLD)
    if not len(labels):
        return
    chance = np.sqrt(bought[labels])
    for _ in range(count):
        kind = random.integers(4)
        number = 1 if kind < 2 else int(random.integers(2, 6) if kind == 2 else random.integers(4, 40))
        chosen = random.choice(labels, min(number, len(labels)), replace=False, p=chance / chance.sum())
        carrying = np.unique(np.concatenate([items[stops[one - 1] if one else 0 : stops[one]] for one in chosen]))
        if kind in (1, 3):
            carrying = carrying[random.random(len(carrying)) < random.choice(PARTS)]
        if sold[carrying].sum() >= SOLD:
            wanted = np.zeros(len(sold), dtype=bool)
            wanted[carrying] = True
            yield wanted


def direction(wanted: Mask, sold: NDArray[np.integer], item_labels: Ragged, label_factors: Floats) -> Reals:
    """(R,): the mean label factors of the wanted items, by how often each was bought; its labels share an item."""
    items = np.flatnonzero(wanted)
    labels, sizes = item_labels.take(items)
    weight = np.repeat(np.maximum(sold[items], 0.1) / np.maximum(sizes, 1), sizes)
    share = np.bincount(labels, weights=weight, minlength=len(label_factors))
    mean: Reals = share @ label_factors.astype(np.float64) / max(share.sum(), 1e-9)
    return mean


def _centre(data: WindowData) -> Reals:
    """(R,): the mean factors of all users."""
    users, sums = len(data.events), np.zeros(data.label_factors.shape[1])
    for start in range(0, users, BLOCK):
        block = data.events.items.gather(np.arange(start, min(start + BLOCK, users)))
        sums += data.factors(block).sum(0, dtype=np.float64)
    return sums / users


def _bins(parts: list[WindowPairs], chances: list[Reals]) -> Iterator[WindowBin]:
    """Predicted and observed buyers of test users, by probability."""
    predicted, bought, weights = _checked(parts, chances, None)
    place = np.clip(((np.log10(np.maximum(predicted, 1e-4)) + 4) / 4 * BINS).astype(np.int64), 0, BINS - 1)
    for bin_ in np.unique(place):
        inside = place == bin_
        mass = weights[inside]
        yield WindowBin(
            low=0.0 if not bin_ else float(10 ** (4 * bin_ / BINS - 4)),
            predicted=float(mass @ predicted[inside]),
            observed=float(mass @ bought[inside]),
        )


def _error(parts: list[WindowPairs], chances: list[Reals], days: int) -> float:
    """The expected calibration error, in twenty bins of equal width."""
    predicted, bought, weights = _checked(parts, chances, days)
    place = np.minimum((20 * predicted).astype(np.int64), 19)
    apart = np.abs(np.bincount(place, weights=weights * (predicted - bought), minlength=20)).sum()
    return round(float(apart / max(weights.sum(), 1e-9)), 5)


def _checked(parts: list[WindowPairs], chances: list[Reals], days: int | None) -> tuple[Reals, Reals, Reals]:
    """Probabilities, outcomes and weights of test users; where there are none, of all."""
    wanted = [(part, chance) for part, chance in zip(parts, chances, strict=True) if days in (None, part.days)]
    role = np.concatenate([part.role for part, _ in wanted])
    held = role == CHECK if (role == CHECK).any() else np.ones(len(role), dtype=bool)
    columns = zip(*((chance, part.bought, part.weights) for part, chance in wanted), strict=True)
    predicted, bought, weights = (np.concatenate(column)[held].astype(np.float64) for column in columns)
    return predicted, bought, weights


def _spread(parts: list[WindowPairs], chances: list[Reals]) -> float:
    """The standard deviation of buyers over expected buyers of a set, without what chance explains."""
    apart = []
    for part, chance in zip(parts, chances, strict=True):
        expected = float(part.weights @ chance)
        if expected >= LARGE:
            noise = float(part.weights**2 @ (chance * (1 - chance)))
            apart.append((((part.weights @ part.bought) - expected) ** 2 - noise) / expected**2)
    return float(np.sqrt(np.maximum(np.mean(apart), 0))) if apart else 1.0
