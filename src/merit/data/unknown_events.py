"""Words in the event column that mean nothing to us yet: told together, with the one setting that explains them all."""

from __future__ import annotations

import json
from typing import get_args

import polars as pl

from merit.core.config import Frozen
from merit.core.types import Event
from merit.data.normalise import UNKNOWN_EVENT

SHOWN = 20  # a shop has few words of its own; thousands are those of another column
_BEFORE, _AFTER = UNKNOWN_EVENT.split("{}")


class UnknownEvents(Frozen):
    """What is told of such words, by `merit data check` and by the error that ends a run."""

    words: dict[str, int] = {}
    """With the rows that have them, the most frequent first; at most SHOWN."""
    more: int = 0
    """Further words."""


def word(problem: pl.Expr) -> pl.Expr:
    """The word of a row that is bad because of it; null for all other rows, and where words are hidden."""
    ours = problem.str.starts_with(_BEFORE) & problem.str.ends_with(_AFTER)
    return pl.when(ours).then(problem.str.strip_prefix(_BEFORE).str.strip_suffix(_AFTER))


def count(judged: pl.LazyFrame) -> pl.LazyFrame:
    """(word, rows), of interactions with their `problem`."""
    return judged.select(word=word(pl.col("problem"))).drop_nulls().group_by("word").agg(rows=pl.len())


def told(counted: pl.DataFrame) -> UnknownEvents:
    """From the table that `count` describes; among equally frequent words, by the alphabet."""
    first = counted.sort("rows", "word", descending=[True, False]).head(SHOWN)
    return UnknownEvents(words=dict(first.rows()), more=len(counted) - len(first))


def sentence(each: UnknownEvents) -> str:
    """All of them, and what to write."""
    named = ", ".join(f"'{word}' ({rows:,} row{'s' * (rows > 1)})" for word, rows in each.words.items())
    setting = ", ".join(f'{json.dumps(word, ensure_ascii=False)} = "…"' for word in each.words)
    others = f" and {each.more:,} more (is it the right column? --set source.columns.event=THEIRS)" if each.more else ""
    return (
        f"Events that are not known: {named}{others}. Say in [source] what each is ({', '.join(get_args(Event))}): "
        f"events = {{ {setting} }}, or on the command line --set source.events.WORD=EVENT for each."
    )
