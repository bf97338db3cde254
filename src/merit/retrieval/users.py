"""The users of a model, all or some: their ids and histories, who is visible, and what a group over-indexes in."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import polars as pl
from numpy.typing import NDArray

from merit.core.errors import DataError
from merit.core.ids import IdIndex
from merit.core.ragged import Ragged, column_arrays, column_lists
from merit.core.types import Ints
from merit.propensity.features import LikelyLabels

ENOUGH = 20  # users with a label in the history, below which its index is chance


class VisibleUsers(NamedTuple):
    """All users but those who are being erased."""

    users: pl.DataFrame
    rows: Ints
    """Their rows among the stored users."""
    hidden: frozenset[str] = frozenset()


@dataclass(frozen=True)
class StoredUsers:
    """The users of a model as a table, with an index of ids and histories as arrays."""

    table: pl.DataFrame
    """user_id, history, counts, items, days, likely, likely_scores: a row for each user."""
    index: IdIndex
    history: Ragged
    """By user: the labels of the history."""
    times: NDArray[Any]
    """Beside history.values: how often."""
    labels: int
    """In the label space."""

    @staticmethod
    def of(table: pl.DataFrame, labels: int) -> StoredUsers:
        """From a model's users.parquet, or from some rows of it."""
        history, times = (column_lists(table[name]) for name in ("history", "counts"))
        return StoredUsers(table, IdIndex.of(table["user_id"]), history, times.values, labels)

    def __len__(self) -> int:
        return len(self.table)

    @cached_property
    def likely(self) -> LikelyLabels:
        """By user: labels that the generator finds likely, and what that adds to their scores."""
        _, values = column_arrays(self.table["likely_scores"])
        return LikelyLabels(column_lists(self.table["likely"]), values.astype(np.float32))

    @cached_property
    def items(self) -> Ragged:
        """By user: the items of the history."""
        return column_lists(self.table["items"])

    @cached_property
    def days(self) -> Ragged:
        """By user: the days from each item of the history to the end of the data."""
        return column_lists(self.table["days"])

    def without(self, hidden: frozenset[str]) -> VisibleUsers:
        """All users but the hidden ones."""
        if not hidden:
            return VisibleUsers(self.table, np.arange(len(self.table)))
        rows = np.flatnonzero(~self.table["user_id"].is_in(list(hidden)).to_numpy())
        return VisibleUsers(self.table[rows], rows, hidden)

    def over_indexed(self, rows: Ints, live: NDArray[np.bool_], k: int, at_least: int) -> pl.DataFrame:
        """Up to k live labels that these distinct users have more often than all, the highest index first.

        label, share (of these users), base (share of all users) and index, their ratio. Labels that fewer than
        `at_least` of these users have are left out.
        """
        counts = self._owners_among(rows)
        share = counts / max(1, len(rows))
        base = self.owners / len(self.history)
        enough = live & (self.owners >= ENOUGH) & (counts >= at_least)
        index = np.where(enough, share / np.maximum(base, 1e-12), 0)
        best = np.lexsort((np.arange(len(index)), -index))[:k]
        best = best[index[best] > 1]
        return pl.DataFrame({"label": best, "share": share[best], "base": base[best], "index": index[best]})

    @cached_property
    def owners(self) -> Ints:
        """By label: how many users have it."""
        return np.bincount(self.history.values, minlength=self.labels)

    def _owners_among(self, rows: Ints) -> Ints:
        """By label: how many of these users have it. Where they are most of all, the others are counted."""
        most = 2 * len(rows) > len(self.history)
        counted = np.delete(np.arange(len(self.history)), rows) if most else rows
        counts = np.bincount(self.history.take(counted)[0], minlength=self.labels)
        return self.owners - counts if most else counts


def sales(users: Path, items: int) -> NDArray[np.float64]:
    """By item: how often all users of a table on disk have it. No history stays in memory."""
    exploded = pl.scan_parquet(users).select(pl.col("items").explode(empty_as_null=False)).group_by("items").len()
    counts = exploded.collect(engine="streaming").drop_nulls()
    times = np.zeros(items)
    times[counts["items"].to_numpy()] = counts["len"].to_numpy()
    return times


def texts_of(values: Any, what: str) -> list[str]:
    """A text, or any column of texts, as a list; `what` they are is for the message."""
    if isinstance(values, str):
        return [values]
    if hasattr(values, "to_list"):  # pandas and polars
        values = values.to_list()
    elif hasattr(values, "tolist"):  # numpy
        values = values.tolist()
    if not isinstance(values, Iterable):
        raise DataError(f"Give {what} as a text or as a list of texts, not as {type(values).__name__}.")
    texts = [str(value) for value in values]
    if not texts:
        raise DataError(f"The list of {what} is empty.")
    return texts
