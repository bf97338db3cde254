"""Which rows go on, which are set aside and why, and when there are too many bad ones to go on at all.

Bad rows cannot be understood. Rows with an unknown item can, but nothing is known about what was bought: they are set
aside too, and told apart, because an item table that lags behind its shop is normal and a broken export is not.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import polars as pl

from merit.core import console
from merit.core.config import Frozen
from merit.core.errors import DataError
from merit.core.files import storage_errors
from merit.data import unknown_events
from merit.data.schema import SourceTables
from merit.data.sources.files import reading
from merit.privacy import contacts

UNKNOWN_ITEM = "unknown item"
INTERACTION = ("user_id", "item_id", "timestamp", "event", "order_id")
ITEM = ("item_id", "title", "tags", "vertical")
SINKS: dict[str, Callable[[pl.LazyFrame, Path], pl.LazyFrame]] = {
    ".parquet": lambda rows, path: rows.sink_parquet(path, lazy=True),
    ".csv": lambda rows, path: rows.sink_csv(path, lazy=True),
    ".jsonl": lambda rows, path: rows.sink_ndjson(path, lazy=True),
}


class BadRow(Frozen):
    """Where a row that cannot be used stands in its file, counted from 1, and why."""

    file: str
    row: int
    reason: str


class BadRows(Frozen):
    """What was set aside, for manifests and reports."""

    interactions: int
    """Rows of the table, good or not."""
    bad_interactions: int
    unknown_items: int
    """Valid interactions whose item is not in the items table."""
    items: int
    bad_items: int
    merged_items: int
    """Rows that repeat an item word for word."""


@dataclass(frozen=True)
class ValidTables:
    """The rows that go on. `collect` runs queries on the interactions."""

    interactions: pl.LazyFrame
    """user_id, item_id, timestamp, event, order_id, and item: the index of the item in `items`."""
    items: pl.DataFrame
    """item (UInt32, in order of item_id), item_id, title, tags, vertical."""
    tables: SourceTables
    checked: pl.LazyFrame
    merged_items: int
    bad_items: int


@dataclass(frozen=True)
class ItemRows:
    """The items table, read and checked."""

    good: pl.DataFrame
    bad: pl.DataFrame
    merged: int


def validate(tables: SourceTables) -> ValidTables:
    """The rows that go on. Interactions are only checked once `collect` has run a query on them."""
    items = validate_items(tables)
    _refuse_empty(items.good.height + items.bad.height, tables, "items")
    if items.bad.height > tables.max_bad_share * (items.good.height + items.merged + items.bad.height):
        raise _too_many(tables, "items", items.bad, items.good.height + items.merged + items.bad.height)
    _refuse_empty(items.good.height, tables, "items")
    for each in contacts.found(items.good):
        console.warn(
            contacts.sentence(each), kind=each.kind, items=each.items, rows=[place.row for place in each.first]
        )
    checked = with_item_index(tables, items.good["item_id"])
    kept = checked.filter(pl.col("problem").is_null() & pl.col("item").is_not_null()).select(*INTERACTION, "item")
    return ValidTables(kept, items.good.select("item", *ITEM), tables, checked, items.merged, items.bad.height)


def collect(source: ValidTables, *queries: pl.LazyFrame) -> tuple[list[pl.DataFrame], BadRows]:
    """Run queries built on `source.interactions` and judge the table, all in one pass over the files."""
    with reading(source.tables.files):
        *results, counts = pl.collect_all([*queries, row_counts(source.checked)], engine="streaming")
    rows, bad, unknown = counts.row(0)
    _refuse_empty(rows, source.tables, "interactions")
    if bad > source.tables.max_bad_share * rows:
        first = first_bad(source.checked, source.tables.files)
        raise _too_many(source.tables, "interactions", first, rows, bad, _events(source, first))
    summary = BadRows(
        interactions=rows,
        bad_interactions=bad,
        unknown_items=unknown,
        items=source.items.height + source.merged_items + source.bad_items,
        bad_items=source.bad_items,
        merged_items=source.merged_items,
    )
    return results, summary


def row_counts(checked: pl.LazyFrame) -> pl.LazyFrame:
    """One row: rows, bad rows, good rows of unknown items."""
    fine = pl.col("problem").is_null()
    return checked.select(rows=pl.len(), bad=pl.col("problem").count(), unknown=(fine & pl.col("item").is_null()).sum())


def validate_items(tables: SourceTables, extra: Sequence[str] = ()) -> ItemRows:
    """Valid items, sorted and numbered; bad ones with file, row, problem. Of conflicting rows the first is kept."""
    wanted = tables.items.select(*ITEM, "problem", "file", "row", *extra)
    with reading(tables.files):
        rows = wanted.collect(engine="streaming")
    usable = rows.filter(pl.col("problem").is_null())
    bad = rows.filter(pl.col("problem").is_not_null())
    kept = usable.unique("item_id", keep="first", maintain_order=True)
    if kept.height < usable.height:
        bad = pl.concat([bad, _conflicts(usable, kept)])
    merged = rows.height - kept.height - bad.height
    return ItemRows(kept.sort("item_id").with_row_index("item"), bad, merged)


def _conflicts(usable: pl.DataFrame, kept: pl.DataFrame) -> pl.DataFrame:
    """Rows that give a known item id another meaning."""
    first = kept.select("item_id", *[pl.col(name).alias(f"first {name}") for name in (*ITEM[1:], "file", "row")])
    both = usable.join(first, on="item_id", how="left", maintain_order="left")
    differs = pl.any_horizontal(pl.col(name) != pl.col(f"first {name}") for name in ITEM[1:])
    reason = pl.format("item_id '{}' means something else in {}, row {}", "item_id", "first file", "first row")
    return both.filter(differs).with_columns(problem=reason).select(usable.columns)


def with_item_index(tables: SourceTables, item_ids: pl.Series) -> pl.LazyFrame:
    """Every interaction with the index of its item (null = unknown).

    An Enum look-up instead of a join: it works row by row, so it keeps the order and lets everything stream.
    """
    known = pl.Enum(item_ids)
    index = pl.col("item_id").cast(known, strict=False).to_physical().cast(pl.UInt32)
    return tables.interactions.with_columns(item=index)


def first_bad(checked: pl.LazyFrame, files: Sequence[Path], most: int = 1) -> pl.DataFrame:
    """The first bad interactions, with file, row and problem."""
    with reading(files):
        found = checked.filter(pl.col("problem").is_not_null()).select("file", "row", "problem").head(most)
        return found.collect(engine="streaming")


def _events(source: ValidTables, first: pl.DataFrame) -> str | None:
    """Where the first bad row is one of an unknown event, all such words at once."""
    if first.select(unknown_events.word(pl.col("problem"))).item() is None:
        return None
    with reading(source.tables.files):
        counted = unknown_events.count(source.checked).collect(engine="streaming")
    return unknown_events.sentence(unknown_events.told(counted))


def quarantine(tables: SourceTables, path: Path) -> int:
    """Write every row that does not go on: table, file, row, reason, and its values as they were, as JSON text."""
    items = validate_items(tables, extra=("original",))
    checked = with_item_index(tables, items.good["item_id"])
    reason = pl.coalesce("problem", pl.when(pl.col("item").is_null()).then(pl.lit(UNKNOWN_ITEM)))
    outside = checked.with_columns(problem=reason).filter(pl.col("problem").is_not_null())
    rows = pl.concat([_described(items.bad.lazy(), "items"), _described(outside, "interactions")])
    if path.suffix not in SINKS:
        raise DataError(f"{path}: quarantine files end in .parquet, .csv or .jsonl. Rename it.")
    draft = path.with_name(f".{path.stem}.tmp-{os.getpid()}{path.suffix}")
    try:
        with storage_errors(path), reading(tables.files):
            path.parent.mkdir(parents=True, exist_ok=True)
            counted = rows.select(pl.len())
            count = pl.collect_all([counted, SINKS[path.suffix](rows, draft)], engine="streaming")[0].item()
            draft.replace(path)
    finally:
        draft.unlink(missing_ok=True)
    return int(count)


def _described(rows: pl.LazyFrame, table: str) -> pl.LazyFrame:
    original = pl.col("original").struct.json_encode()
    return rows.select(pl.lit(table).alias("table"), "file", "row", pl.col("problem").alias("reason"), original)


def _refuse_empty(rows: int, tables: SourceTables, table: str) -> None:
    if not rows:
        raise DataError(
            f"{tables.names[table]} holds no usable rows of {table}. "
            f"Export it again, or name another: --set source.{table}=PATH."
        )


def _too_many(
    tables: SourceTables, table: str, first: pl.DataFrame, rows: int, bad: int | None = None, events: str | None = None
) -> DataError:
    file, row, reason = first.select("file", "row", "problem").row(0)
    bad = first.height if bad is None else bad
    share = min(1.0, 1.1 * bad / rows)
    alone = f"{file}, row {row}: {reason}. This and {bad - 1:,} more"
    told = f"{file}: {events} As it is, {bad:,}" if events else alone
    return DataError(
        f"{told} of {rows:,} rows of {table} cannot be used, "
        f"more than the {tables.max_bad_share:.2%} allowed. "
        "See them all with `merit data check … --quarantine bad.parquet` and mend the table, "
        f"or go on without them: --set source.max_bad_share={share:.2g}."
    )
