"""Rules → who is left, and how many each rule took: the waterfall.

Every table is read once, lazily, and becomes at most one row per user of the model; what is not a time, a number or a
user id is refused with its row, and a table that knows none of our users as well: its ids are written differently, and
a list of people not to be addressed would silently protect nobody.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import date, datetime, timedelta
from pathlib import Path
from typing import NamedTuple

import numpy as np
import polars as pl
from numpy.typing import NDArray

from merit.campaigns.audiences.rules import Attribute, Bought, Consent, Frequency, Listed, Recency, Rule, title_of
from merit.campaigns.experiments.outcomes import _instant, _number
from merit.campaigns.tables import column_in, find, scans
from merit.core.config import Frozen
from merit.core.errors import DataError
from merit.data.schema import FILE, ROW
from merit.data.sources import files
from merit.privacy import pseudonyms

Mask = NDArray[np.bool_]
HasLabel = Callable[[Sequence[str]], Mask]  # labels → which users have one of them in the history the model has read
Parser = Callable[[pl.LazyFrame, str, str], pl.Expr]
NEVER = date(1, 1, 1)  # of rules that look at no time


class WaterfallStep(Frozen):
    """One line of the waterfall."""

    rule: str
    removed: int
    left: int


def waterfall(
    rules: Sequence[Rule], users: pl.Series, had: HasLabel, as_of: date | None
) -> tuple[Mask, tuple[WaterfallStep, ...]]:
    """Who passes all rules, and what each rule took from those whom the rules before it had left."""
    left, steps = np.ones(len(users), dtype=bool), []
    for rule in rules:
        after = left & keeps(rule, users, had, as_of or NEVER)
        steps.append(WaterfallStep(rule=title_of(rule), removed=int(left.sum() - after.sum()), left=int(after.sum())))
        left = after
    return left, tuple(steps)


def keeps(rule: Rule, users: pl.Series, had: HasLabel, as_of: date) -> Mask:
    """Which users one rule lets pass, whatever the others say."""
    match rule:
        case Bought(table=None):
            return ~had(rule.interests)
        case Bought():
            return ~_truths(_orders(rule, users, as_of), users)
        case Recency() | Frequency():
            return _timed(rule, users, as_of)
        case Listed():
            there = _truths(_table(_Asked(rule.table, rule.user), users, pl.lit(True)), users)
            return there if rule.keep else ~there
        case Consent() | Attribute():
            return _said(rule, users)


def _timed(rule: Recency | Frequency, users: pl.Series, as_of: date) -> Mask:
    """Seen within the days; or not contacted too often in them, as nobody is of whom no contact is logged."""
    within = _days(pl.col("value"), as_of, rule.days)
    capped = isinstance(rule, Frequency)
    answer = within.sum() < rule.most if isinstance(rule, Frequency) else within.any()
    return _truths(_table(_Asked(rule.table, rule.user, rule.column, _instant), users, answer), users, other=capped)


def _said(rule: Consent | Attribute, users: pl.Series) -> Mask:
    """What a user's one row says."""
    if isinstance(rule, Consent):
        yes = pl.col("value").is_in([each.strip().lower() for each in rule.accept])
        return _truths(_one_each(_Asked(rule.table, rule.user, rule.column, _text), users), users, yes)
    numeric = rule.at_least is not None or rule.at_most is not None
    found = _one_each(_Asked(rule.table, rule.user, rule.column, _finite if numeric else _text), users)
    return _truths(found, users, _wanted(rule), other=rule.unknown == "keep")


class _Asked(NamedTuple):
    """A table, its column of users, and the column whose values are read by `parser`."""

    table: Path
    user: str
    column: str | None = None
    parser: Parser | None = None


def _table(asked: _Asked, users: pl.Series, answer: pl.Expr, extra: Sequence[str] = ()) -> pl.DataFrame:
    """user, answer: one row per user that the table and the model know; `answer` sums up a user's rows."""
    found = find(asked.table, "the rule's table =")
    with files.reading(found):
        frame = pl.concat([_read(scan, asked, extra, file) for scan, file in scans(found, asked.table)])
        _refuse_bad(frame, asked)
        known = frame.join(users.alias("user").to_frame().lazy(), on="user", how="semi")
        made = known.group_by("user").agg(answer=answer, rows=pl.len()).collect(engine="streaming")
    if made.is_empty():
        pseudonyms.asked([_example(frame)], users.head(1))
        raise DataError(
            f"{asked.table}: none of its users is known to the model, such as '{_example(frame)}'; the model has "
            f"'{users[0]}'. Write ids alike (leading zeros, prefixes), or leave the rule out: it would do nothing."
        )
    return made


