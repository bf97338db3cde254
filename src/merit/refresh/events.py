"""What a source has that a run does not: new events and new items; and logs that are refused.

An event is new if the run does not have it as often as the source. So the whole log may be given, or the new part
alone, with or without an overlap. How far back of the last event the source is compared is `late_days`.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from datetime import UTC, datetime

import numpy as np
import polars as pl
from numpy.typing import NDArray
from pydantic import Field

from merit.core.config import Frozen
from merit.core.errors import DataError
from merit.core.types import Ints
from merit.data import sources, validate
from merit.data.examples import DAY
from merit.data.schema import SourceTables
from merit.data.validate import IndexedTables
from merit.refresh.known import EVENT, KnownRun

Flags = NDArray[np.bool_]
CONTENT = ("title", "tags", "vertical")
FEW = 20  # events from which a log can be told to be another's
FUTURE = "lies in the future"  # as normalise says it


class RefreshConfig(Frozen):
    """Which events are new, and from when on a log is not the one of the run."""

    late_days: int = Field(30, ge=0)
    """Events may come so many days late. Older ones that the run does not have are left to the next training."""
    known_items: float = Field(0.5, ge=0, le=1)
    """Of the log's recent events, at least this share has an item that the run knows, by id and title."""
    known_users: float = Field(0.05, ge=0, le=1)
    """And this share a user it knows: few, as visitors of a day may be most."""
    rewritten: float = Field(0.5, ge=0, le=1)
    """At most this share of the log before the last event may be new: beyond it, its times or ids have changed."""
    duplicates: float = Field(0.01, ge=0, le=1)
    """At most this share of new events, beyond that of the log so far, may be copies of others, word for word."""


@dataclass(frozen=True)
class NewEvents:
    """What came since, and what is said about it."""

    events: pl.DataFrame
    """As EVENT, by the numbers of `items`."""
    items: pl.DataFrame
    """Those of the run, as the source describes them now, and new ones behind."""
    changed: Ints
    """Numbers of items whose title or tags are others now."""
    unknown: int
    """Events since whose item is in no table."""
    late: int
    """New events from before the last one."""
    left_out: int
    """New events of users who were there before the last event, and whom the run does not know: they were erased."""

    @property
    def newest(self) -> int:
        """The time of the last one, in milliseconds; 0 where there is none."""
        return int(self.events["timestamp"].to_physical().max() or 0)  # type: ignore[arg-type]


def read_new(known: KnownRun, source: sources.Source, config: RefreshConfig) -> NewEvents:
    """The new events and items of a source. What is not the run's log is refused, with the reason."""
    tables = sources.open_source(source)
    both, changed, same = _merged(known, tables)
    start, last = (_instant(at) for at in (known.last - config.late_days * DAY, known.last))
    good, recent = both.interactions, pl.col("timestamp") >= start
    unknown = pl.col("problem").is_null() & pl.col("item").is_null() & (pl.col("timestamp") > last)
    future = pl.col("problem").str.contains(FUTURE, literal=True)
    queries = (
        good.filter(recent).select(EVENT),
        good.select(pl.col("timestamp").max()),
        both.indexed.select(unknown.sum()),
        good.filter(pl.col("timestamp") <= last).select(pl.col("user_id").unique()),
        both.indexed.filter(future).select("file", "row", "problem").head(1),
    )
    [rows, newest, unknown_items, older, ahead], _ = validate.collect(both, *queries)
    _refuse_future(ahead)
    _refuse_strangers(known, rows, same, config)
    _refuse_older(known, tables, newest.item())
    found = _not_known(rows, stored := known.recent(config.late_days))
    erased = older.join(known.users.to_frame("user_id"), on="user_id", how="anti") if known.erased else older.clear()
    new = found.join(erased, on="user_id", how="anti")
    _refuse_copies(new, stored, config)
    late, before = (int((table["timestamp"] <= _time(known.last)).sum()) for table in (new, rows))
    if late >= FEW and late > config.rewritten * before:
        raise DataError(
            f"{late:,} of the {before:,} events of {tables.names['interactions']} in the last {config.late_days} days "
            "before the last refresh are not those that the run has read: their times, ids or meaning have changed. "
            "Nothing was changed; train anew with `merit run`, or let them in with --set refresh.rewritten=1."
        )
    return NewEvents(new.select(EVENT), both.items, changed, unknown_items.item(), late, len(found) - len(new))


