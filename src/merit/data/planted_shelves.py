"""The shelves of the planted shop: labels, items and their popularity. Its words are in planted.toml."""

from __future__ import annotations

import tomllib
from dataclasses import dataclass
from importlib import resources

import numpy as np
import polars as pl
from numpy.typing import NDArray

from merit.core.seeds import stream
from merit.core.types import Ints

Reals = NDArray[np.float64]

WORDS = tomllib.loads((resources.files(__package__) / "planted.toml").read_text(encoding="utf-8"))


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


def stock(regions: int, width: int, count: int, skew: float, cascade: float, seed: int) -> Shelves:
    """Fill the shelves: `regions` regions of `width` labels, `count` items."""
    shelf = shelf_table(regions, width)
    rng = stream(seed, "planted", "shelves")
    region_weight = _zipf(rng, (1, regions), skew)[0]
    label_weight = _zipf(rng, (regions, width), skew)
    main = _mains(count, (region_weight[:, None] * label_weight).ravel(), stream(seed, "planted", "items"))
    rank = rng.permutation(count) + 1.0
    weight = rank**-skew
    share = _tag_shares(cascade, label_weight, main, stream(seed, "planted", "tags"))
    items = _item_table(shelf, main, share, stream(seed, "planted", "titles"))
    return Shelves(shelf, items, region_weight, label_weight, main, share, weight / np.bincount(main, weight)[main])


def _zipf(rng: np.random.Generator, shape: tuple[int, int], skew: float) -> Reals:
    rank = rng.permuted(np.tile(np.arange(1.0, shape[1] + 1), (shape[0], 1)), axis=1)
    weight: Reals = rank**-skew
    weight /= weight.sum(axis=1, keepdims=True)
    return weight


def _mains(count: int, popularity: Reals, rng: np.random.Generator) -> Ints:
    """The main label of each item: every label once, the rest by popularity, sorted by label."""
    extra = rng.choice(len(popularity), count - len(popularity), p=popularity)
    main: Ints = np.sort(np.concatenate([np.arange(len(popularity)), extra]))
    return main


def _tag_shares(cascade: float, label_weight: Reals, main: Ints, rng: np.random.Generator) -> Reals:
    region, own = np.divmod(main, label_weight.shape[1])
    race = rng.exponential(size=(len(main), label_weight.shape[1])) / label_weight[region]
    race[np.arange(len(main)), own] = -1.0  # the main label always arrives first
    arrival = race.argsort(axis=1).argsort(axis=1)
    extras = rng.binomial(2, cascade, len(main))
    tagged = arrival <= extras[:, None]
    share: Reals = tagged / tagged.sum(axis=1, keepdims=True)
    return share


def _item_table(shelf: pl.DataFrame, main: Ints, share: Reals, rng: np.random.Generator) -> pl.DataFrame:
    names, width = shelf["label"].to_list(), share.shape[1]
    others = [np.flatnonzero(row) + first for row, first in zip(share, main // width * width, strict=True)]
    tags = [[names[own], *(names[tag] for tag in row if tag != own)] for own, row in zip(main, others, strict=True)]
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
