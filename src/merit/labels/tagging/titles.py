"""The words of titles: markup taken away, sizes, brands and little words known for what they are.

    table = words(plain(pl.Series(["<b>Acme</b> Argan Oil Shampoo, 12 oz"])))
    table["key"]    # acme, argan, oil, shampoo

A run is a stretch of words with nothing between them. A comma, a number, a unit or a brand ends it, so that no phrase
reaches over one.
"""

from __future__ import annotations

import html
import tomllib
from importlib import resources

import numpy as np
import polars as pl

_LISTS = tomllib.loads((resources.files(__package__) / "words.toml").read_text(encoding="utf-8"))
LINKS, STOP, EMPTY, UNITS = (frozenset(_LISTS[name]) for name in ("links", "stop", "empty", "units"))
LONGEST = 200  # words that are read of a text: what comes later in one is no title any more
MOST = 4_000  # characters that are read of a text
_HIDDEN = r"(?is)<(script|style)\b.*?</(script|style)\s*>|<!--.*?-->"
_MARKUP = r"</?[a-zA-Z][^<>]*>"
_TOKEN = r"\d[\p{N}.,/]*[\p{L}%]*|[\p{L}\p{M}\p{N}]+(?:['’\-][\p{L}\p{M}\p{N}]+)*|&|[^\s\p{L}\p{M}\p{N}]"


def plain(texts: pl.Series) -> pl.Series:
    """Texts without markup and entities, in one line, cut where they are no titles any more; never null."""
    cut = texts.cast(pl.String).fill_null("").str.slice(0, 4 * MOST)
    marked = cut.str.contains(r"[<&]")
    if marked.any():
        bare = cut.str.replace_all(_HIDDEN, " ").str.replace_all(_MARKUP, " , ")
        entities = bare.str.contains(r"&#?\w+;")
        bare = bare.zip_with(~entities, pl.Series([html.unescape(text) if "&" in text else text for text in bare]))
        cut = bare.str.replace_all(r"^[\s,]+|[\s,]+$", "").str.replace_all(r"(?:\s*,)+", ",").zip_with(marked, cut)
    return cut.str.normalize("NFKC").str.replace_all(r"[\s\p{Cc}]+", " ").str.strip_chars().str.slice(0, MOST)


def joined(title: pl.Series, *others: pl.Series) -> pl.Series:
    """Each title with further texts of its item behind it, set apart so that no phrase reaches over the seam."""
    return pl.select(pl.concat_str([title, *others], separator=" | ", ignore_nulls=True)).to_series()


def words(texts: pl.Series) -> pl.DataFrame:
    """row, run, place, key, shown: the words of plain texts, in their order.

    The key has small letters and no plural; `shown` is as it was written. Numbers, units and punctuation are no words,
    but they end a run.
    """
    tokens = pl.DataFrame({"row": np.arange(len(texts)), "shown": texts.str.extract_all(_TOKEN).list.head(2 * LONGEST)})
    table = tokens.explode("shown").drop_nulls("shown").with_columns(place=pl.int_range(pl.len()).over("row"))
    small = pl.col("shown").str.to_lowercase().str.replace_all("’", "'")
    table = table.with_columns(key=keyed(small), small=small)
    number = pl.col("shown").str.contains(r"\p{N}")
    sign = pl.col("shown").str.contains(r"^[^\p{L}\p{M}\p{N}&]$")
    after = number.shift(1, fill_value=False).over("row")
    unit = pl.col("small").is_in(UNITS) & (after | (pl.col("small").str.len_chars() > 1))
    table = table.with_columns(ends=number | sign | unit).with_columns(run=pl.col("ends").cum_sum())
    return table.filter(~pl.col("ends")).select("row", "run", "place", "key", "shown")


def keyed(small: pl.Expr) -> pl.Expr:
    """Words in the singular, as far as an ending tells, and without what is owned: women's is woman's key, nearly."""
    bare = small.str.replace(r"'s$", "")
    return (
        bare.str.replace(r"^(.{2,})ies$", "${1}y")
        .str.replace(r"^(.{2,}(?:sh|ch|x|ss))es$", "$1")
        .str.replace(r"^(.{2,}[^su'])s$", "$1")
    )


def phrase_keys(texts: pl.Series) -> pl.Series:
    """The key of each text: the keys of its words, with single spaces. A text without words has an empty one."""
    table = words(plain(texts)).group_by("row", maintain_order=True).agg(pl.col("key").str.join(" "))
    rows = pl.DataFrame({"row": np.arange(len(texts))}).join(table, on="row", how="left", maintain_order="left")
    return rows["key"].fill_null("")


def grams(table: pl.DataFrame, longest: int, over_stops: bool = False) -> pl.DataFrame:
    """row, place, size, key, shown, first, last, closes, before: stretches of up to so many words within one run.

    A stop word ends a run, unless `over_stops`. `closes`: whether a name may end there, because nothing that belongs to
    it comes after; `before`: the word before it in the run, if any.
    """
    inside = ("row", "run")
    if not over_stops:
        stop = pl.col("key").is_in(STOP - LINKS)
        table = table.with_columns(run=pl.col("run") + stop.cum_sum(), stop=stop).filter(~pl.col("stop")).drop("stop")
    after = pl.col("key").is_in(LINKS).shift(-1, fill_value=True).over(inside)
    table = table.with_columns(closes=after, before=pl.col("key").shift(1).over(inside))
    parts = []
    for size in range(1, longest + 1):
        steps = [pl.col("key").shift(-step).over(inside) for step in range(size)]
        shown = [pl.col("shown").shift(-step).over(inside) for step in range(size)]
        part = table.select(
            *("row", "place", "before"),
            first="key",
            last=steps[-1],
            closes=pl.col("closes").shift(-(size - 1)).over(inside),
            key=pl.concat_str(steps, separator=" "),
            shown=pl.concat_str(shown, separator=" ").str.to_lowercase(),
        )
        parts.append(part.drop_nulls("key").with_columns(size=pl.lit(size)))
    return pl.concat(parts)