def _merged(known: KnownRun, tables: SourceTables) -> tuple[IndexedTables, Ints, Flags]:
    """The source over the items of the run and its own; numbers of changed ones; by item, if it is of the run."""
    theirs = validate.validate(tables)
    before = known.items.select("item", "item_id", *CONTENT)
    given = theirs.items.select("item_id", *CONTENT, there=True)
    both = before.join(given, on="item_id", how="left", maintain_order="left", suffix=" now")
    other = [pl.col("there") & pl.col(f"{name} now").ne_missing(pl.col(name)) for name in CONTENT]
    changed = both.select(pl.any_horizontal(*other).fill_null(False)).to_series()
    renamed = both.select((pl.col("there") & (pl.col("title now") != pl.col("title"))).fill_null(False)).to_series()
    now = [pl.when("there").then(f"{name} now").otherwise(name).alias(name) for name in CONTENT]
    fresh = given.drop("there").join(before, on="item_id", how="anti", maintain_order="left")
    items = pl.concat([both.select("item_id", *now), fresh.select("item_id", *CONTENT)]).with_row_index("item")
    number = pl.col("item_id").cast(pl.Enum(items["item_id"]), strict=False).to_physical().cast(pl.UInt32)
    merged = replace(theirs, items=items, indexed=tables.interactions.with_columns(item=number))
    same = np.zeros(len(items), bool)
    same[: len(before)] = ~renamed.to_numpy()
    return merged, np.flatnonzero(changed.to_numpy()), same


def _not_known(rows: pl.DataFrame, stored: pl.DataFrame) -> pl.DataFrame:
    """Rows that the run does not have as often, with `copy`, the how manieth of its like each is."""
    numbered = [table.with_columns(copy=pl.int_range(pl.len()).over(EVENT)) for table in (rows, stored)]
    return numbered[0].join(numbered[1], on=[*EVENT, "copy"], how="anti", nulls_equal=True)


def _refuse_future(ahead: pl.DataFrame) -> None:
    if len(ahead):
        file, row, problem = ahead.row(0)
        raise DataError(
            f"{file}, row {row}: {problem}; a refresh would move the clock of the model there. Nothing was changed: "
            "take such rows out, or set them aside with --set source.latest=DAY."
        )


def _refuse_strangers(known: KnownRun, rows: pl.DataFrame, same: Flags, config: RefreshConfig) -> None:
    if len(rows) < FEW:
        return
    known_users = rows["user_id"].is_in(known.users.implode()).to_numpy()
    items, users = float(same[rows["item"].to_numpy()].mean()), float(known_users.mean())
    for share, least, what in ((items, config.known_items, "items"), (users, config.known_users, "users")):
        if share < least:
            raise DataError(
                f"Only {share:.1%} of the recent events have {what} that the run knows: this is the log of another "
                f"shop, or another export. Nothing was changed; if it is the right one, --set refresh.known_{what}="
                f"{share:.2g}."
            )


def _refuse_older(known: KnownRun, tables: SourceTables, newest: datetime | None) -> None:
    until = _time(known.last)
    if newest is None or newest < until:
        ends = f"ends on {newest:%Y-%m-%d %H:%M}" if newest else "has no usable event"
        raise DataError(
            f"{tables.names['interactions']} {ends}, before the last event of the model ({until:%Y-%m-%d %H:%M}): it "
            "is older than the log of the last refresh. Nothing was changed; name a newer one, "
            "--set source.interactions=PATH."
        )


def _refuse_copies(new: pl.DataFrame, stored: pl.DataFrame, config: RefreshConfig) -> None:
    usual = float(stored.is_duplicated().mean()) / 2 if len(stored) else 0.0  # type: ignore[arg-type]
    copies = int((new["copy"] > 0).sum())
    if copies > 3 and copies > (config.duplicates + 2 * usual) * len(new):
        raise DataError(
            f"{copies:,} of {len(new):,} new events are copies of others, word for word (before: {usual:.1%}): a part "
            "of the log was exported twice. Nothing was changed; take the copies out, or let them in with "
            "--set refresh.duplicates=1."
        )


def _time(milliseconds: int) -> datetime:
    return datetime.fromtimestamp(milliseconds // 1000, UTC).replace(microsecond=milliseconds % 1000 * 1000)


def _instant(milliseconds: int) -> pl.Expr:
    return pl.lit(milliseconds).cast(pl.Datetime("ms", "UTC"))
