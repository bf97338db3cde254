"""A vocabulary mined from titles: phrases of one to four words that hold together and say something.

A phrase is kept for how many titles have it (C-value: not as a piece of longer ones), for how much more often its words
stand together than chance would have it (NPMI of its weakest seam), and for how often it ends where a name ends: before
a comma, a size, a little word. What stands inside one longer phrase nearly always is a piece of that.
"""

from __future__ import annotations

import numpy as np
import polars as pl
from pydantic import Field

from merit.core.config import Frozen
from merit.core.types import Floats, Ints, LabelEncoder
from merit.labels.tagging import brands, titles
from merit.labels.tagging.titles import EMPTY, LINKS, STOP

BLOCK = 2_048  # phrases that are compared with all others at a time
OFTENER = 3  # than a longer phrase that it ends: a single word is an interest of its own
SINGLE = 4  # titles: a single word in fewer of them is a name or a slip more often than an interest
NOT_LAST = r"(?:ed|ly|est|ful|less|able|ious|eous|ive|ic|al|ish)$"  # endings of English adjectives: no name ends so
ENOUGH = 30  # titles: a phrase in so many is as good as its other figures are


class MineConfig(Frozen):
    """What counts as a phrase."""

    least: int = Field(3, ge=1)
    """Different titles that have it. With 2 there are about twice as many phrases, and more of them are pieces of
    names; with 1 there are those of a single title, too."""
    longest: int = Field(4, ge=1, le=4)
    """Words."""
    most: float = Field(0.1, gt=0, le=1)
    """Share of titles: what more of them have tells none apart."""
    cohesion: float = Field(0.2, ge=-1, le=1)
    """NPMI of its weakest seam: 0 is chance, 1 is never apart."""
    closed: float = Field(0.3, ge=0, le=1)
    """Share of its places where it ends as a name does. Adjectives and pieces of longer names rarely do."""
    absorbed: float = Field(0.7, gt=0, le=1)
    """A phrase with this share of its places inside one longer phrase, or behind one word, is a piece of that."""
    quality: float = Field(0.45, ge=0, le=1)
    """Of several words, by all of these figures together. What is below is a piece of a name more often than one."""
    single: float = Field(0.58, ge=0, le=1)
    """Of a single word, which says less."""
    alike: float = Field(0.93, gt=0, le=1)
    """Cosine from which two phrases are one, named by the more frequent. Judged on titles of beauty products."""
    brands: bool = False
    """Whether brands are interests. They are known from `source.brand_column`, or by how titles begin."""


def mine(
    texts: pl.Series, brand: pl.Series | None, config: MineConfig, encoder: LabelEncoder | None
) -> tuple[pl.DataFrame, pl.DataFrame]:
    """The vocabulary (key, phrase, titles, quality), and the places of its phrases (row, key, quality).

    `texts` are plain. With an encoder, phrases that mean the same are merged.
    """
    table = titles.words(texts)
    if not config.brands:
        table = brands.without_brands(table, brand)
    grams = titles.grams(table, config.longest)
    distinct = pl.DataFrame({"row": pl.int_range(len(texts), eager=True), "text": texts.str.to_lowercase()})
    counted = grams.join(distinct.unique("text", keep="first", maintain_order=True), on="row", how="semi")
    found = vocabulary(counted, distinct["text"].n_unique(), config)
    if encoder is not None and len(found):
        found = merged(found, encoder, config.alike)
    else:
        found = found.with_columns(root="key")
    kept = found.filter(pl.col("key") == pl.col("root")).drop("root").sort("titles", "key", descending=[True, False])
    places = _outermost(grams.join(found.select("key", "root", "titles"), on="key"))
    named = places.select("row", key="root").unique().join(kept.select("key", "quality"), on="key")
    return kept, named.sort("row", "quality", "key", descending=[False, True, False])


def described(phrases: pl.DataFrame, places: pl.DataFrame) -> pl.DataFrame:
    """row, tag, score: the phrases of each title as tags, the best first."""
    named = places.join(phrases.select("key", tag="phrase"), on="key", maintain_order="left")
    return named.select("row", "tag", score="quality")


def _outermost(places: pl.DataFrame) -> pl.DataFrame:
    """Places that say something of their own.

    Inside a longer phrase only its end does: a hair dryer is a dryer, and no hair. A single word has to end a name, and
    to be more than the end of that longer phrase: a coat is mostly the end of a top coat.
    """
    spans = places.with_columns(stop=pl.col("place") + pl.col("size"))
    longer = spans.filter(pl.col("size") > 1).select("row", begin="place", end="stop", around="size", often="titles")
    both = spans.select("row", "place", "stop", "size", "titles").unique().join(longer, on="row")
    piece = (pl.col("stop") < pl.col("end")) | ((pl.col("size") == 1) & (pl.col("titles") < OFTENER * pl.col("often")))
    within = (pl.col("place") >= pl.col("begin")) & (pl.col("stop") <= pl.col("end"))
    inside = both.filter(within & (pl.col("size") < pl.col("around")) & piece)
    named = spans.filter((pl.col("size") > 1) | pl.col("closes"))
    return named.join(inside.select("row", "place", "size").unique(), on=["row", "place", "size"], how="anti")


