"""A seeded shop with known truth: what each user will buy next is written down before anything is sold.

Every purchase of a user is a draw from one distribution over items, so the best possible recall is known, and so is
what a model gets that follows co-occurrence instead of the user: labels of one region share items and baskets, while
a user's interests lie in regions that have nothing to do with each other. See docs/planted.md; its words
are in planted.toml.
"""

from __future__ import annotations

import tomllib
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import partial
from importlib import resources
from pathlib import Path
from typing import Self

import numpy as np
import polars as pl
from numpy.typing import NDArray
from pydantic import Field, model_validator
from scipy.special import ndtri

from merit.core.config import Frozen
from merit.core.ragged import ranges
from merit.core.seeds import mix, stable_hash, stream, unit_interval
from merit.core.types import Ints

Reals = NDArray[np.float64]
Draw = Callable[..., Reals]

WORDS = tomllib.loads((resources.files(__package__) / "planted.toml").read_text(encoding="utf-8"))
START = datetime(2024, 1, 1, tzinfo=UTC)
EVENTS = ("view", "click", "cart", "purchase")
REACH = np.array([1.0, 0.6, 0.45, 0.35])  # share of looked-at items that get as far as each event
ITEMS_PER_VISIT = 2.5
FAVOURITES = 2  # items per interest a user comes back to


class PlantedConfig(Frozen):
    """Defaults make a shop that a test can build and learn in seconds."""

    users: int = Field(400, ge=1)
    items: int = Field(600, ge=1)
    regions: int = Field(12, ge=2, le=24)
    labels_per_region: int = Field(6, ge=2, le=8)
    interests: tuple[int, int] = (2, 3)
    """Fewest and most regions of a user; no two of a user's are in one vertical, so they are truly unrelated."""
    events: int = Field(60, ge=1)
    """Mean per user; who is active and who is not varies by a factor of about four either way."""
    days: int = Field(420, ge=2)
    """A year of history, the week between it and the target, and some weeks of targets."""
    popularity_skew: float = Field(0.8, ge=0)
    """Zipf exponent over regions, labels and items; 0 makes all alike."""
    cascade: float = Field(0.8, ge=0, le=1)
    """How strongly a region sticks together: the chance that an item carries one more of its region's labels (two
    tries), and that the next item of a visit is from the same region. What a user buys on the whole stays the same."""
    taste: float = Field(1.5, ge=0)
    """How much users of one region differ inside it; 0: near-correlates are all right, high: most are wrong."""
    drift: float = Field(0.2, ge=0, le=1)
    """Share of users who drop an interest for a new one half-way."""
    noise: float = Field(0.1, ge=0, le=1)
    """Share of choices made by popularity alone: gifts, offers, chance."""
    repeat: float = Field(0.2, ge=0, le=1)
    """Share of other choices that go to one of the user's few favourite items."""

    @model_validator(mode="after")
    def _fits(self) -> Self:
        low, high = self.interests
        verticals = shelf_table(self.regions, 1)["vertical"].n_unique()
        if not 1 <= low <= high < verticals:
            raise ValueError(f"interests must be (fewest, most) with 1 ≤ fewest ≤ most < {verticals} verticals")
        if self.items < self.regions * self.labels_per_region:
            raise ValueError(f"every label needs an item: items ≥ {self.regions * self.labels_per_region}")
        return self


@dataclass(frozen=True)
class PlantedShop:
    """What was sold, and the truth behind it, which no model is shown."""

    interactions: pl.DataFrame
    """user_id, item_id, timestamp, event, order_id (purchases only); by user, then time."""
    items: pl.DataFrame
    """item_id, title, tags, vertical."""
    truth: pl.DataFrame
    """user_id, regions, labels and probabilities (after drift, likeliest first), drifted, regions_before."""
    regions: pl.DataFrame
    """label, region, vertical."""


