"""Who may be addressed at all: rules over tables of users, and the waterfall of how many users each rule removes.

A rule keeps users or drops them, however likely they are to buy. Users who are not in a table have not consented, were
not seen, and have no attribute: missing data never makes a user eligible by itself.

Every table is read once, lazily, and becomes at most one row per user of the model. What is not a time, a number or a
user id is refused with its row. A table without any user of the model is refused as well: its ids are written
differently, and a list of users not to be addressed would silently protect nobody.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import date, datetime, timedelta
from functools import partial
from pathlib import Path
from typing import Annotated, Literal

import numpy as np
import polars as pl
from numpy.typing import NDArray
from pydantic import Field, model_validator

from merit.campaigns.tables import column_type, instants, numbers, scanning
from merit.core.config import Frozen
from merit.core.errors import DataError
from merit.data.schema import FILE, ROW
from merit.privacy import pseudonyms

Column = Annotated[str, Field(min_length=1)]
Days = Annotated[int, Field(ge=1, le=3_650)]
Mask = NDArray[np.bool_]
HasLabel = Callable[[Sequence[str]], Mask]  # labels → which users have one of them in their history
Parser = Callable[[pl.LazyFrame, str, str], pl.Expr]


class _Table(Frozen):
    table: Path
    """Parquet, CSV or JSONL; a file or a folder."""
    user: Column = "user_id"
    """The column of user ids."""


class Consent(_Table):
    """Keeps users who consented. One row per user: of two answers of one user, none is known to be right."""

    rule: Literal["consent"]
    column: Column
    accept: tuple[str, ...] = Field(("true", "1", "yes", "y"), min_length=1)
    """What counts as yes, whatever the case. All else is no: an empty cell, a user who is not in the table."""


class Recency(_Table):
    """Keeps users seen within the last days. Several rows of a user count by the latest."""

    rule: Literal["recency"]
    column: Column
    """The time of the event, or of the last one."""
    days: Days


class Frequency(_Table):
    """Keeps users who can be contacted once more: a log of contacts, one row each."""

    rule: Literal["frequency"]
    column: Column
    """The time of the contact."""
    days: Days
    most: int = Field(ge=1)
    """Contacts a user may get within the days, the coming one included."""


class Bought(Frozen):
    """Drops users who bought it already: by the history in the model, or by a table of orders."""

    rule: Literal["bought"]
    interests: tuple[Column, ...] = ()
    """Labels: whoever has one of them in the history that the model has read is left out."""
    table: Path | None = None
    user: Column = "user_id"
    column: Column | None = None
    """With `among`: which orders count, such as those of some items."""
    among: tuple[str, ...] = ()
    time: Column | None = None
    """With `days`: only orders within the last days count."""
    days: Days | None = None

    @model_validator(mode="after")
    def _check_source(self) -> Bought:
        if bool(self.interests) == (self.table is not None):
            raise ValueError("name interests of the model, or a table of orders: one of the two")
        if (self.column is None) != (not self.among) or (self.time is None) != (self.days is None):
            raise ValueError("column goes with among, and time with days")
        if self.interests and (self.column or self.time):
            raise ValueError("column, among, time and days belong to a table, not to interests")
        return self


class Listed(_Table):
    """Drops the users of a list (those who must never be addressed), or keeps nobody else."""

    rule: Literal["listed"]
    keep: bool = False
    """False: drop the listed. True: keep only them."""


class Attribute(_Table):
    """Keeps users by any attribute: geography, age group, store. One row per user."""

    rule: Literal["attribute"]
    column: Column
    among: tuple[str, ...] = ()
    """Values that are kept, compared as text whatever the case."""
    not_among: tuple[str, ...] = ()
    """Values that are dropped. Users without a value are dropped too, unless `unknown` says otherwise."""
    at_least: float | None = Field(None, allow_inf_nan=False)
    at_most: float | None = Field(None, allow_inf_nan=False)
    unknown: Literal["drop", "keep"] = "drop"
    """What happens to users without a row or a value."""

    @model_validator(mode="after")
    def _check_values(self) -> Attribute:
        if not (self.among or self.not_among or self.at_least is not None or self.at_most is not None):
            raise ValueError("the rule does not restrict the column: give among, not_among, at_least or at_most")
        if (self.among or self.not_among) and (self.at_least is not None or self.at_most is not None):
            raise ValueError("values are compared as texts or as numbers; write two rules")
        if self.at_least is not None and self.at_most is not None and self.at_least > self.at_most:
            raise ValueError("at_least is above at_most, so that nobody is left")
        return self


Rule = Annotated[Consent | Recency | Frequency | Bought | Listed | Attribute, Field(discriminator="rule")]


class WaterfallStep(Frozen):
    """One line of the waterfall."""

    rule: str
    removed: int
    left: int


def waterfall(
    rules: Sequence[Rule], users: pl.Series, has_label: HasLabel, as_of: date | None
) -> tuple[Mask, tuple[WaterfallStep, ...]]:
    """Which users pass all rules, and how many each rule removed from those left by the rules before it."""
    left, steps = np.ones(len(users), dtype=bool), []
    for rule in rules:
        after = left & keeps(rule, users, has_label, as_of or date.min)
        steps.append(WaterfallStep(rule=title_of(rule), removed=int(left.sum() - after.sum()), left=int(after.sum())))
        left = after
    return left, tuple(steps)


def title_of(rule: Rule) -> str:
    """The rule as text, for the waterfall."""
    match rule:
        case Consent():
            return f"consent: {rule.column}"
        case Recency():
            return f"seen within {rule.days} days: {rule.column}"
        case Frequency():
            return f"at most {rule.most} contacts in {rule.days} days, this one included"
        case Bought():
            within = f" in {rule.days} days" if rule.days else ""
            return f"not bought yet{within}: {', '.join(rule.interests) or rule.table}"
        case Listed():
            return f"{'only' if rule.keep else 'without'} those listed in {rule.table}"
        case Attribute():
            parts = [
                ", ".join(rule.among),
                f"not {', '.join(rule.not_among)}" if rule.not_among else "",
                f"at least {rule.at_least:g}" if rule.at_least is not None else "",
                f"at most {rule.at_most:g}" if rule.at_most is not None else "",
            ]
            return f"{rule.column}: {' and '.join(part for part in parts if part)}"


def keeps(rule: Rule, users: pl.Series, has_label: HasLabel, as_of: date) -> Mask:
    """Which users one rule keeps, whatever the others do."""
    match rule:
        case Bought():
            bought = ((_within(as_of, rule.days) if rule.days else pl.lit(True)) & pl.col("counts")).any()
            table = _per_user(rule, users, bought, rule.time) if rule.table else None
            return ~(has_label(rule.interests) if table is None else _mask(table, users))
        case Recency():
            seen = _within(as_of, rule.days).any()
            return _mask(_per_user(rule, users, seen, rule.column), users)
        case Frequency():  # a user without a logged contact passes
            free = _within(as_of, rule.days).sum() < rule.most
            return _mask(_per_user(rule, users, free, rule.column), users, missing=True)
        case Listed():
            listed = _mask(_per_user(rule, users, pl.lit(True)), users)
            return listed if rule.keep else ~listed
        case Consent():
            table = _one_row_each(rule, _text, users)
            return _mask(table.with_columns(pl.col("value").is_in(_normalised(rule.accept))), users)
        case Attribute():
            numeric = rule.at_least is not None or rule.at_most is not None
            table = _one_row_each(rule, _finite if numeric else _text, users)
            return _mask(table.with_columns(value=_matches(rule)), users, missing=rule.unknown == "keep")


def _per_user(
    rule: _Table | Bought, users: pl.Series, aggregate: pl.Expr, column: str | None = None, parser: Parser = instants
) -> pl.DataFrame:
    """user, value, rows: one row per user in both table and model; `aggregate` sums up a user's values and rows."""
    assert rule.table is not None
    also = [rule.column] if isinstance(rule, Bought) and rule.column else []
    with scanning(rule.table, "the rule's table =", [rule.user, *also], partial(_read, rule, column, parser)) as frame:
        _check_rows(frame, column)
        matched = frame.join(users.alias("user").to_frame().lazy(), on="user", how="semi")
        table = matched.group_by("user").agg(value=aggregate, rows=pl.len()).collect(engine="streaming")
    if table.is_empty():
        first = frame.select("user").head(1).collect(engine="streaming")
        example = str(first.item()) if len(first) else "(it has no rows)"
        pseudonyms.stored_ids([example], users.head(1))
        raise DataError(
            f"{rule.table}: none of its users is known to the model, such as '{example}'; the model has "
            f"'{users[0]}'. Write ids alike (leading zeros, prefixes), or leave the rule out: it would do nothing."
        )
    return table


