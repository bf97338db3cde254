"""What a prepared data set is like: counts put into bins, shares and words. Small bins are joined at once."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime

import numpy as np
import polars as pl

from merit.core.types import Ints
from merit.data.report.counts import ItemLabels, ShardCounts, count_shard
from merit.report.page import SMALLEST_CELL

EVENT_EDGES = (1, 2, 5, 10, 20, 50, 100, 200, 500, 1000, 2000)
HISTORY_EDGES = (0, 1, 5, 10, 20, 50, 100, 200, 500, 1000)
GOLD_EDGES = (0, 1, 2, 3, 4, 5, 6, 8, 11, 16, 21)
GAP_EDGES = (1, 2, 4, 8, 15, 31, 61, 91, 181)


@dataclass(frozen=True)
class ExampleText:
    """An example in words. What fewer than 50 users touched is not named."""

    history: tuple[str, ...]
    gold: tuple[str, ...]


@dataclass(frozen=True)
class DataFacts:
    """All that the data report shows; the columns of each table stand beside it."""

    users: int
    items: int
    labels: int
    events: int
    examples: int
    example_users: int
    span: tuple[datetime, datetime] | None
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
    prompts: tuple[ExampleText, ...]


def gather(
    events: pl.DataFrame, examples: pl.DataFrame, items: pl.DataFrame, item_labels: ItemLabels, labels: pl.DataFrame
) -> DataFacts:
    """All at once, for data that fits in memory."""
    return summarise(count_shard(events, examples, items, item_labels, len(labels)), items, item_labels, labels)


def summarise(total: ShardCounts, items: pl.DataFrame, item_labels: ItemLabels, labels: pl.DataFrame) -> DataFacts:
    """Put counts into bins, shares and words."""
    splits = total.examples.group_by("split").agg(examples=pl.len(), users=pl.col("user").n_unique())
    return DataFacts(
        users=len(total.users),
        items=len(items),
        labels=len(labels),
        events=int(total.users["events"].sum()),
        examples=len(total.examples),
        example_users=total.examples["user"].n_unique(),
        span=total.span,
        types=total.types.sort("events", descending=True),
        splits=splits.sort("examples", "split", descending=[True, False]),
        typical=_typical(total),
        events_per_user=binned(total.users, "events", EVENT_EDGES),
        history_length=binned(total.examples, "history", HISTORY_EDGES, ("gold", "repeated")),
        gold_labels=binned(total.examples, "gold", GOLD_EDGES),
        gaps=binned(total.gaps, "days", GAP_EDGES),
        weeks=total.weeks,
        rank_frequency=_rank_frequency(total.label_events),
        rare_share=float((total.label_events < 5).mean()) if len(labels) else 0.0,
        top_gold_share=_top_share(total.label_gold),
        repeat_share=int(total.examples["repeated"].sum()) / max(1, int(total.examples["gold"].sum())),
        top_labels=_top_labels(total, labels),
        verticals=total.verticals.with_columns(share=pl.col("events") / pl.col("events").sum()).sort(
            "events", descending=True
        ),
        prompts=_prompts(total, items, item_labels, labels),
    )


def binned(frame: pl.DataFrame, value: str, edges: Sequence[int], sums: Sequence[str] = ()) -> pl.DataFrame:
    """Rows by bins of `value`. A bin of too few users joins its neighbour, so that the shape of the tail is kept."""
    place = np.searchsorted(edges, frame[value].to_numpy(), side="right") - 1
    placed = frame.with_columns(place=pl.Series(place, dtype=pl.Int64))
    groups = _pooled(placed.select("user", "place").unique())
    names = pl.Series([_bin_name(edges, low, high) for low, high in groups], dtype=pl.String)
    group = np.searchsorted([high for _, high in groups], place)
    counts = (
        placed.group_by(pl.Series("group", group, dtype=pl.Int64))
        .agg(pl.col("user").n_unique().alias("users"), pl.len().alias("rows"), *(pl.col(name).sum() for name in sums))
        .sort("group")
    )
    return counts.select(pl.lit(names.gather(counts["group"])).alias("bin"), pl.exclude("group"))


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


def _typical(total: ShardCounts) -> pl.DataFrame:
    measures = {
        "events per user": total.users.select("user", "events"),
        "history events per example": total.examples.select("user", "history"),
        "gold labels per example": total.examples.select("user", "gold"),
        "days between purchases": total.gaps,
    }
    value = pl.nth(1).cast(pl.Float64)
    ask = (value.median().alias("median"), value.mean().alias("mean"), value.quantile(0.9).alias("90th percentile"))
    rows = [
        frame.select(pl.lit(name).alias("measure"), *ask, pl.col("user").n_unique().cast(pl.Int64).alias("users"))
        for name, frame in measures.items()
    ]
    return pl.concat(rows)


def _rank_frequency(events: Ints) -> pl.DataFrame:
    """Mean events of the labels around some ranks, spread evenly on a logarithmic axis; unseen labels have no place."""
    counts = np.sort(events[events > 0])[::-1]
    if not len(counts):
        return pl.DataFrame(schema={"rank": pl.Float64, "events": pl.Float64})
    starts = np.unique(np.geomspace(1, len(counts), 80).astype(np.int64)) - 1
    sizes = np.diff(np.append(starts, len(counts)))
    return pl.DataFrame({"rank": starts + (sizes + 1) / 2, "events": np.add.reduceat(counts, starts) / sizes})


def _top_share(gold: Ints) -> float:
    top = np.sort(gold)[::-1][: max(1, len(gold) // 100)]
    return float(top.sum() / max(1, gold.sum()))


def _top_labels(total: ShardCounts, labels: pl.DataFrame) -> pl.DataFrame:
    top = np.argsort(-total.label_events, kind="stable")[:20]
    return labels.sort("id")[top].select(
        pl.col("text").alias("label"),
        "vertical",
        pl.Series("events", total.label_events[top]),
        pl.Series("gold", total.label_gold[top]),
        pl.Series("users", total.label_users[top]),
    )


def _prompts(
    total: ShardCounts, items: pl.DataFrame, item_labels: ItemLabels, labels: pl.DataFrame
) -> tuple[ExampleText, ...]:
    """The three candidates of which most can be named."""
    titles = dict(items.select("item", "title").iter_rows())
    texts = labels.sort("id")["text"].to_list()

    def known(item: int) -> list[str]:
        own = item_labels[1][item_labels[0][item] : item_labels[0][item + 1]]
        return [texts[label] for label in own if total.label_users[label] >= SMALLEST_CELL]

    def named(item: int) -> str:
        if total.item_users[item] >= SMALLEST_CELL:
            return str(titles[item])
        return f"[{', '.join(known(item))}]" if known(item) else "[a rarer item]"

    def prompt(history: list[int], target: list[int]) -> ExampleText:
        gold = sorted({label for item in target for label in known(item)})
        return ExampleText(tuple(named(item) for item in history), tuple(gold) or ("[rarer labels]",))

    made = [prompt(history, target) for history, target in total.prompts.iter_rows()]
    return tuple(sorted(made, key=lambda each: -sum(not text.startswith("[") for text in each.history + each.gold))[:3])