def _one_each(asked: _Asked, users: pl.Series) -> pl.DataFrame:
    """The same for tables that may have one row per user only."""
    found = _table(asked, users, pl.col("value").first())
    twice = found.filter(pl.col("rows") > 1)["user"]
    if len(twice):
        raise DataError(
            f"{asked.table}: {len(twice):,} users come more than once, '{twice.sort()[0]}' among them, and which row "
            f"of '{asked.column}' is true cannot be known. Keep one row per user."
        )
    return found.rename({"answer": "value"})


def _orders(rule: Bought, users: pl.Series, as_of: date) -> pl.DataFrame:
    assert rule.table is not None
    asked = _Asked(rule.table, rule.user, rule.time, _instant if rule.time else None)
    counts = _days(pl.col("value"), as_of, rule.days) if rule.days else pl.lit(True)
    if rule.column:
        counts = counts & pl.col(rule.column).cast(pl.String).is_in(list(rule.among))
    return _table(asked, users, counts.any(), (rule.column,) if rule.column else ())


def _truths(found: pl.DataFrame, users: pl.Series, test: pl.Expr | None = None, other: bool = False) -> Mask:
    """In the order of the users; `other` for those of whom nothing is known."""
    told = found.select("user", answer=pl.col("answer") if test is None else test)
    everyone = users.alias("user").to_frame().join(told, on="user", how="left", maintain_order="left")
    return everyone["answer"].fill_null(other).to_numpy()


def _read(frame: pl.LazyFrame, asked: _Asked, extra: Sequence[str], file: str) -> pl.LazyFrame:
    for name in (asked.user, *extra):
        column_in(frame, name, file)
    value, raw = pl.lit(None, pl.Boolean), pl.lit(None, pl.String)
    if asked.column and asked.parser:
        column_in(frame, asked.column, file)
        value, raw = asked.parser(frame, asked.column, file), pl.col(asked.column).cast(pl.String)
    own = {name: pl.col(name).cast(pl.String) for name in extra if name not in ("user", "value", "raw")}
    return frame.select(
        pseudonyms.column(asked.user).alias("user"),
        value.alias("value"),
        pl.when(raw.str.strip_chars() != "").then(raw).alias("raw"),
        pl.col(FILE),
        pl.col(ROW),
        **own,
    )


def _refuse_bad(frame: pl.LazyFrame, asked: _Asked) -> None:
    nobody = pl.col("user").is_null() | (pl.col("user").str.strip_chars() == "")
    unread = pl.col("value").is_null() & pl.col("raw").is_not_null() if asked.column else pl.lit(False)
    faults = {"an empty user id": nobody, f"a '{asked.column}' that cannot be read": unread}
    for what, fault in faults.items():
        bad = frame.filter(fault).head(1).collect(engine="streaming")
        if len(bad):
            row = bad.row(0, named=True)
            value = "" if row["raw"] is None else f" ({row['raw'][:40]!r})"
            raise DataError(f"{row[FILE]}, row {row[ROW]}: {what}{value}. Mend the table, or leave the row out.")


def _example(frame: pl.LazyFrame) -> str:
    some = frame.select("user").head(1).collect(engine="streaming")
    return str(some.item()) if len(some) else "(it has no rows)"


def _days(value: pl.Expr, as_of: date, days: int) -> pl.Expr:
    """Within so many days that end with `as_of`. What happened later was not known on that day."""
    end = datetime.combine(as_of + timedelta(days=1), datetime.min.time())
    first = pl.lit(end - timedelta(days=days)).dt.replace_time_zone("UTC")
    return ((value >= first) & (value < pl.lit(end).dt.replace_time_zone("UTC"))).fill_null(False)


def _text(frame: pl.LazyFrame, name: str, file: str) -> pl.Expr:
    """Any value as people compare it: without spaces around it, whatever its case."""
    column_in(frame, name, file)
    value = pl.col(name).cast(pl.String).str.strip_chars().str.to_lowercase()
    return pl.when(value != "").then(value)


def _finite(frame: pl.LazyFrame, name: str, file: str) -> pl.Expr:
    number = _number(frame, name, file)
    return pl.when(number.is_finite()).then(number)


def _wanted(rule: Attribute) -> pl.Expr:
    """Null where the value is not known."""
    value = pl.col("value")
    among, without = ([each.strip().lower() for each in given] for given in (rule.among, rule.not_among))
    tests = [
        *([value.is_in(among)] if among else []),
        *([~value.is_in(without)] if without else []),
        *([value >= rule.at_least] if rule.at_least is not None else []),
        *([value <= rule.at_most] if rule.at_most is not None else []),
    ]
    return pl.when(value.is_not_null()).then(pl.all_horizontal(tests))