def _one_row_each(rule: Consent | Attribute, parser: Parser, users: pl.Series) -> pl.DataFrame:
    """The same for tables that may have one row per user only."""
    table = _per_user(rule, users, pl.col("value").first(), rule.column, parser)
    twice = table.filter(pl.col("rows") > 1)["user"]
    if len(twice):
        raise DataError(
            f"{rule.table}: {len(twice):,} users come more than once, '{twice.sort()[0]}' among them, and which row "
            f"of '{rule.column}' is true cannot be known. Keep one row per user."
        )
    return table


def _mask(table: pl.DataFrame, users: pl.Series, missing: bool = False) -> Mask:
    """The values in the order of the users; `missing` for users without one."""
    joined = users.alias("user").to_frame().join(table, on="user", how="left", maintain_order="left")
    return joined["value"].fill_null(missing).to_numpy()


def _read(rule: _Table | Bought, column: str | None, parser: Parser, frame: pl.LazyFrame, file: str) -> pl.LazyFrame:
    """user, value, raw, and which rows count at all."""
    value, raw, counts = pl.lit(None, pl.Boolean), pl.lit(None, pl.String), pl.lit(True)
    if isinstance(rule, Bought) and rule.column:
        counts = pl.col(rule.column).cast(pl.String).is_in(list(rule.among))
    if column:
        value, raw = parser(frame, column, file), pl.col(column).cast(pl.String)
    return frame.select(
        pseudonyms.column(rule.user).alias("user"),
        value.alias("value"),
        pl.when(raw.str.strip_chars() != "").then(raw).alias("raw"),
        counts.fill_null(False).alias("counts"),
        pl.col(FILE),
        pl.col(ROW),
    )


