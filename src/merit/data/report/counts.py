"""Counting a prepared data set, shard by shard of users; the counts of disjoint users add up.

No loop over examples or events: tags are gathered as ragged arrays, and "was this label in that history?" is one
binary search per gold label in the sorted (label, event row) pairs, however long the history.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime
from typing import Any

import numpy as np
import polars as pl
from numpy.typing import NDArray

from merit.core.types import Ints

ItemLabels = tuple[NDArray[np.int64], NDArray[np.int32]]
"""Labels of items as rows of a sparse table: offsets (items + 1,), label ids."""

CANDIDATES = 60  # examples of a shard that may be shown in words
SHOWN = 8  # last items of a history that may be shown


@dataclass(frozen=True)
class ShardCounts:
    """Counts of one shard, or of several that were merged; users and items are numbers here."""

    span: tuple[datetime, datetime] | None
    users: pl.DataFrame  # user, events
    examples: pl.DataFrame  # user, split, history, gold, repeated
    gaps: pl.DataFrame  # user, days from one day with a purchase to the next
    types: pl.DataFrame  # event, events, users
    weeks: pl.DataFrame  # week, events, users
    verticals: pl.DataFrame  # vertical, events, users
    label_events: Ints  # (labels,)
    label_users: Ints  # (labels,)
    label_gold: Ints  # (labels,)
    item_users: Ints  # (items,)
    prompts: pl.DataFrame  # history, target: lists of items


def count_shard(
    events: pl.DataFrame, examples: pl.DataFrame, items: pl.DataFrame, item_labels: ItemLabels, n_labels: int
) -> ShardCounts:
    """Count one shard. `history_start` and `history_stop` are rows of this shard's events."""
    pairs = _label_rows(events, item_labels)
    label_events, label_users = _label_counts(pairs, events, n_labels)
    example, gold = _gold(examples, item_labels, n_labels)
    repeated = _in_history(pairs, len(events), examples, example, gold)
    vertical = (
        events.select("user", "item").join(items.select("item", "vertical"), on="item").select("user", "vertical")
    )
    return ShardCounts(
        span=(events["timestamp"].min(), events["timestamp"].max()) if len(events) else None,  # type: ignore[arg-type]
        users=events.group_by("user", maintain_order=True).agg(events=pl.len()),
        examples=_example_table(examples, example, repeated),
        gaps=_gaps(events),
        types=_counted(events.select("user", pl.col("event").cast(pl.String)), "event"),
        weeks=_counted(events.select("user", week=pl.col("timestamp").dt.truncate("1w")), "week"),
        verticals=_counted(vertical, "vertical"),
        label_events=label_events,
        label_users=label_users,
        label_gold=np.bincount(gold, minlength=n_labels),
        item_users=_item_users(events, len(item_labels[0]) - 1),
        prompts=_candidates(events, examples),
    )


def merge(tallies: Iterable[ShardCounts]) -> ShardCounts:
    """Add up shards. No user may be in two of them."""
    parts = list(tallies)
    spans = [part.span for part in parts if part.span]
    joined: dict[str, Any] = {name: pl.concat([getattr(part, name) for part in parts]) for name in _LISTED}
    added: dict[str, Any] = {name: _added([getattr(part, name) for part in parts]) for name in _COUNTED}
    summed: dict[str, Any] = {name: np.sum([getattr(part, name) for part in parts], axis=0) for name in _ARRAYS}
    span = (min(span[0] for span in spans), max(span[1] for span in spans)) if spans else None
    return ShardCounts(span=span, **joined, **added, **summed)


_LISTED = ("users", "examples", "gaps", "prompts")
_COUNTED = ("types", "weeks", "verticals")
_ARRAYS = ("label_events", "label_users", "label_gold", "item_users")


def labels_of(items: NDArray[np.integer[Any]], item_labels: ItemLabels) -> tuple[Ints, Ints]:
    """Ragged gather: (position in `items`, label) for every label of every item."""
    offsets, ids = item_labels
    sizes = np.diff(offsets)[items]
    owner = np.repeat(np.arange(len(items)), sizes)
    within = np.arange(len(owner)) - np.repeat(np.cumsum(sizes) - sizes, sizes)
    return owner, ids[offsets[items][owner] + within].astype(np.int64)


def _label_rows(events: pl.DataFrame, item_labels: ItemLabels) -> Ints:
    """label · rows + row of every label of every event, sorted: a label's rows, and in them a user's, are together."""
    row, label = labels_of(events["item"].to_numpy(), item_labels)
    pairs: Ints = label * len(events) + row
    pairs.sort()
    return pairs


