"""The users that a model knows, all of them or some: who they are, what they had, and who may be told of."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import polars as pl
from numpy.typing import NDArray

from merit.core.ragged import Ragged, column_lists
from merit.core.types import Ints
from merit.retrieval.names import Names


class Visible(NamedTuple):
    """The users who may be told of: all but those who are being erased."""

    users: pl.DataFrame
    rows: Ints
    """Where they are among the stored ones."""
    hidden: frozenset[str] = frozenset()


@dataclass(frozen=True)
class People:
    """Users as a table, and what is asked of it again and again in faster forms."""

    table: pl.DataFrame
    """user_id, history, counts, items: a row for each."""
    names: Names
    had: Ragged
    """By user: the labels of the history."""
    times: NDArray[Any]
    """Beside the values of `had`: how often."""

    @staticmethod
    def of(table: pl.DataFrame) -> People:
        """From a model's users.parquet, or from some rows of it."""
        had, times = (column_lists(table[name]) for name in ("history", "counts"))
        return People(table, Names.of(table["user_id"]), had, times.values)

    def __len__(self) -> int:
        return len(self.table)

    @cached_property
    def bought(self) -> Ragged:
        """By user: the items of the history."""
        return column_lists(self.table["items"])

    def without(self, hidden: frozenset[str]) -> Visible:
        """All but these."""
        rows = np.flatnonzero(~self.table["user_id"].is_in(list(hidden)).to_numpy())
        return Visible(self.table[rows] if hidden else self.table, rows, hidden)


def sold(users: Path, items: int) -> NDArray[np.float64]:
    """By item: how often all users of a table on disk have it. Nobody's history stays in memory."""
    found = pl.scan_parquet(users).select(pl.col("items").explode(empty_as_null=False)).group_by("items").len()
    counts = found.collect(engine="streaming").drop_nulls()
    times = np.zeros(items)
    times[counts["items"].to_numpy()] = counts["len"].to_numpy()
    return times
