"""Examples in labels: what each should find, what the user already had, and what was bought later."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any

import numpy as np
import polars as pl
from numpy.typing import NDArray
from scipy.sparse import csr_array

from merit.core.ragged import Ragged, column_lists, offsets_of, owners, ranges, select
from merit.core.types import Ints, Split
from merit.data.examples import DAY

BLOCK = 1 << 21  # events labelled at a time


@dataclass(frozen=True)
class LabelledExamples:
    """Examples of one split. The lists are beside each other, row by row."""

    gold: Ragged
    """In the order of the data."""
    target_items: Ragged
    """The items bought whose labels are gold."""
    history: Ragged
    """Different labels of the history, ascending."""
    counts: NDArray[np.int32]
    """Beside history.values: events with that label."""
    purchases: NDArray[np.int32]
    """Beside history.values: purchases among them."""
    later: Ragged
    """Labels of what the same user bought after the history ends: mined labels among them are early, not wrong."""
    items: Ragged
    """The items of the history, the one nearest to the purchase last: oldest first, of a reversed history newest."""
    days: NDArray[np.int32]
    """Beside items.values: between the event and the purchase."""
    when: Ints
    """The time of the purchase that is to be predicted, in milliseconds."""
    user_ids: Sequence[str]
    bought: NDArray[np.bool_] | None = field(default=None, kw_only=True)
    """Beside items.values: whether the event is a purchase; None where that was not kept."""

    def __len__(self) -> int:
        return len(self.gold)


def label_examples(
    users: pl.DataFrame, events: pl.DataFrame, examples: pl.DataFrame, split: Split, item_labels: Ragged
) -> LabelledExamples:
    """The examples of a split in one shard. Those whose labels are all blocked or retired are left out."""
    chosen = examples.filter(pl.col("split") == split)
    return label_histories(users, events, chosen.filter(_gold(chosen, item_labels).lengths() > 0), item_labels)


def label_histories(
    users: pl.DataFrame, events: pl.DataFrame, examples: pl.DataFrame, item_labels: Ragged
) -> LabelledExamples:
    """All rows of one shard, with or without a target; where there is none, gold is empty."""
    items, bought = events["item"].to_numpy().astype(np.int32), (events["event"] == "purchase").to_numpy()
    start, stop = (examples[name].to_numpy().astype(np.int64) for name in ("history_start", "history_stop"))
    ends = np.searchsorted(events["user"].to_numpy(), np.arange(len(users)), side="right")[examples["user"].to_numpy()]
    times = events["timestamp"].to_physical().to_numpy()
    when = examples["timestamp"].to_physical().to_numpy().astype(np.int64)
    before = offsets_of(bought)  # purchases before every event
    targets = column_lists(examples["target_items"])
    history, sums = _summed(items, 1 + (bought.astype(np.int64) << 32), start, stop, item_labels)
    purchased = items[bought]
    later, _ = _summed(purchased, np.ones(len(purchased), np.int64), before[stop], before[ends], item_labels)
    places, sizes = ranges(start, stop)
    return LabelledExamples(
        gold=_gold(examples, item_labels),
        target_items=select(targets, item_labels.lengths()[targets.values] > 0),
        history=history,
        counts=(sums & 0xFFFFFFFF).astype(np.int32),
        purchases=(sums >> 32).astype(np.int32),
        later=later,
        items=Ragged(offsets_of(sizes), items[places]),
        days=(np.abs(np.repeat(when, sizes) - times[places]) // DAY).astype(np.int32),
        when=when,
        user_ids=users["user_id"].gather(examples["user"]).to_list(),
        bought=bought[places],
    )


def incidence(item_labels: Ragged, labels: int) -> csr_array:
    """(items, labels), sparse: 1 where the item carries the label."""
    ones = np.ones(len(item_labels.values), np.int64)
    return csr_array((ones, item_labels.values, item_labels.offsets), shape=(len(item_labels), labels))


def _gold(examples: pl.DataFrame, item_labels: Ragged) -> Ragged:
    """The labels of each target, each once, in the order of their first appearance."""
    targets = column_lists(examples["target_items"])
    labels, sizes = item_labels.take(targets.values)
    owner = np.repeat(owners(targets), sizes)
    _, first = np.unique(owner * (1 + int(labels.max(initial=0))) + labels, return_index=True)
    first = np.sort(first)
    return Ragged(offsets_of(np.bincount(owner[first], minlength=len(targets))), labels[first])


def _summed(items: NDArray[np.int32], values: Ints, start: Ints, stop: Ints, labels: Ragged) -> tuple[Ragged, Ints]:
    """By row, the different labels of the items from start to stop, and beside them the sum of the items' values."""
    carried = incidence(labels, 1 + int(labels.values.max(initial=0)))
    parts: list[Any] = []
    for rows in _blocks(stop - start):
        places, sizes = ranges(start[rows], stop[rows])
        shape = (len(sizes), len(labels))
        part = csr_array((values[places], items[places], offsets_of(sizes)), shape=shape) @ carried
        part.sort_indices()
        parts.append(part)
    sizes = np.concatenate([np.zeros(0, np.int64), *(np.diff(part.indptr) for part in parts)])
    flat = np.concatenate([np.zeros(0, np.int32), *(part.indices for part in parts)]).astype(np.int32)
    return Ragged(offsets_of(sizes), flat), np.concatenate([np.zeros(0, np.int64), *(part.data for part in parts)])


def _blocks(sizes: Ints) -> list[slice]:
    """Rows one after the other, in blocks of about as many events."""
    cuts = np.flatnonzero(np.diff(np.cumsum(sizes) // BLOCK, prepend=0))
    edges = np.unique(np.concatenate([[0], cuts, [len(sizes)]]))
    return [slice(low, high) for low, high in pairwise(edges)]