def vocabulary(grams: pl.DataFrame, count: int, config: MineConfig) -> pl.DataFrame:
    """key, phrase, titles, quality: the phrases among these stretches of words of `count` titles."""
    counts = _counts(grams)
    everything = counts.filter(pl.col("size") == 1)["places"].sum() or 1
    counts = _with_cohesion(counts, int(everything))
    ends = pl.col("first", "last").is_in(STOP | LINKS | {""})
    wordy = pl.col("key").str.contains(r"\p{L}{3}") & ~pl.any_horizontal(ends) & ~pl.col("last").is_in(EMPTY)
    wordy &= ~pl.col("last").str.contains(NOT_LAST)
    least = pl.when(pl.col("size") == 1).then(max(min(SINGLE, 2 * config.least), config.least)).otherwise(config.least)
    often = (pl.col("titles") >= least) & (pl.col("titles") <= max(config.least, config.most * count))
    held = (pl.col("size") == 1) | (pl.col("cohesion") >= config.cohesion)
    found = counts.filter(wordy & often & held & (pl.col("closed") >= config.closed))
    found = found.filter((pl.col("size") == 1) | (pl.col("same") < config.absorbed * pl.col("places")))
    found = found.filter(~pl.col("first").is_in(EMPTY) | (pl.col("cohesion") >= 0.5))
    found = _with_nesting(found).filter(pl.col("inside") < config.absorbed * pl.col("places"))
    value = (pl.col("size") + 1).log(2) * (pl.col("titles") - pl.col("nested")).clip(1)
    strength = (value.log1p() / np.log1p(3 * ENOUGH)).clip(0, 1)
    quality = 0.4 * strength + 0.3 * pl.col("closed") + 0.3 * pl.col("cohesion").clip(0, 1)
    found = found.with_columns(quality=quality.round(4))
    enough = pl.when(pl.col("size") == 1).then(config.single).otherwise(config.quality)
    found = found.filter(pl.col("quality") >= enough)
    return found.select("key", "phrase", "titles", "quality").sort("key")


def _counts(grams: pl.DataFrame) -> pl.DataFrame:
    """Of each key: in how many titles and places, its most frequent form, and how often it ends as a name does."""
    shown = grams.group_by("key", "shown").len().sort("len", "shown", descending=[True, False])
    shown = shown.unique("key", keep="first").select("key", phrase="shown")
    counts = grams.group_by("key").agg(
        pl.col("size", "first", "last").first(),
        titles=pl.col("row").n_unique(),
        places=pl.len(),
        closed=pl.col("closes").mean(),
    )
    before = grams.drop_nulls("before").group_by("key", "before").len().group_by("key").agg(same=pl.col("len").max())
    counts = counts.join(before, on="key", how="left").with_columns(pl.col("same").fill_null(0))
    return counts.join(shown, on="key")


def _with_cohesion(counts: pl.DataFrame, everything: int) -> pl.DataFrame:
    """With the NPMI of the weakest seam of each key; that of a single word is the best there is of the rest."""
    places = counts.select("key", "places")
    several = counts.filter(pl.col("size") > 1).select("key", "size", "places")
    parts = several.with_columns(word=pl.col("key").str.split(" "))
    seams = []
    for cut in range(1, 4):
        part = parts.filter(pl.col("size") > cut).select(
            *("key", "places"),
            left=pl.col("word").list.head(cut).list.join(" "),
            right=pl.col("word").list.slice(cut).list.join(" "),
        )
        part = part.join(places.rename({"key": "left", "places": "of_left"}), on="left")
        seams.append(part.join(places.rename({"key": "right", "places": "of_right"}), on="right"))
    joint = pl.col("places") / everything
    apart = (pl.col("of_left") / everything) * (pl.col("of_right") / everything)
    scored = pl.concat(seams).with_columns(cohesion=(joint / apart).log() / -joint.log())
    weakest = scored.group_by("key").agg(pl.col("cohesion").min())
    return counts.join(weakest, on="key", how="left").with_columns(pl.col("cohesion").fill_null(0.5))


def _with_nesting(found: pl.DataFrame) -> pl.DataFrame:
    """With the mean of titles of the longer phrases around a phrase, and the most places inside one of them."""
    parts = found.filter(pl.col("size") > 1).with_columns(word=pl.col("key").str.split(" "))
    pieces = []
    for size in range(1, 4):
        for start in range(0, 4 - size + 1):
            longer = parts.filter((pl.col("size") > size) & (pl.col("size") >= start + size))
            piece = pl.col("word").list.slice(start, size).list.join(" ")
            pieces.append(longer.select("titles", "places", key=piece))
    around = pl.concat(pieces).group_by("key").agg(nested=pl.col("titles").mean(), inside=pl.col("places").max())
    return found.join(around, on="key", how="left").with_columns(pl.col("nested", "inside").fill_null(0))


def merged(found: pl.DataFrame, encoder: LabelEncoder, alike: float) -> pl.DataFrame:
    """With `root`: the key of the most frequent phrase that means the same, by the encoder or by its words' order."""
    ranked = found.sort("titles", "key", descending=[True, False])
    vectors = encoder.encode(ranked["phrase"].to_list())
    keys = ranked["key"].to_list()
    bags = [" ".join(sorted(set(key.split()) - LINKS)) for key in keys]
    first: dict[str, int] = {}
    roots = np.array([first.setdefault(bag, row) for row, bag in enumerate(bags)])
    roots = np.minimum(roots, nearest_before(vectors, alike))
    for row in range(len(roots)):  # a root of a root is the root: rows are in order, so one pass is enough
        roots[row] = roots[roots[row]]
    return ranked.with_columns(root=pl.Series([keys[row] for row in roots], dtype=pl.String))


def nearest_before(vectors: Floats, alike: float) -> Ints:
    """By row, the first row at least so similar; the row itself where none before it is."""
    nearest = np.arange(len(vectors))
    for start in range(0, len(vectors), BLOCK):
        block = vectors[start : start + BLOCK]
        near = block @ vectors[: start + len(block)].T >= alike
        np.fill_diagonal(near[:, start:], True)
        nearest[start : start + len(block)] = near.argmax(axis=1)
    return nearest