def shop(config: PlantedConfig, seed: int) -> PlantedShop:
    """Plant a shop. A user's rows depend on the seed, the shelves and the user's own name, never on other users."""
    shelves = _stock(config, seed)
    ids = [f"u{number:06d}" for number in range(config.users)]
    draw = partial(_draw, seed, ids)
    users = _make_users(config, shelves, draw)
    looks = _looks(config, draw)
    items = _items_seen(config, shelves, users, looks, draw)
    stages = (draw("depth", looks.totals)[:, None] < REACH).sum(axis=1)
    interactions = _event_table(shelves, ids, looks, items, stages)
    return PlantedShop(interactions, shelves.items, _truth(config, shelves, users, ids), shelves.shelf)


def ceiling(planted: PlantedShop, k: int) -> float:
    """Expected recall at k of the oracle that ranks labels by true probability, a mean over users.

    The gold set is the tags of one item bought after the drift. A label's true probability is its expected share of
    that set, hence recall is the sum over the k labels, and no ranking of labels by anything has a higher expectation.
    """
    return float(planted.truth["probabilities"].list.head(k).list.sum().mean())  # type: ignore[arg-type]


def write(planted: PlantedShop, folder: Path) -> None:
    """The two tables merit reads, and the truth beside them."""
    folder.mkdir(parents=True, exist_ok=True)
    for name in ("interactions", "items", "truth"):
        getattr(planted, name).write_parquet(folder / f"{name}.parquet")


# --- the shelves ------------------------------------------------------------------------------------------------------


def shelf_table(regions: int, labels_per_region: int) -> pl.DataFrame:
    """label, region, vertical of the first regions and labels, in their fixed order."""
    rows = [
        (label, region["name"], region["vertical"])
        for region in WORDS["regions"][:regions]
        for label in region["labels"][:labels_per_region]
    ]
    return pl.DataFrame(rows, schema=["label", "region", "vertical"], orient="row")


@dataclass(frozen=True)
class Shelves:
    """What is there before any user comes. R regions, L labels in each, I items."""

    shelf: pl.DataFrame
    items: pl.DataFrame
    region_weight: Reals  # (R,)
    label_weight: Reals  # (R, L) sums to one in each region
    main: Ints  # (I,) the label an item is chosen for
    share: Reals  # (I, L) of each label of its region in an item's tags
    item_weight: Reals  # (I,) sums to one among the items of a label

    def pick(self, label: Ints, uniform: Reals) -> Ints:
        """An item per label, by popularity. Items lie sorted by label, so one search over all labels is enough."""
        return _search(self.item_weight, label + uniform)

    def pick_popular(self, uniform: Reals) -> Ints:
        """An item by popularity in the whole shop."""
        return _search(self.popularity(), uniform)

    def popularity(self) -> Reals:
        """(I,) the share of each item in choices that no interest guides."""
        return (self.region_weight[:, None] * self.label_weight).ravel()[self.main] * self.item_weight


def _stock(config: PlantedConfig, seed: int) -> Shelves:
    """Fill the shelves with labels and items, and give them their popularity."""
    regions, width, count, skew = config.regions, config.labels_per_region, config.items, config.popularity_skew
    shelf, rng = shelf_table(regions, width), stream(seed, "planted", "shelves")
    region_weight, label_weight = _zipf(rng, (1, regions), skew)[0], _zipf(rng, (regions, width), skew)
    popularity = (region_weight[:, None] * label_weight).ravel()  # every label has one item, the rest follow this
    extra = stream(seed, "planted", "items").choice(len(popularity), count - len(popularity), p=popularity)
    main: Ints = np.sort(np.concatenate([np.arange(len(popularity)), extra]))
    weight = (rng.permutation(count) + 1.0) ** -skew
    share = _tag_shares(config.cascade, label_weight, main, stream(seed, "planted", "tags"))
    items = _item_table(shelf, main, share, stream(seed, "planted", "titles"))
    return Shelves(shelf, items, region_weight, label_weight, main, share, weight / np.bincount(main, weight)[main])