def _check_rows(frame: pl.LazyFrame, column: str | None) -> None:
    no_user = pl.col("user").is_null() | (pl.col("user").str.strip_chars() == "")
    unread = pl.col("value").is_null() & pl.col("raw").is_not_null() if column else pl.lit(False)
    faults = {"an empty user id": no_user, f"a '{column}' that cannot be read": unread}
    for what, fault in faults.items():
        bad = frame.filter(fault).head(1).collect(engine="streaming")
        if len(bad):
            row = bad.row(0, named=True)
            value = "" if row["raw"] is None else f" ({row['raw'][:40]!r})"
            raise DataError(f"{row[FILE]}, row {row[ROW]}: {what}{value}. Correct the table, or leave the row out.")


def _within(as_of: date, days: int) -> pl.Expr:
    """Whether the value lies within the days that end with `as_of`. What happened later was not known on that day."""
    end = datetime.combine(as_of + timedelta(days=1), datetime.min.time())
    first, after = (pl.lit(time).dt.replace_time_zone("UTC") for time in (end - timedelta(days=days), end))
    return ((pl.col("value") >= first) & (pl.col("value") < after)).fill_null(False)


def _text(frame: pl.LazyFrame, name: str, file: str) -> pl.Expr:
    """Any value as text without case and without spaces around it."""
    column_type(frame, name, file)
    value = pl.col(name).cast(pl.String).str.strip_chars().str.to_lowercase()
    return pl.when(value != "").then(value)


def _normalised(values: Sequence[str]) -> list[str]:
    return [value.strip().lower() for value in values]


def _finite(frame: pl.LazyFrame, name: str, file: str) -> pl.Expr:
    number = numbers(frame, name, file)
    return pl.when(number.is_finite()).then(number)


def _matches(rule: Attribute) -> pl.Expr:
    """Null where the value is missing."""
    value = pl.col("value")
    tests = [
        *([value.is_in(_normalised(rule.among))] if rule.among else []),
        *([~value.is_in(_normalised(rule.not_among))] if rule.not_among else []),
        *([value >= rule.at_least] if rule.at_least is not None else []),
        *([value <= rule.at_most] if rule.at_most is not None else []),
    ]
    return pl.when(value.is_not_null()).then(pl.all_horizontal(tests))
