"""What is on the shelves of the planted shop before any user comes: words, labels, items and their popularity.

The words are real phrases written by hand, so that a text model finds labels of one region near and regions far apart.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import polars as pl
from numpy.typing import NDArray

from merit.core.seeds import stream
from merit.core.types import Ints

Reals = NDArray[np.float64]

BRANDS = ["Alderway", "Bramble", "Coldharbour", "Dunlin", "Eastfold", "Fernhill", "Greyling", "Hollis", "Larkspur"]
VARIANTS = ["starter set", "classic", "travel size", "pack of two", "lightweight", "gift edition", "value pack"]


def shelf_table(regions: int, labels_per_region: int) -> pl.DataFrame:
    """label, region, vertical of the first regions and labels, in their fixed order."""
    rows = [
        (label, region, vertical)
        for vertical, region, labels in map(_shelf, SHELVES.strip().split("\n\n")[:regions])
        for label in labels[:labels_per_region]
    ]
    return pl.DataFrame(rows, schema=["label", "region", "vertical"], orient="row")


def verticals(regions: int) -> int:
    """How many verticals the first regions cover: no user has more unrelated interests than that."""
    return shelf_table(regions, 1)["vertical"].n_unique()


def titles(labels: list[str], rng: np.random.Generator) -> list[str]:
    """A product title per main label."""
    brand, variant = rng.integers(len(BRANDS), size=len(labels)), rng.integers(len(VARIANTS), size=len(labels))
    return [f"{BRANDS[b]} {label}, {VARIANTS[v]}" for b, label, v in zip(brand, labels, variant, strict=True)]


def _shelf(block: str) -> tuple[str, str, list[str]]:
    head, _, text = block.partition("\n")
    vertical, region = head.split(": ")
    return vertical, region, [" ".join(label.split()) for label in text.split(",")]


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
    ids = [f"i{number:05d}" for number in range(len(main))]
    return pl.DataFrame(
        {
            "item_id": ids,
            "title": titles([row[0] for row in tags], rng),
            "tags": tags,
            "vertical": shelf["vertical"].gather(main),
        }
    )


def _search(weight: Reals, point: Reals) -> Ints:
    """The index whose stretch of the summed weights holds each point."""
    edges = np.cumsum(weight)
    index: Ints = np.searchsorted(edges, point, side="right")
    return np.minimum(index, len(edges) - 1)  # rounding may leave the last sum just under the whole


# The first regions cover every vertical, so that a small shop has unrelated ones.
SHELVES = """
sports: trail running
  trail running shoes, hydration vests, trekking poles, energy gels, running head torches, gaiters, GPS watches,
  blister care

kitchen: bread baking
  sourdough starters, bread flour, proofing baskets, dough scrapers, Dutch ovens, rye baking, stand mixers,
  baking stones

home: home organisation
  drawer dividers, storage boxes, wardrobe hangers, label makers, shoe racks, vacuum storage bags, wall hooks,
  pantry jars

pets: freshwater aquariums
  aquarium plants, tropical fish food, aquarium filters, driftwood, water test kits, aquarium heaters, aquarium
  gravel, shrimp

culture: board gaming
  strategy board games, cooperative games, card sleeves, party games, dice sets, miniature painting, puzzle
  games, game inserts

beauty: skin care
  facial cleansers, vitamin C serums, retinol creams, mineral sunscreen, sheet masks, eye creams, toners, lip
  balms

garden: vegetable growing
  tomato seedlings, raised beds, compost bins, seed trays, garden fleece, chilli growing, watering cans, organic
  fertiliser

electronics: home recording
  condenser microphones, audio interfaces, studio headphones, midi keyboards, acoustic panels, pop filters,
  monitors, XLR cables

sports: road cycling
  road bike tyres, bib shorts, cycling computers, clipless pedals, bike helmets, chain lubricants, bike lights,
  turbo trainers

kitchen: specialty coffee
  espresso beans, burr grinders, pour over kettles, milk frothers, coffee scales, cold brew makers, paper
  filters, moka pots

home: nursery
  cot mattresses, night lights, changing mats, baby monitors, nursery mobiles, swaddle blankets, nappy bins,
  bottle warmers

pets: dog training
  dog harnesses, training treats, clickers, puppy pads, chew toys, long leads, dog crates, treat pouches

culture: watercolour painting
  watercolour paper, sable brushes, pan paints, masking fluid, sketchbooks, easels, ink pens, colour theory
  books

beauty: curly hair
  curl creams, silk pillowcases, hair diffusers, wide tooth combs, leave-in conditioners, satin bonnets, hair
  gels, scalp oils

garden: wild birds
  bird feeders, sunflower hearts, nest boxes, suet balls, bird baths, binoculars, squirrel guards, field guides

electronics: smart home
  smart bulbs, smart thermostats, motion sensors, smart locks, smart plugs, video doorbells, smart blinds, voice
  assistants

sports: yoga
  yoga mats, yoga blocks, meditation cushions, foam rollers, yoga leggings, resistance bands, yoga straps,
  massage balls

kitchen: Japanese cooking
  sushi rice, miso paste, ramen bowls, bento boxes, matcha tea, rice cookers, nori sheets, Japanese knives

home: bedding
  linen duvet covers, memory foam pillows, weighted blankets, mattress toppers, percale sheets, quilts, throws,
  bed skirts

pets: indoor cats
  cat trees, clumping litter, catnip toys, scratching posts, wet cat food, cat fountains, window perches,
  grooming gloves

culture: knitting
  merino yarn, circular needles, stitch markers, knitting patterns, sock yarn, crochet hooks, yarn bowls,
  blocking mats

beauty: fragrance
  eau de parfum, scented candles, reed diffusers, essential oils, solid perfume, body mists, perfume samples,
  room sprays

garden: outdoor grilling
  charcoal grills, smoking wood chips, meat thermometers, grill brushes, pizza ovens, barbecue rubs, grill
  covers, skewers

electronics: photography
  mirrorless cameras, prime lenses, camera straps, tripods, memory cards, flash guns, lens filters, photo
  printers
"""