def _zipf(rng: np.random.Generator, shape: tuple[int, int], skew: float) -> Reals:
    rank = rng.permuted(np.tile(np.arange(1.0, shape[1] + 1), (shape[0], 1)), axis=1)
    weight: Reals = rank**-skew
    weight /= weight.sum(axis=1, keepdims=True)
    return weight


def _tag_shares(cascade: float, label_weight: Reals, main: Ints, rng: np.random.Generator) -> Reals:
    region, place = np.divmod(main, label_weight.shape[1])
    race = rng.exponential(size=(len(main), label_weight.shape[1])) / label_weight[region]
    race[np.arange(len(main)), place] = -1.0  # the main label always arrives first
    arrival = race.argsort(axis=1).argsort(axis=1)
    extras = rng.binomial(2, cascade, len(main))
    tagged = arrival <= extras[:, None]
    share: Reals = tagged / tagged.sum(axis=1, keepdims=True)
    return share


def _item_table(shelf: pl.DataFrame, main: Ints, share: Reals, rng: np.random.Generator) -> pl.DataFrame:
    names, width = shelf["label"].to_list(), share.shape[1]
    others = [np.flatnonzero(row) + first for row, first in zip(share, main // width * width, strict=True)]
    tags = [
        [names[first], *(names[tag] for tag in row if tag != first)] for first, row in zip(main, others, strict=True)
    ]
    brands, variants = (rng.choice(WORDS[kind], len(main)) for kind in ("brands", "variants"))
    titles = [f"{brand} {row[0]}, {variant}" for brand, row, variant in zip(brands, tags, variants, strict=True)]
    return pl.DataFrame(
        {
            "item_id": [f"i{number:05d}" for number in range(len(main))],
            "title": titles,
            "tags": tags,
            "vertical": shelf["vertical"].gather(main),
        }
    )


def _search(weight: Reals, point: Reals) -> Ints:
    """The index whose stretch of the summed weights holds each point."""
    edges = np.cumsum(weight)
    index: Ints = np.searchsorted(edges, point, side="right")
    return np.minimum(index, len(edges) - 1)  # rounding may leave the last sum just under the whole


# --- users and what they do -------------------------------------------------------------------------------------------


def _draw(seed: int, ids: list[str], purpose: str, counts: int | Ints = 1) -> Reals:
    """Uniform numbers that belong to a user and a purpose: `counts` each, as a matrix, or ragged and flat.

    Hashes of (user, counter) instead of one generator per user: the same independence without a loop over users.
    """
    hashes = stable_hash(ids, f"planted/{seed}/{purpose}")
    if isinstance(counts, int):
        return unit_interval(mix(hashes[:, None], np.arange(counts, dtype=np.uint64)[None, :]))
    return unit_interval(mix(np.repeat(hashes, counts), _within(counts).astype(np.uint64)))


def _within(counts: Ints) -> Ints:
    """0, 1, … inside each ragged group."""
    return ranges(np.zeros_like(counts), counts)[0]


@dataclass(frozen=True)
class _Users:
    """U users, S slots for interests. Column S of `region` is the interest a drifting user takes up later."""

    region: Ints  # (U, S + 1)
    share: Reals  # (U, S) of each interest; zero where a user has fewer
    column: Ints  # (2, U, S) which region column fills a slot before and after half-time
    taste: Reals  # (U, S + 1, L)
    favourite: Ints  # (U, S + 1, FAVOURITES)
    drifted: NDArray[np.bool_]  # (U,)


def _make_users(config: PlantedConfig, shelves: Shelves, draw: Draw) -> _Users:
    low, slots = config.interests
    region = _unrelated(config, shelves, draw)
    active = np.arange(slots) < low + np.floor(draw("interests") * (slots - low + 1))
    share = (0.3 + draw("shares", slots)) * active  # the 0.3 keeps every interest worth finding
    whim = draw("taste", region.shape[1] * config.labels_per_region).reshape(*region.shape, -1)
    taste = shelves.label_weight[region] * (-np.log1p(-whim)) ** config.taste
    taste /= taste.sum(axis=2, keepdims=True)
    drifted = draw("drift")[:, 0] < config.drift
    column = np.broadcast_to(np.arange(slots), (2, len(drifted), slots)).copy()
    column[1, drifted, 0] = slots
    favourite = _favourites(config, shelves, region, taste, draw)
    return _Users(region, share / share.sum(axis=1, keepdims=True), column, taste, favourite, drifted)


def _unrelated(config: PlantedConfig, shelves: Shelves, draw: Draw) -> Ints:
    """Regions by popularity, one per vertical at most: a race in which only the first of each vertical counts."""
    race = -np.log1p(-draw("regions", config.regions)) / shelves.region_weight
    vertical = shelves.shelf["vertical"].to_numpy()[:: config.labels_per_region]
    columns = [np.flatnonzero(vertical == name) for name in np.unique(vertical)]
    winners = np.stack([column[race[:, column].argmin(axis=1)] for column in columns], axis=1)
    order = np.take_along_axis(race, winners, axis=1).argsort(axis=1)
    picked: Ints = np.take_along_axis(winners, order[:, : config.interests[1] + 1], axis=1)
    return picked


def _favourites(config: PlantedConfig, shelves: Shelves, region: Ints, taste: Reals, draw: Draw) -> Ints:
    shape = (*region.shape, FAVOURITES)
    which, item = (draw(f"favourite {part}", region.shape[1] * FAVOURITES).reshape(shape) for part in ("label", "item"))
    label = _choose(taste[:, :, None, :], which) + region[:, :, None] * config.labels_per_region
    return shelves.pick(label, item)


def _choose(weight: Reals, uniform: Reals) -> Ints:
    """An index per row of weights that sum to one."""
    index = (np.cumsum(weight, axis=-1) <= uniform[..., None]).sum(axis=-1, dtype=np.int64)
    chosen: Ints = np.minimum(index, weight.shape[-1] - 1)  # rounding may leave the last sum just under one
    return chosen


@dataclass(frozen=True)
class _Looks:
    """N items looked at, flat: visits of users, items of visits."""

    totals: Ints  # (U,) looks of each user
    user: Ints  # (N,)
    visit: Ints  # (N,) counted within the user
    position: Ints  # (N,) counted within the visit
    day: Ints  # (N,)
    milliseconds: Ints  # (N,) since START


def _looks(config: PlantedConfig, draw: Draw) -> _Looks:
    activity = np.exp(0.7 * ndtri(np.clip(draw("activity")[:, 0], 1e-3, 1 - 1e-3)) - 0.245)  # mean one
    visits = np.maximum(1, np.rint(activity * config.events / (ITEMS_PER_VISIT * REACH.sum()))).astype(np.int64)
    length = 1 + np.floor(np.log1p(-draw("length", visits)) / np.log(1 - 1 / ITEMS_PER_VISIT)).astype(np.int64)
    day = np.floor(draw("day", visits) * config.days).astype(np.int64)
    hour = 7 + 8 * (draw("early", visits) + draw("late", visits))  # shoppers sleep
    visitor, visit = np.repeat(np.arange(len(visits)), visits), np.repeat(np.arange(len(day)), length)
    milliseconds = (86_400_000 * day + 3_600_000 * hour).astype(np.int64)[visit] + 180_000 * _within(length)
    totals = np.bincount(visitor, length, len(visits)).astype(np.int64)
    return _Looks(totals, visitor[visit], _within(visits)[visit], _within(length), day[visit], milliseconds)


def _items_seen(config: PlantedConfig, shelves: Shelves, users: _Users, looks: _Looks, draw: Draw) -> Ints:
    """The item of each look. Staying in a region repeats a draw of the same distribution: what is bought on the whole
    does not depend on `cascade`, only what is bought together does."""
    user, uniform = looks.user, partial(draw, counts=looks.totals)
    fresh = (looks.position == 0) | (uniform("stay") >= config.cascade)
    last_fresh = np.maximum.accumulate(np.where(fresh, np.arange(len(user)), 0))
    slot = _choose(users.share[user], uniform("slot"))[last_fresh]
    column = users.column[(looks.day >= config.days / 2).astype(np.int64), user, slot]
    label = users.region[user, column] * config.labels_per_region + _choose(users.taste[user, column], uniform("label"))
    habit = users.favourite[user, column, np.floor(uniform("habit") * FAVOURITES).astype(np.int64)]
    wanted = np.where(uniform("repeat") < config.repeat, habit, shelves.pick(label, uniform("item")))
    return np.where(uniform("noise") < config.noise, shelves.pick_popular(uniform("popular")), wanted)


def _event_table(shelves: Shelves, ids: list[str], looks: _Looks, items: Ints, stages: Ints) -> pl.DataFrame:
    """Every item looked at, with the events that it got as far as."""
    row, stage, start = np.repeat(np.arange(len(items)), stages), _within(stages), int(START.timestamp() * 1000)
    table = pl.DataFrame(
        {
            "user_id": pl.Series(ids).gather(looks.user[row]),
            "item_id": shelves.items["item_id"].gather(items[row]),
            "timestamp": pl.Series(start + looks.milliseconds[row] + 40_000 * stage).cast(pl.Datetime("ms", "UTC")),
            "event": pl.Series(EVENTS).gather(stage),
            "visit": looks.visit[row],
        }
    )
    order = pl.when(pl.col("event") == "purchase").then(pl.format("{}-{}", "user_id", "visit")).alias("order_id")
    return table.with_columns(order).drop("visit").sort("user_id", "timestamp", maintain_order=True)


def _truth(config: PlantedConfig, shelves: Shelves, users: _Users, ids: list[str]) -> pl.DataFrame:
    before, after = (np.take_along_axis(users.region, column, axis=1) for column in users.column)
    probability = _label_probability(config, shelves, users, after)
    order = np.argsort(-probability, axis=1, kind="stable")
    regions = shelves.shelf["region"].gather_every(config.labels_per_region)
    return pl.DataFrame(
        {
            "user_id": ids,
            "regions": _held(regions, after, users.share),
            "labels": _lists(shelves.shelf["label"], order),
            "probabilities": pl.Series(np.take_along_axis(probability, order, axis=1)).arr.to_list(),
            "drifted": users.drifted,
            "regions_before": _held(regions, before, users.share),
        }
    )


def _label_probability(config: PlantedConfig, shelves: Shelves, users: _Users, region: Ints) -> Reals:
    """(U, R · L): the expected share of each label in the tags of the next item bought."""
    row, width = np.arange(len(region))[:, None], config.labels_per_region
    carried = np.zeros((shelves.label_weight.size, width))  # main label → shares of labels in the tags of its items
    np.add.at(carried, shelves.main, shelves.item_weight[:, None] * shelves.share)
    blocks, taste = carried.reshape(-1, width, width)[region], users.taste[row, users.column[1]]
    chosen = np.einsum("usl,uslt->ust", taste, blocks)
    habit = shelves.share[users.favourite[row, users.column[1]]].mean(axis=2)
    by_interest = users.share[:, :, None] * ((1 - config.repeat) * chosen + config.repeat * habit)
    popular = np.zeros_like(shelves.label_weight)
    np.add.at(popular, shelves.main // width, shelves.popularity()[:, None] * shelves.share)
    total = np.broadcast_to(config.noise * popular, (len(region), *popular.shape)).copy()
    total[row, region] += (1 - config.noise) * by_interest  # a user's regions are distinct: no addition is lost
    return total.reshape(len(region), -1)


def _lists(names: pl.Series, index: Ints) -> pl.Series:
    return names.gather(index.ravel()).reshape(index.shape).arr.to_list()


def _held(names: pl.Series, region: Ints, share: Reals) -> pl.Series:
    """Names of the regions whose share is not zero: the slots of a user who has fewer interests stay empty."""
    table = pl.DataFrame({"names": _lists(names, region), "held": (share > 0).sum(axis=1)})
    return table.select(pl.col("names").list.head(pl.col("held"))).to_series()
