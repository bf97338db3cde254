"""Examples in labels: what each should find, what the user already had, and what was bought later."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import polars as pl
from numpy.typing import NDArray

from merit.core.errors import DataError
from merit.core.ragged import Ragged, offsets_of
from merit.core.types import Split


@dataclass(frozen=True)
class Labelled:
    """Examples of one split. The lists are beside each other, row by row."""

    gold: Ragged
    """In the order of the data."""
    history: Ragged
    """Different labels of the history."""
    counts: NDArray[np.int32]
    """Beside history.values: events with that label."""
    purchases: NDArray[np.int32]
    """Beside history.values: purchases among them."""
    later: Ragged
    """Labels of what the same user bought after the history ends: mined labels among them are early, not wrong."""
    items: Ragged
    """The items of the history, oldest first."""
    when: NDArray[np.int64]
    """The time of the purchase that is foreseen, in milliseconds."""
    user_ids: Sequence[str]

    def __len__(self) -> int:
        return len(self.gold)


def label_examples(
    users: pl.DataFrame, events: pl.DataFrame, examples: pl.DataFrame, split: Split, item_labels: Ragged
) -> Labelled:
    """The examples of a split in one shard. Those whose labels are all blocked or retired are left out."""
    rows = _rows(users, events, examples.filter(pl.col("split") == split), item_labels)
    return _gathered([row for row in rows if len(row[0])])


def label_histories(
    users: pl.DataFrame, events: pl.DataFrame, histories: pl.DataFrame, item_labels: Ragged
) -> Labelled:
    """Histories of one shard without a target: gold is empty."""
    return _gathered(list(_rows(users, events, histories, item_labels)))


def joined(parts: Iterable[Labelled]) -> Labelled:
    """Shards one after the other."""
    all_ = [part for part in parts if len(part)]
    if not all_:
        raise DataError("No example is left: the labels of every target are blocked or retired in this label space.")
    return Labelled(
        gold=_stacked([part.gold for part in all_]),
        history=_stacked([part.history for part in all_]),
        counts=np.concatenate([part.counts for part in all_]),
        purchases=np.concatenate([part.purchases for part in all_]),
        later=_stacked([part.later for part in all_]),
        items=_stacked([part.items for part in all_]),
        when=np.concatenate([part.when for part in all_]),
        user_ids=[name for part in all_ for name in part.user_ids],
    )


def _rows(
    users: pl.DataFrame, events: pl.DataFrame, examples: pl.DataFrame, item_labels: Ragged
) -> Iterator[tuple[Any, ...]]:
    item, user = events["item"].to_numpy(), events["user"].to_numpy()
    bought = (events["event"] == "purchase").to_numpy()
    ends = np.searchsorted(user, np.arange(len(users)), side="right")
    names = users["user_id"].to_list()
    for row in examples.with_columns(pl.col("timestamp").to_physical()).iter_rows(named=True):
        gold = _ordered(item_labels.take(np.array(row["target_items"], dtype=np.int64))[0])
        seen = slice(row["history_start"], row["history_stop"])
        after = slice(row["history_stop"], int(ends[row["user"]]))
        own, counts, purchases = _label_counts(item[seen], bought[seen], item_labels)
        later = np.unique(item_labels.take(item[after][bought[after]])[0])
        yield gold, own, counts, purchases, later, item[seen], row["timestamp"], names[row["user"]]


def _ordered(labels: NDArray[np.int32]) -> NDArray[np.int32]:
    """Each label once, in the order of its first appearance."""
    _, first = np.unique(labels, return_index=True)
    return labels[np.sort(first)]


def _label_counts(
    items: NDArray[np.uint32], bought: NDArray[np.bool_], labels: Ragged
) -> tuple[NDArray[np.int32], NDArray[np.int32], NDArray[np.int32]]:
    """The different labels of a history, with events and purchases of each."""
    flat, sizes = labels.take(items)
    own, place, counts = np.unique(flat, return_inverse=True, return_counts=True)
    purchases = np.bincount(place, weights=np.repeat(bought, sizes), minlength=len(own))
    return own, counts.astype(np.int32), purchases.astype(np.int32)


def _gathered(rows: list[tuple[Any, ...]]) -> Labelled:
    gold, history, counts, purchases, later, items, when, names = zip(*rows, strict=True) if rows else [()] * 8
    return Labelled(
        gold=_ragged(gold),
        history=_ragged(history),
        counts=_ragged(counts).values,
        purchases=_ragged(purchases).values,
        later=_ragged(later),
        items=_ragged(items),
        when=np.array(when, dtype=np.int64),
        user_ids=list(names),
    )


def _ragged(rows: Sequence[NDArray[Any]]) -> Ragged:
    sizes = np.array([len(row) for row in rows], dtype=np.int64)
    values = np.concatenate(rows) if rows else np.zeros(0)
    return Ragged(offsets_of(sizes), values.astype(np.int32))


def _stacked(parts: Sequence[Ragged]) -> Ragged:
    sizes = np.concatenate([part.lengths() for part in parts])
    return Ragged(offsets_of(sizes), np.concatenate([part.values for part in parts]))
