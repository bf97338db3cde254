"""Which rows go on, which are set aside and why, and when too many of them are bad to go on at all.

A bad row cannot be understood. A row with an unknown item can, but nothing says what was bought. Both are set aside and
counted apart: an item table that lags behind its shop is normal, a broken export is not.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import get_args

import polars as pl

from merit.core import console, files
from merit.core.config import Frozen
from merit.core.errors import DataError
from merit.core.types import Event
from merit.data.normalise import UNKNOWN_EVENT
from merit.data.schema import SourceTables
from merit.data.sources.files import reading
from merit.privacy import contacts

UNKNOWN_ITEM = "unknown item"
INTERACTION = ("user_id", "item_id", "timestamp", "event", "order_id")
ITEM = ("item_id", "title", "tags", "vertical")
EVENTS_SHOWN = 20  # a shop has few event names of its own; thousands are those of another column
SINKS: dict[str, Callable[[pl.LazyFrame, Path], pl.LazyFrame]] = {
    ".parquet": lambda rows, path: rows.sink_parquet(path, lazy=True),
    ".csv": lambda rows, path: rows.sink_csv(path, lazy=True),
    ".jsonl": lambda rows, path: rows.sink_ndjson(path, lazy=True),
}


class BadRow(Frozen):
    """A row that cannot be used: its file, its number counted from 1, and why."""

    file: str
    row: int
    reason: str


class BadRows(Frozen):
    """What was set aside, for manifests and reports."""

    interactions: int
    """Rows of the table, valid or not."""
    bad_interactions: int
    unknown_items: int
    """Valid interactions whose item is not in the items table."""
    items: int
    bad_items: int
    merged_items: int
    """Rows that repeat an item word for word."""


class UnknownEvents(Frozen):
    """Values of the event column that have no meaning yet."""

    words: dict[str, int] = {}
    """With the number of their rows, the most frequent first; at most EVENTS_SHOWN."""
    more: int = 0
    """Further words."""


@dataclass(frozen=True)
class IndexedTables:
    """Both tables, with every row numbered or its problem stated. Nothing is refused yet."""

    source: SourceTables
    items: pl.DataFrame
    """Valid items: item (UInt32, in order of item_id), item_id, title, tags, vertical, problem, file, row."""
    bad_items: pl.DataFrame
    merged_items: int
    indexed: pl.LazyFrame
    """All interactions, bad ones too, with `item`: the index of the item, null where it is unknown."""

    @property
    def item_rows(self) -> int:
        """All rows of the items table."""
        return self.items.height + self.bad_items.height + self.merged_items

    @property
    def interactions(self) -> pl.LazyFrame:
        """The interactions that go on: user_id, item_id, timestamp, event, order_id, item."""
        usable = pl.col("problem").is_null() & pl.col("item").is_not_null()
        return self.indexed.filter(usable).select(*INTERACTION, "item")

    def row_counts(self) -> pl.LazyFrame:
        """One row: interactions, bad ones, valid ones of unknown items."""
        unknown = pl.col("problem").is_null() & pl.col("item").is_null()
        counts = {"bad_interactions": pl.col("problem").count(), "unknown_items": unknown.sum()}
        return self.indexed.select(pl.len().alias("interactions"), **counts)

    def bad_rows(self, counts: pl.DataFrame) -> BadRows:
        """The summary of both tables. `counts`: what `row_counts` gives."""
        items = {"items": self.item_rows, "bad_items": self.bad_items.height, "merged_items": self.merged_items}
        return BadRows(**counts.row(0, named=True), **items)


def index(tables: SourceTables, extra: Sequence[str] = ()) -> IndexedTables:
    """Items sorted and numbered, `extra` columns of theirs kept; of conflicting rows the first is valid.

    Interactions find their item by an Enum look-up instead of a join: it works row by row, so it keeps the order and
    lets everything stream.
    """
    wanted = tables.items.select(*ITEM, "problem", "file", "row", *extra)
    with reading(tables.files):
        rows = wanted.collect(engine="streaming")
    usable = rows.filter(pl.col("problem").is_null())
    bad = rows.filter(pl.col("problem").is_not_null())
    kept = usable.unique("item_id", keep="first", maintain_order=True)
    if kept.height < usable.height:
        bad = pl.concat([bad, _conflicts(usable, kept)])
    items = kept.sort("item_id").with_row_index("item")
    number = pl.col("item_id").cast(pl.Enum(items["item_id"]), strict=False).to_physical().cast(pl.UInt32)
    merged = rows.height - kept.height - bad.height
    return IndexedTables(tables, items, bad, merged, tables.interactions.with_columns(item=number))


def validate(tables: SourceTables, extra: Sequence[str] = ()) -> IndexedTables:
    """The tables, unless too many items are bad; `extra` columns of items are kept. Interactions are checked once
    `collect` has run a query on them."""
    both = index(tables, extra)
    _require_rows(both.items.height + both.bad_items.height, tables, "items")
    if both.bad_items.height > tables.max_bad_share * both.item_rows:
        raise _too_many(tables, "items", both.bad_items, both.item_rows, both.bad_items.height)
    _require_rows(both.items.height, tables, "items")
    for contact in contacts.find(both.items):
        rows = [place.row for place in contact.first]
        console.warn(contacts.warning(contact), kind=contact.kind, items=contact.items, rows=rows)
    return both


def collect(both: IndexedTables, *queries: pl.LazyFrame) -> tuple[list[pl.DataFrame], BadRows]:
    """The results of queries built on `both.interactions`, and what was set aside, in one pass over the files."""
    tables = both.source
    with reading(tables.files):
        *results, counts = pl.collect_all([*queries, both.row_counts()], engine="streaming")
    summary = both.bad_rows(counts)
    rows, bad = summary.interactions, summary.bad_interactions
    _require_rows(rows, tables, "interactions")
    if bad > tables.max_bad_share * rows:
        first = first_bad(both.indexed, tables.files)
        raise _too_many(tables, "interactions", first, rows, bad, _unknown_events(both, first))
    return results, summary


def _conflicts(usable: pl.DataFrame, kept: pl.DataFrame) -> pl.DataFrame:
    """Rows that describe an item differently from the first row with its id."""
    first = kept.select("item_id", *[pl.col(name).alias(f"first {name}") for name in (*ITEM[1:], "file", "row")])
    both = usable.join(first, on="item_id", how="left", maintain_order="left")
    differs = pl.any_horizontal(pl.col(name) != pl.col(f"first {name}") for name in ITEM[1:])
    reason = pl.format("item_id '{}' means something else in {}, row {}", "item_id", "first file", "first row")
    return both.filter(differs).with_columns(problem=reason).select(usable.columns)


def first_bad(interactions: pl.LazyFrame, files: Sequence[Path], most: int = 1) -> pl.DataFrame:
    """The first bad interactions: file, row, problem."""
    bad = interactions.filter(pl.col("problem").is_not_null()).select("file", "row", "problem").head(most)
    with reading(files):
        return bad.collect(engine="streaming")


def quarantine(tables: SourceTables, path: Path) -> int:
    """Write every row that does not go on (table, file, row, reason, values as JSON text) and return their number."""
    both = index(tables, extra=("original",))
    reason = pl.coalesce("problem", pl.when(pl.col("item").is_null()).then(pl.lit(UNKNOWN_ITEM)))
    outside = both.indexed.with_columns(problem=reason).filter(pl.col("problem").is_not_null())
    rows = pl.concat([_described(both.bad_items.lazy(), "items"), _described(outside, "interactions")])
    if path.suffix not in SINKS:
        raise DataError(f"{path}: quarantine files end in .parquet, .csv or .jsonl. Rename it.")
    with files.drafted(path, 0o644) as draft, reading(tables.files):
        sink = SINKS[path.suffix](rows, draft)
        count = pl.collect_all([rows.select(pl.len()), sink], engine="streaming")[0].item()
    return int(count)


def _described(rows: pl.LazyFrame, table: str) -> pl.LazyFrame:
    original = pl.col("original").struct.json_encode()
    return rows.select(pl.lit(table).alias("table"), "file", "row", pl.col("problem").alias("reason"), original)


# --- unknown events --------------------------------------------------------------------------------------------------


def unknown_event(problem: pl.Expr) -> pl.Expr:
    """The word of a row that is bad because of it; null for all other rows, and where words are hidden."""
    before, after = UNKNOWN_EVENT.split("{}")
    is_event = problem.str.starts_with(before) & problem.str.ends_with(after)
    return pl.when(is_event).then(problem.str.strip_prefix(before).str.strip_suffix(after))


def event_counts(interactions: pl.LazyFrame) -> pl.LazyFrame:
    """(word, rows) of the unknown events."""
    return interactions.select(word=unknown_event(pl.col("problem"))).drop_nulls().group_by("word").agg(rows=pl.len())


def most_frequent(counts: pl.DataFrame) -> UnknownEvents:
    """From the table of `event_counts`; equally frequent words are in alphabetical order."""
    first = counts.sort("rows", "word", descending=[True, False]).head(EVENTS_SHOWN)
    return UnknownEvents(words=dict(first.rows()), more=len(counts) - len(first))


def describe_events(events: UnknownEvents) -> str:
    """All unknown events, and the setting that explains them."""
    named = ", ".join(f"'{word}' ({rows:,} row{'s' * (rows > 1)})" for word, rows in events.words.items())
    setting = ", ".join(f'{json.dumps(word, ensure_ascii=False)} = "…"' for word in events.words)
    wrong_column = "(is it the right column? --set source.columns.event=THEIRS)"
    more = f" and {events.more:,} more {wrong_column}" if events.more else ""
    return (
        f"Events that are not known: {named}{more}. Say in [source] what each is ({', '.join(get_args(Event))}): "
        f"events = {{ {setting} }}, or on the command line --set source.events.WORD=EVENT for each."
    )


def _unknown_events(both: IndexedTables, first: pl.DataFrame) -> str | None:
    """Where the first bad row has an unknown event, a description of all such words."""
    if first.select(unknown_event(pl.col("problem"))).item() is None:
        return None
    with reading(both.source.files):
        counts = event_counts(both.indexed).collect(engine="streaming")
    return describe_events(most_frequent(counts))


# --- refusals --------------------------------------------------------------------------------------------------------


def _require_rows(rows: int, tables: SourceTables, table: str) -> None:
    if not rows:
        raise DataError(
            f"{tables.names[table]} holds no usable rows of {table}. "
            f"Export it again, or name another: --set source.{table}=PATH."
        )


def _too_many(
    tables: SourceTables, table: str, first: pl.DataFrame, rows: int, bad: int, events: str | None = None
) -> DataError:
    file, row, reason = first.select("file", "row", "problem").row(0)
    one = f"{file}, row {row}: {reason}. This and {bad - 1:,} more"
    return DataError(
        f"{f'{file}: {events} As it is, {bad:,}' if events else one} of {rows:,} rows of {table} cannot be used, "
        f"more than the {tables.max_bad_share:.2%} allowed. "
        "See them all with `merit data check … --quarantine bad.parquet` and mend the table, "
        f"or go on without them: --set source.max_bad_share={min(1.0, 1.1 * bad / rows):.2g}."
    )
