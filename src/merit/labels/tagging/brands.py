"""Which words of titles are brands: those of a column, or capitalised beginnings that many titles share."""

from __future__ import annotations

import polars as pl

from merit.labels.tagging import titles
from merit.labels.tagging.titles import EMPTY

LONGEST = 4  # words of a brand
LEAST = 3  # titles that begin alike
AT_START = 0.8  # of all places where a brand's words stand, the share at the beginning of a title
COMMON = EMPTY | {"hair", "skin", "body", "beauty", "cosmetic", "home", "food", "baby", "nail", "care", "organic"}
"""Words of brands that stand for themselves as often: only the whole brand is one."""
MOSTLY = 0.5  # of all places of a word: it names the brand, whatever stands before it


def without_brands(table: pl.DataFrame, brands: pl.Series | None) -> pl.DataFrame:
    """The words of titles without those of brands; a run ends where one was.

    `brands` by row, where the items have such a column; without it, beginnings tell.
    """
    given = brands is not None and brands.drop_nulls().len() > 0
    spans = _of_column(table, brands) if brands is not None and given else _of_beginnings(table)
    if spans.is_empty():
        return table
    steps = spans.select("row", place=pl.int_ranges("place", pl.col("place") + pl.col("size"))).explode("place")
    marked = table.join(steps.unique().with_columns(brand=True), on=["row", "place"], how="left", maintain_order="left")
    marked = marked.with_columns(pl.col("brand").fill_null(False))
    words = marked.group_by("key").agg(pl.col("brand").mean()).filter(pl.col("brand") >= MOSTLY)["key"]
    brand = pl.col("brand") | pl.col("key").is_in(words.implode())
    marked = marked.with_columns(brand).with_columns(
        run=(pl.col("run") != pl.col("run").shift(1))
        .or_(pl.col("row") != pl.col("row").shift(1))
        .or_("brand")
        .cum_sum()
    )
    return marked.filter(~pl.col("brand")).drop("brand")


def _of_column(table: pl.DataFrame, brands: pl.Series) -> pl.DataFrame:
    """row, place, size: where a title has its own brand, and where it begins with the brand of another item."""
    keys = titles.phrase_keys(brands)
    own = pl.DataFrame({"row": pl.int_range(len(keys), eager=True), "key": keys}).filter(pl.col("key") != "")
    grams = titles.grams(table, LONGEST, over_stops=True).select("row", "place", "size", "key")
    first = pl.col("place") == pl.col("place").min().over("row")
    begins = grams.filter(first).join(own.select("key").unique(), on="key", how="semi")
    parts = own.select("row", key=pl.col("key").str.split(" ")).explode("key").filter(pl.col("key").str.len_chars() > 2)
    near = grams.filter((pl.col("size") == 1) & (pl.col("place") < 2 * LONGEST)).join(
        parts, on=["row", "key"], how="semi"
    )
    spans = [grams.join(own, on=["row", "key"], how="semi"), begins, near.filter(~pl.col("key").is_in(COMMON))]
    return pl.concat([span.select("row", "place", "size") for span in spans]).unique()


def _of_beginnings(table: pl.DataFrame) -> pl.DataFrame:
    """row, place, size of the longest beginning of a title that is a brand's.

    Where titles are sentences, and only their first word is capitalised, a capital says nothing: no brand is found.
    """
    later = table.filter(pl.col("place") > pl.col("place").min().over("row"))
    if later.is_empty() or later["shown"].str.contains(r"^\p{Lu}").mean() < 0.5:  # type: ignore[operator]
        return pl.DataFrame(schema={"row": pl.Int64, "place": pl.Int64, "size": pl.Int32})
    grams = titles.grams(table, LONGEST - 1, over_stops=True)
    start = (pl.col("place") == 0) & pl.col("closes").not_()
    counts = grams.group_by("key").agg(
        start=start.sum(), places=pl.len(), followed=pl.col("closes").not_().mean(), first=pl.col("first").first()
    )
    brand = (pl.col("start") >= LEAST) & (pl.col("start") >= AT_START * pl.col("places")) & (pl.col("followed") > 0.8)
    brands = counts.filter(brand & ~pl.col("first").is_in(EMPTY)).select("key")
    spans = grams.filter(start).join(brands, on="key", how="semi").sort("row", "size", descending=[False, True])
    return spans.unique("row", keep="first", maintain_order=True).select("row", "place", "size")
