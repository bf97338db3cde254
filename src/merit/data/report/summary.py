"""The figures of a prepared data set: counted shard by shard of users, added up, put into bins, shares and words.

    counts = add_up(count_events(events, items) for every shard)
    summary = summarise(span, counts, …)

Events are labelled by the corpus alone: what examples and labels are about is read from its tables.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime

import numpy as np
import polars as pl

from merit.core.ragged import Ragged
from merit.core.types import Ints
from merit.report.page import SMALLEST_CELL

CANDIDATES = 180  # examples that may be shown in words
SHOWN = 8  # last items of a history that may be shown
EVENT_EDGES = (1, 2, 5, 10, 20, 50, 100, 200, 500, 1000, 2000)
HISTORY_EDGES = (0, 1, 5, 10, 20, 50, 100, 200, 500, 1000)
GOLD_EDGES = (0, 1, 2, 3, 4, 5, 6, 8, 11, 16, 21)
GAP_EDGES = (1, 2, 4, 8, 15, 31, 61, 91, 181)


@dataclass(frozen=True)
class DataSummary:
    """All that the data report shows; the columns of each table stand beside it."""

    users: int
    items: int
    labels: int
    events: int
    examples: int
    example_users: int
    span: tuple[datetime, datetime]
    types: pl.DataFrame  # event, events, users
    splits: pl.DataFrame  # split, examples, users
    typical: pl.DataFrame  # measure, median, mean, 90th percentile, users
    events_per_user: pl.DataFrame  # bin, users, rows
    history_length: pl.DataFrame  # bin, users, rows, gold, repeated
    gold_labels: pl.DataFrame  # bin, users, rows
    gaps: pl.DataFrame  # bin, users, rows
    weeks: pl.DataFrame  # week, events, users
    rank_frequency: pl.DataFrame  # rank, events
    rare_share: float  # of labels, seen in fewer than five events
    top_gold_share: float  # of gold, held by the 1 % of labels that are most often gold
    repeat_share: float  # of gold, already in the user's history
    top_labels: pl.DataFrame  # label, vertical, events, gold, users
    verticals: pl.DataFrame  # vertical, events, share, users
    prompts: pl.DataFrame  # history, gold: texts of three examples. What fewer than 50 users touched is not named


# --- counts ----------------------------------------------------------------------------------------------------------


def count_events(events: pl.DataFrame, items: pl.DataFrame) -> dict[str, pl.DataFrame]:
    """Of one shard: events and users by event, week, vertical and item; and each user's events and gaps in days."""
    rows = events.select(
        *("user", "item", pl.col("event").cast(pl.String), pl.col("timestamp").dt.truncate("1w").alias("week")),
        vertical=items["vertical"].gather(events["item"]),
    )
    users = pl.col("user").n_unique().cast(pl.Int64)
    keys = ("event", "week", "vertical", "item")
    counts = {
        key: rows.group_by(key).agg(pl.len().cast(pl.Int64).alias("events"), users.alias("users")) for key in keys
    }
    return counts | {"user": rows.group_by("user", maintain_order=True).agg(events=pl.len()), "gap": _gaps(events)}


def add_up(shards: Iterable[Mapping[str, pl.DataFrame]]) -> dict[str, pl.DataFrame]:
    """The sum of the counts of shards. No user may be in two of them."""
    parts = list(shards)
    tables = {key: pl.concat([part[key] for part in parts]) for key in parts[0]}
    sums = pl.col("events", "users").sum()
    return {
        key: table.group_by(key).agg(sums).sort(key) if "users" in table.columns else table
        for key, table in tables.items()
    }


def _gaps(events: pl.DataFrame) -> pl.DataFrame:
    """Whole days between neighbouring days with a purchase; several purchases of a day are one visit to the shop."""
    bought = events.filter(pl.col("event") == "purchase").select("user", day=pl.col("timestamp").dt.date())
    days = bought.unique(maintain_order=True).with_columns(days=pl.col("day").diff().dt.total_days())
    return days.filter(pl.col("user") == pl.col("user").shift()).select("user", "days")


# --- bins, shares and words ------------------------------------------------------------------------------------------


