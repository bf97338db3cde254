"""The public Amazon review files of 2014, 2018 and 2023 (one JSON object a line, plain or .gz).

| | user | item | time | item text |
|---|---|---|---|---|
| 2014 | reviewerID | asin | unixReviewTime, seconds | title, categories: paths, brand; lines are Python literals |
| 2018 | reviewerID | asin | unixReviewTime, seconds | title, category: one path, brand |
| 2023 | user_id | parent_asin | timestamp, milliseconds | title, categories: one path, store, main_category |

A review counts as a purchase. The `title` of a 2023 review is the reviewer's headline and is never read.
The first step of a category path is the department that the whole file belongs to: it says nothing, so it is no tag.
"""

from __future__ import annotations

import ast
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any, Literal

import polars as pl
from pydantic import Field

from merit.core.errors import DataError
from merit.data import normalise
from merit.data.schema import FILE, ROW, ParseOptions, SourceTables
from merit.data.sources import files
from merit.data.sources.tables import open_table, source_tables
from merit.privacy.pseudonyms import WithPseudonyms

Years = Mapping[str, Sequence[str]]

REVIEWS = {  # user, item, time
    "2023": ("user_id", "parent_asin", "timestamp"),
    "2014/2018": ("reviewerID", "asin", "unixReviewTime"),
}
METADATA = {  # item, title, category path, brand
    "2023": ("parent_asin", "title", "categories", "store"),
    "2018": ("asin", "title", "category", "brand"),
    "2014": ("asin", "title", "categories", "brand"),
}
_PATHS = pl.List(pl.List(pl.String))


class AmazonReviewsSource(WithPseudonyms):
    """Reviews as purchases, product metadata as items. The year is recognised by the columns."""

    kind: Literal["amazon-reviews"] = "amazon-reviews"
    reviews: Path
    metadata: Path
    extra_tags: tuple[Literal["brand"], ...] = ()
    """("brand",) adds the brand (in 2023 the store) to the tags."""
    vertical_level: Annotated[int, Field(ge=0)] = 1
    """The step of the category path that is the vertical; 0 is the department the file belongs to."""
    max_bad_share: Annotated[float, Field(ge=0, le=1)] = 0.001
    max_title_chars: Annotated[int, Field(ge=1)] = 2000


def open_amazon_reviews(source: AmazonReviewsSource) -> SourceTables:
    """Both tables, lazily; only the Python literals of 2014 are read at once, line by line."""
    options = ParseOptions(default_event="purchase", max_title_chars=source.max_title_chars)

    def reviews(frame: pl.LazyFrame, file: Path) -> pl.LazyFrame:
        theirs = _recognise(frame, file, REVIEWS, "reviews")
        mapping = dict(zip(("user_id", "item_id", "timestamp"), theirs, strict=True))
        return normalise.interactions(frame, mapping, str(file), options, text=True)

    events = open_table(source.reviews, "source.reviews", reviews)
    item_files = files.find(source.metadata, "--set source.metadata=PATH")
    items = pl.concat([_items(file, source, options) for file in item_files])
    return source_tables(events, (items, item_files, source.metadata), source.max_bad_share)


def _recognise(frame: pl.LazyFrame, file: Path, known: Years, table: str) -> Sequence[str]:
    """The names of the first year whose columns are there; a missing brand is no obstacle."""
    columns = files.columns_of(frame)
    for names in known.values():
        if {*names[:3]} <= set(columns):
            return names
    years = "; ".join(f"{year}: {', '.join(names[:3])}" for year, names in known.items())
    raise DataError(
        f"{file} is no Amazon {table.removesuffix('s')} file. Columns found: {', '.join(columns[:30])}; known are "
        f"{years}. Name the file with --set source.{table}=PATH, or use source.kind=tables for other formats."
    )


def _items(file: Path, source: AmazonReviewsSource, options: ParseOptions) -> pl.LazyFrame:
    with files.unpacked(file) as lines:
        python = lines.readline().lstrip().startswith(b"{'")
    frame = _python_literals(file) if python else files.scan(file, file.parent, typed=("categories", "category"))
    item, _, categories, brand = _recognise(frame, file, METADATA, "metadata")
    first, steps = _first_path_and_tags(frame, categories)
    level = pl.min_horizontal(pl.lit(source.vertical_level), first.list.len().cast(pl.Int64) - 1)
    brands = [pl.col(brand)] if source.extra_tags and brand in files.columns_of(frame) else []
    shaped = frame.select(
        *(ROW, FILE, pl.col(item).alias("item_id"), "title"),
        pl.concat_list(steps.fill_null(pl.lit([], pl.List(pl.String))), *brands).alias("tags"),
        first.list.get(level, null_on_oob=True).alias("vertical"),
    )
    mapping = {name: name for name in ("item_id", "title", "tags", "vertical")}
    return normalise.items(shaped, mapping, (), str(file), options, text=True)


def _first_path_and_tags(frame: pl.LazyFrame, column: str) -> tuple[pl.Expr, pl.Expr]:
    """The first category path, and all steps of all paths but the first of each. From 2018 on there is one path."""
    dtype, paths = frame.collect_schema()[column], pl.col(column)
    if not (isinstance(dtype, pl.List) and isinstance(dtype.inner, pl.List)):
        path = paths.cast(pl.List(pl.String))
        return path, path.list.slice(1)
    later = paths.cast(_PATHS).list.eval(pl.element().list.slice(1).list.join("\x1f")).list.join("\x1f")
    return paths.list.first(), later.str.split("\x1f")


def _python_literals(file: Path) -> pl.LazyFrame:
    """The metadata of 2014: each line a Python dict. `literal_eval` reads values only, it never runs anything."""
    rows: list[dict[str, Any]] = []
    with files.unpacked(file) as lines:
        for number, line in enumerate(lines, 1):
            try:
                value = ast.literal_eval(line.decode("utf-8").strip())
                rows.append({name: value.get(name) for name in METADATA["2014"]} | {ROW: number})
            except (ValueError, SyntaxError, AttributeError, MemoryError, RecursionError):
                raise DataError(
                    f"{file}, row {number} is neither JSON nor a Python literal. Mend or remove that line."
                ) from None
    schema = dict.fromkeys(METADATA["2014"], pl.String()) | {"categories": _PATHS, ROW: pl.UInt64()}
    return pl.DataFrame(rows, schema=schema, strict=False).lazy().with_columns(pl.lit(str(file)).alias(FILE))
