"""A run at the end of its log, as it is now: histories of all users, and how popular labels and items are."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import polars as pl
from numpy.typing import NDArray
from scipy.sparse import coo_array

from merit.core import console
from merit.core.ragged import Ragged, list_column
from merit.core.types import SPLITS, Ints
from merit.data.corpus import item_weeks, label_trends
from merit.data.examples import current_histories
from merit.data.labelled import incidence, label_histories
from merit.data.trends import ItemTrends, week_of
from merit.labels import space
from merit.refresh.events import NewEvents
from merit.refresh.known import KnownRun, KnownShard
from merit.refresh.seen import Purchases, SeenEvents

Entries = tuple[Ints, Ints, NDArray[np.float64]]  # rows, columns and values of a sparse matrix


@dataclass(frozen=True)
class Moved:
    """Histories and popularity at the end of the log."""

    last: int
    """The time of its last event, in milliseconds."""
    users: pl.DataFrame
    """user_id, history, counts, items, days: all with enough history."""
    item_labels: Ragged
    sold: Ints
    """By item: events of training users."""
    trends: NDArray[np.float16]  # (labels,)
    item_trends: NDArray[np.float16]  # (1, items, windows)
    seen: SeenEvents


def move(known: KnownRun, new: NewEvents) -> Moved:
    """The run with its new events, in one pass over its shards."""
    label_space = space.load(known.labels.path)
    item_labels = Ragged(*space.item_labels(label_space, new.items))
    last, first = max(known.last, new.newest), int(known.corpus.manifest.summary["first"])
    purchases = Purchases(known, last, item_labels)
    users, weeks = [], [_stored_weeks(known)]
    total = int(known.examples.manifest.summary["shards"])
    for shard in console.track(known.shards(new.events), "reading histories", total=total):
        users.append(_histories(shard, last, known, item_labels))
        weeks.append(_weeks(shard, first))
        purchases.add(shard)
    rows, items, counts = (np.concatenate(arrays) for arrays in zip(*weeks, strict=True))
    shape = (1 + int(week_of(np.array([last]), first)[0]), len(new.items))
    weekly, week = coo_array((counts, (rows, items)), shape=shape).tocsr(), int(week_of(np.array([last + 1]), first)[0])
    trends = [block[week] for _, block in label_trends(weekly, incidence(item_labels, len(label_space)))]
    sold = pl.read_parquet(known.examples.file("item_counts.parquet"))["count"].to_numpy().astype(np.int64)
    sold = np.pad(sold, (0, len(new.items) - len(sold)))
    sold += np.bincount(np.concatenate([part[1] for part in weeks[1:]]), minlength=len(sold))
    item_trends = ItemTrends.of_week(weekly, week).table
    return Moved(last, pl.concat(users), item_labels, sold, np.concatenate(trends), item_trends, purchases.seen())


def _histories(shard: KnownShard, last: int, known: KnownRun, item_labels: Ragged) -> pl.DataFrame:
    present = current_histories(shard.events, shard.users, last + 1, known.config)
    rows = label_histories(shard.users, shard.events, present, item_labels)
    lists = {"history": rows.history, "counts": Ragged(rows.history.offsets, rows.counts)}
    lists |= {"items": rows.items, "days": Ragged(rows.items.offsets, rows.days)}
    columns = {name: list_column(part.values.astype(np.uint32), part.lengths()) for name, part in lists.items()}
    if rows.bought is not None:
        columns["bought"] = list_column(rows.bought, rows.items.lengths())
    return pl.DataFrame({"user_id": pl.Series(rows.user_ids, dtype=pl.String), **columns})


def _stored_weeks(known: KnownRun) -> Entries:
    entries: Any = item_weeks(known.corpus).tocoo()
    return entries.row.astype(np.int64), entries.col.astype(np.int64), entries.data


def _weeks(shard: KnownShard, first: int) -> Entries:
    """Week, item and a one for each event of a training user since the training."""
    training = (shard.users["split"] == SPLITS[0]).to_numpy()[shard.added["user"].to_numpy()]
    times, items = (shard.added[name].to_physical().to_numpy()[training] for name in ("timestamp", "item"))
    rows: Ints = week_of(times, first).astype(np.int64)
    return rows, items.astype(np.int64), np.ones(len(items))