def summarise(
    span: tuple[datetime, datetime],
    counts: Mapping[str, pl.DataFrame],
    label_counts: pl.DataFrame,
    examples: pl.LazyFrame,
    items: pl.DataFrame,
    item_labels: Ragged,
    labels: pl.DataFrame,
) -> DataSummary:
    """All figures of the report. `label_counts` (events, users) and `examples` (split, and its rows) as in a corpus."""
    lengths = examples.select(
        *("split", pl.col("user_id").alias("user"), pl.col("items").list.len().alias("history")),
        gold=pl.col("gold").list.len(),
        repeated=pl.col("gold").list.set_intersection("history").list.len(),
    )
    sizes = lengths.cast({pl.UInt32: pl.Int64}).collect(engine="streaming")
    golden = examples.select(pl.col("gold").explode()).group_by("gold").len().drop_nulls().collect(engine="streaming")
    gold = np.bincount(golden["gold"], golden["len"], minlength=len(labels)).astype(np.int64)
    users = counts["user"]
    splits = sizes.group_by("split").agg(examples=pl.len(), users=pl.col("user").n_unique())
    shares = counts["vertical"].with_columns(share=pl.col("events") / pl.col("events").sum())
    events, label_users = (label_counts[name].to_numpy() for name in ("events", "users"))
    measures = {
        "events per user": users.select("user", "events"),
        "history events per example": sizes.select("user", "history"),
        "gold labels per example": sizes.select("user", "gold"),
        "days between purchases": counts["gap"],
    }
    return DataSummary(
        users=len(users),
        items=len(items),
        labels=len(labels),
        events=int(users["events"].sum()),
        examples=len(sizes),
        example_users=sizes["user"].n_unique(),
        span=span,
        types=counts["event"].sort("events", descending=True),
        splits=splits.sort("examples", "split", descending=[True, False]),
        typical=pl.concat(_typical(name, frame) for name, frame in measures.items()),
        events_per_user=binned(users, "events", EVENT_EDGES),
        history_length=binned(sizes, "history", HISTORY_EDGES, ("gold", "repeated")),
        gold_labels=binned(sizes, "gold", GOLD_EDGES),
        gaps=binned(counts["gap"], "days", GAP_EDGES),
        weeks=counts["week"],
        rank_frequency=_rank_frequency(events),
        rare_share=float((events < 5).mean()) if len(labels) else 0.0,
        top_gold_share=float(np.sort(gold)[::-1][: max(1, len(gold) // 100)].sum() / max(1, gold.sum())),
        repeat_share=int(sizes["repeated"].sum()) / max(1, int(sizes["gold"].sum())),
        top_labels=labels.sort("id")
        .select(label="text", vertical="vertical", events=events, gold=gold, users=label_users)
        .sort("events", descending=True, maintain_order=True)
        .head(20),
        verticals=shares.sort("events", descending=True),
        prompts=_prompts(
            examples.gather_every(max(1, len(sizes) // CANDIDATES)),
            counts["item"],
            label_users,
            items,
            item_labels,
            labels,
        ),
    )


def binned(frame: pl.DataFrame, value: str, edges: Sequence[int], sums: Sequence[str] = ()) -> pl.DataFrame:
    """Rows by bins of `value`. A bin of too few users joins its neighbour, so that the shape of the tail is kept."""
    place = np.searchsorted(edges, frame[value].to_numpy(), side="right") - 1
    groups = _pooled(frame.select("user", pl.Series("place", place, dtype=pl.Int64)).unique())
    names = [_bin_name(edges, low, high) for low, high in groups]
    bins = pl.Series("bin", names, dtype=pl.Enum(names)).gather(np.searchsorted([high for _, high in groups], place))
    counts = (pl.col("user").n_unique().alias("users"), pl.len().alias("rows"), *(pl.col(name).sum() for name in sums))
    return frame.with_columns(bins).group_by("bin").agg(*counts).sort("bin").cast({"bin": pl.String})


def _pooled(pairs: pl.DataFrame) -> list[tuple[int, int]]:
    """Neighbouring bins as (first, last), joined until each group holds enough different users."""
    places = pairs["place"].unique().sort().to_list()
    groups: list[tuple[int, int]] = []
    low = places[0] if places else 0
    for high in places:
        if pairs.filter(pl.col("place").is_between(low, high))["user"].n_unique() >= SMALLEST_CELL:
            groups.append((low, high))
            low = high + 1
    if places and low <= places[-1]:  # the rest of the tail is too small to stand alone
        first = groups.pop()[0] if groups else low
        groups.append((first, places[-1]))
    return groups


def _bin_name(edges: Sequence[int], low: int, high: int) -> str:
    if high + 1 >= len(edges):
        return f"{edges[low]:,}+"
    last = edges[high + 1] - 1
    return f"{last:,}" if last == edges[low] else f"{edges[low]:,}–{last:,}"


def _typical(measure: str, frame: pl.DataFrame) -> pl.DataFrame:
    value = pl.nth(1).cast(pl.Float64)
    return frame.select(
        pl.lit(measure).alias("measure"),
        *(value.median().alias("median"), value.mean().alias("mean"), value.quantile(0.9).alias("90th percentile")),
        pl.col("user").n_unique().cast(pl.Int64).alias("users"),
    )


def _rank_frequency(events: Ints) -> pl.DataFrame:
    """Mean events of the labels around some ranks, spread evenly on a logarithmic axis; unseen labels have no rank."""
    counts = np.sort(events[events > 0])[::-1]
    if not len(counts):
        return pl.DataFrame(schema={"rank": pl.Float64, "events": pl.Float64})
    starts = np.unique(np.geomspace(1, len(counts), 80).astype(np.int64)) - 1
    sizes = np.diff(np.append(starts, len(counts)))
    return pl.DataFrame({"rank": starts + (sizes + 1) / 2, "events": np.add.reduceat(counts, starts) / sizes})


def _prompts(
    examples: pl.LazyFrame,
    item_users: pl.DataFrame,
    label_users: Ints,
    items: pl.DataFrame,
    item_labels: Ragged,
    labels: pl.DataFrame,
) -> pl.DataFrame:
    """The three examples of which most can be named, one a user: the last different items, and the gold labels."""
    known = items.join(item_users.filter(pl.col("users") >= SMALLEST_CELL), on="item")
    titles, texts = dict(known.select("item", "title").rows()), labels.sort("id")["text"].to_list()
    recent = pl.col("items").list.reverse().list.unique(maintain_order=True).list.head(SHOWN).list.reverse()
    chosen = examples.filter(pl.col("items").list.len() >= 3).select("user_id", recent, "gold").collect()

    def common(ids: Iterable[int]) -> list[str]:
        return [texts[label] for label in ids if label_users[label] >= SMALLEST_CELL]

    def named(item: int) -> str:
        return titles.get(item) or f"[{', '.join(common(item_labels[item])) or 'a rarer item'}]"

    rows = [
        (list(map(named, history)), sorted(common(gold)) or ["[rarer labels]"])
        for _, history, gold in chosen.unique("user_id", maintain_order=True).iter_rows()
    ]
    rows.sort(key=lambda row: -sum(not text.startswith("[") for text in row[0] + row[1]))
    return pl.DataFrame(rows[:3], schema=dict.fromkeys(("history", "gold"), pl.List(pl.String)), orient="row")