def _label_counts(pairs: Ints, events: pl.DataFrame, n_labels: int) -> tuple[Ints, Ints]:
    """Events and different users of each label. Events are sorted by user, so a user's rows are neighbours."""
    label, row = np.divmod(pairs, max(len(events), 1))
    user = events["user"].to_numpy()[row]
    first = np.ones(len(pairs), dtype=bool)
    first[1:] = (label[1:] != label[:-1]) | (user[1:] != user[:-1])
    return np.bincount(label, minlength=n_labels), np.bincount(label[first], minlength=n_labels)


def _gold(examples: pl.DataFrame, item_labels: ItemLabels, n_labels: int) -> tuple[Ints, Ints]:
    """(example, label) for every different label of an example's targets."""
    targets = examples["target_items"]
    items = targets.explode(empty_as_null=False).to_numpy()
    example = np.repeat(np.arange(len(examples)), targets.list.len().to_numpy())
    owner, label = labels_of(items, item_labels)
    pairs: tuple[Ints, Ints] = np.divmod(np.unique(example[owner] * n_labels + label), n_labels)
    return pairs


def _in_history(pairs: Ints, rows: int, examples: pl.DataFrame, example: Ints, label: Ints) -> Ints:
    """The examples (one entry each time) whose history holds that gold label."""
    start, stop = (examples[f"history_{end}"].to_numpy().astype(np.int64)[example] for end in ("start", "stop"))
    place = np.searchsorted(pairs, label * rows + start)
    there = np.append(pairs, np.iinfo(np.int64).max)[place] < label * rows + stop
    return example[there]


def _example_table(examples: pl.DataFrame, example: Ints, repeated: Ints) -> pl.DataFrame:
    return examples.select(
        "user",
        "split",
        history=(pl.col("history_stop") - pl.col("history_start")).cast(pl.Int64),
        gold=pl.lit(pl.Series(np.bincount(example, minlength=len(examples)))),
        repeated=pl.lit(pl.Series(np.bincount(repeated, minlength=len(examples)))),
    )


def _gaps(events: pl.DataFrame) -> pl.DataFrame:
    """Whole days between neighbouring days with a purchase; several purchases of a day are one visit to the shop."""
    bought = events.filter(pl.col("event") == "purchase").select("user", day=pl.col("timestamp").dt.date())
    days = bought.unique(maintain_order=True).with_columns(days=pl.col("day").diff().dt.total_days())
    return days.filter(pl.col("user") == pl.col("user").shift()).select("user", "days")


def _counted(frame: pl.DataFrame, key: str) -> pl.DataFrame:
    return (
        frame.group_by(key)
        .agg(events=pl.len().cast(pl.Int64), users=pl.col("user").n_unique().cast(pl.Int64))
        .sort(key)
    )


def _added(frames: list[pl.DataFrame]) -> pl.DataFrame:
    key = frames[0].columns[0]
    return pl.concat(frames).group_by(key).agg(pl.col("events", "users").sum()).sort(key)


def _item_users(events: pl.DataFrame, n_items: int) -> Ints:
    per_item = events.group_by("item").agg(pl.col("user").n_unique())
    users = np.zeros(n_items, dtype=np.int64)
    users[per_item["item"].to_numpy()] = per_item["user"].to_numpy()
    return users


def _candidates(events: pl.DataFrame, examples: pl.DataFrame) -> pl.DataFrame:
    """Some examples spread over the shard, one a user, with the last items of their history."""
    usable = examples.filter(pl.col("history_stop") >= pl.col("history_start") + 3).unique("user", maintain_order=True)
    chosen = usable.gather_every(max(1, len(usable) // CANDIDATES)).head(CANDIDATES)
    start = pl.max_horizontal("history_start", pl.col("history_stop").cast(pl.Int64) - 4 * SHOWN).cast(pl.Int64)
    ranges = chosen.select(start, stop="history_stop", target="target_items").iter_rows()
    rows = [(_recent(events["item"][first:stop]), target) for first, stop, target in ranges]
    return pl.DataFrame(rows, schema={"history": pl.List(pl.Int64), "target": pl.List(pl.Int64)}, orient="row")


def _recent(items: pl.Series) -> list[int]:
    """The last different items: looking, clicking and buying is one thing to a reader."""
    return items.reverse().unique(maintain_order=True).head(SHOWN).reverse().to_list()
