"""Who may be addressed at all: typed rules over tables of users, as they are written in a request.

    [[rules]]
    rule = "consent"
    table = "customers.parquet"
    column = "newsletter"

A rule keeps users or drops them and says nothing about how likely they are to buy. Who is not in a table has not
consented, was not seen, and has no attribute: what is not known never makes a user eligible by itself.
"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal

from pydantic import Field, model_validator

from merit.core.config import Frozen

Column = Annotated[str, Field(min_length=1)]
Days = Annotated[int, Field(ge=1, le=3_650)]


class _Table(Frozen):
    table: Path
    """Parquet, CSV or JSONL; a file or a folder."""
    user: Column = "user_id"
    """The column of user ids."""


class Consent(_Table):
    """Keeps users who said yes. One row per user: two answers of one user are a question, not an answer."""

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
    def _one_source(self) -> Bought:
        if bool(self.interests) == (self.table is not None):
            raise ValueError("name interests of the model, or a table of orders: one of the two")
        if (self.column is None) != (not self.among) or (self.time is None) != (self.days is None):
            raise ValueError("column goes with among, and time with days")
        if self.interests and (self.column or self.time):
            raise ValueError("column, among, time and days speak of a table; interests have none of them")
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
    def _says_something(self) -> Attribute:
        if not (self.among or self.not_among or self.at_least is not None or self.at_most is not None):
            raise ValueError("nothing is asked of the column: give among, not_among, at_least or at_most")
        if (self.among or self.not_among) and (self.at_least is not None or self.at_most is not None):
            raise ValueError("values are compared as texts or as numbers; write two rules")
        if self.at_least is not None and self.at_most is not None and self.at_least > self.at_most:
            raise ValueError("at_least is above at_most, so that nobody is left")
        return self


Rule = Annotated[Consent | Recency | Frequency | Bought | Listed | Attribute, Field(discriminator="rule")]


def days_of(rule: Rule) -> int | None:
    """How far back a rule looks; None where time does not matter."""
    return getattr(rule, "days", None)


def title_of(rule: Rule) -> str:
    """The rule in words, for the waterfall."""
    match rule:
        case Consent():
            title = f"consent: {rule.column}"
        case Recency():
            title = f"seen within {rule.days} days: {rule.column}"
        case Frequency():
            title = f"at most {rule.most} contacts in {rule.days} days, this one included"
        case Bought():
            where = ", ".join(rule.interests) or rule.table
            title = f"not bought yet{f' in {rule.days} days' if rule.days else ''}: {where}"
        case Listed():
            title = f"{'only' if rule.keep else 'without'} those listed in {rule.table}"
        case Attribute():
            title = f"{rule.column}: {_asked(rule)}"
    return title


def _asked(rule: Attribute) -> str:
    parts = [
        ", ".join(rule.among),
        f"not {', '.join(rule.not_among)}" if rule.not_among else "",
        f"at least {rule.at_least:g}" if rule.at_least is not None else "",
        f"at most {rule.at_most:g}" if rule.at_most is not None else "",
    ]
    return " and ".join(part for part in parts if part)
