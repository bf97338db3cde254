"""The figures of a prepared data set: counted shard by shard of users, added up, put into bins, shares and words.

    summary = summarise(merge(count_shard(...) for every shard), items, item_labels, labels)

No loop over examples or events: tags are gathered as ragged arrays, and "is this label in that history?" is one binary
search per gold label in the sorted (label, event row) pairs, however long the history.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, fields
from datetime import datetime
from typing import Any

import numpy as np
import polars as pl

from merit.core.ragged import Ragged, column_lists
from merit.core.types import Ints
from merit.report.page import SMALLEST_CELL

CANDIDATES = 60  # examples of a shard that may be shown in words
SHOWN = 8  # last items of a history that may be shown
EVENT_EDGES = (1, 2, 5, 10, 20, 50, 100, 200, 500, 1000, 2000)
HISTORY_EDGES = (0, 1, 5, 10, 20, 50, 100, 200, 500, 1000)
GOLD_EDGES = (0, 1, 2, 3, 4, 5, 6, 8, 11, 16, 21)
GAP_EDGES = (1, 2, 4, 8, 15, 31, 61, 91, 181)


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


@dataclass(frozen=True)
class ExampleText:
    """An example in words. What fewer than 50 users touched is not named."""

    history: tuple[str, ...]
    gold: tuple[str, ...]


@dataclass(frozen=True)
class DataSummary:
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


# --- counts ----------------------------------------------------------------------------------------------------------


def count_shard(
    events: pl.DataFrame, examples: pl.DataFrame, items: pl.DataFrame, item_labels: Ragged, n_labels: int
) -> ShardCounts:
    """The counts of one shard. `history_start` and `history_stop` are rows of this shard's events."""
    pairs = _label_rows(events, item_labels)
    label_events, label_users = _label_counts(pairs, events, n_labels)
    example, gold = _gold(examples, item_labels, n_labels)
    repeated = _in_history(pairs, len(events), examples, example, gold)
    vertical = events.select("user", "item").join(items.select("item", "vertical"), on="item")
    return ShardCounts(
        span=(events["timestamp"].min(), events["timestamp"].max()) if len(events) else None,  # type: ignore[arg-type]
        users=events.group_by("user", maintain_order=True).agg(events=pl.len()),
        examples=examples.select(
            "user",
            "split",
            history=(pl.col("history_stop") - pl.col("history_start")).cast(pl.Int64),
            gold=pl.lit(pl.Series(np.bincount(example, minlength=len(examples)))),
            repeated=pl.lit(pl.Series(np.bincount(repeated, minlength=len(examples)))),
        ),
        gaps=_gaps(events),
        types=_counted(events.select("user", pl.col("event").cast(pl.String)), "event"),
        weeks=_counted(events.select("user", week=pl.col("timestamp").dt.truncate("1w")), "week"),
        verticals=_counted(vertical.select("user", "vertical"), "vertical"),
        label_events=label_events,
        label_users=label_users,
        label_gold=np.bincount(gold, minlength=n_labels),
        item_users=_item_users(events, len(item_labels)),
        prompts=_candidates(events, examples),
    )


def merge(shards: Iterable[ShardCounts]) -> ShardCounts:
    """The sum of shards. No user may be in two of them."""
    parts = list(shards)
    names = [field.name for field in fields(ShardCounts)]
    return ShardCounts(**{name: _sum(name, [getattr(part, name) for part in parts]) for name in names})


def _sum(name: str, values: list[Any]) -> Any:
    if name == "span":
        spans = [span for span in values if span]
        return (min(first for first, _ in spans), max(last for _, last in spans)) if spans else None
    if name in ("types", "weeks", "verticals"):
        key = values[0].columns[0]
        return pl.concat(values).group_by(key).agg(pl.col("events", "users").sum()).sort(key)
    return pl.concat(values) if isinstance(values[0], pl.DataFrame) else np.sum(values, axis=0)


def _labels_of(items: Ragged, rows: Any) -> tuple[Ints, Ints]:
    """(position in `rows`, label) for every label of every item."""
    labels, sizes = items.take(rows)
    return np.repeat(np.arange(len(sizes)), sizes), labels.astype(np.int64)


def _label_rows(events: pl.DataFrame, item_labels: Ragged) -> Ints:
    """label · rows + row of every label of every event, sorted: a label's rows, and in them a user's, are together."""
    row, label = _labels_of(item_labels, events["item"].to_numpy())
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


def _gold(examples: pl.DataFrame, item_labels: Ragged, n_labels: int) -> tuple[Ints, Ints]:
    """(example, label) for every different label of an example's targets."""
    targets = column_lists(examples["target_items"])
    example = np.repeat(np.arange(len(examples)), targets.lengths())
    owner, label = _labels_of(item_labels, targets.values)
    pairs: tuple[Ints, Ints] = np.divmod(np.unique(example[owner] * n_labels + label), n_labels)
    return pairs


def _in_history(pairs: Ints, rows: int, examples: pl.DataFrame, example: Ints, label: Ints) -> Ints:
    """The examples (one entry each time) whose history holds that gold label."""
    start, stop = (examples[f"history_{end}"].to_numpy().astype(np.int64)[example] for end in ("start", "stop"))
    place = np.searchsorted(pairs, label * rows + start)
    there = np.append(pairs, np.iinfo(np.int64).max)[place] < label * rows + stop
    return example[there]


def _gaps(events: pl.DataFrame) -> pl.DataFrame:
    """Whole days between neighbouring days with a purchase; several purchases of a day are one visit to the shop."""
    bought = events.filter(pl.col("event") == "purchase").select("user", day=pl.col("timestamp").dt.date())
    days = bought.unique(maintain_order=True).with_columns(days=pl.col("day").diff().dt.total_days())
    return days.filter(pl.col("user") == pl.col("user").shift()).select("user", "days")


def _counted(frame: pl.DataFrame, key: str) -> pl.DataFrame:
    users = pl.col("user").n_unique().cast(pl.Int64)
    return frame.group_by(key).agg(events=pl.len().cast(pl.Int64), users=users).sort(key)


def _item_users(events: pl.DataFrame, n_items: int) -> Ints:
    pairs = events.select("item", "user").unique()
    return np.bincount(pairs["item"].to_numpy(), minlength=n_items)


def _candidates(events: pl.DataFrame, examples: pl.DataFrame) -> pl.DataFrame:
    """Some examples spread over the shard, one a user, with the last items of their history."""
    usable = examples.filter(pl.col("history_stop") >= pl.col("history_start") + 3).unique("user", maintain_order=True)
    chosen = usable.gather_every(max(1, len(usable) // CANDIDATES)).head(CANDIDATES)
    start = pl.max_horizontal("history_start", pl.col("history_stop").cast(pl.Int64) - 4 * SHOWN).cast(pl.Int64)
    ranges = chosen.select(start, stop="history_stop", target="target_items").iter_rows()
    rows = [(_recent(events["item"][first:stop]), target) for first, stop, target in ranges]
    return pl.DataFrame(rows, schema={"history": pl.List(pl.Int64), "target": pl.List(pl.Int64)}, orient="row")


def _recent(items: pl.Series) -> list[int]:
    """The last different items: a view, a click and a purchase of one item are one."""
    return items.reverse().unique(maintain_order=True).head(SHOWN).reverse().to_list()


# --- bins, shares and words ------------------------------------------------------------------------------------------


def summarise(total: ShardCounts, items: pl.DataFrame, item_labels: Ragged, labels: pl.DataFrame) -> DataSummary:
    """All figures of the report, from the counts of all users."""
    splits = total.examples.group_by("split").agg(examples=pl.len(), users=pl.col("user").n_unique())
    shares = total.verticals.with_columns(share=pl.col("events") / pl.col("events").sum())
    return DataSummary(
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
        verticals=shares.sort("events", descending=True),
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
    columns = (value.median().alias("median"), value.mean().alias("mean"), value.quantile(0.9).alias("90th percentile"))
    rows = [
        frame.select(pl.lit(name).alias("measure"), *columns, pl.col("user").n_unique().cast(pl.Int64).alias("users"))
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
    counts = {"events": total.label_events, "gold": total.label_gold, "users": total.label_users}
    columns = [pl.Series(name, values[top]) for name, values in counts.items()]
    return labels.sort("id")[top].select(pl.col("text").alias("label"), "vertical", *columns)


def _prompts(
    total: ShardCounts, items: pl.DataFrame, item_labels: Ragged, labels: pl.DataFrame
) -> tuple[ExampleText, ...]:
    """The three candidates of which most can be named."""
    titles = dict(items.select("item", "title").iter_rows())
    texts = labels.sort("id")["text"].to_list()

    def common(item: int) -> list[str]:
        return [texts[label] for label in item_labels[item] if total.label_users[label] >= SMALLEST_CELL]

    def named(item: int) -> str:
        if total.item_users[item] >= SMALLEST_CELL:
            return str(titles[item])
        return f"[{', '.join(common(item))}]" if common(item) else "[a rarer item]"

    def in_words(history: list[int], target: list[int]) -> ExampleText:
        gold = sorted({label for item in target for label in common(item)})
        return ExampleText(tuple(named(item) for item in history), tuple(gold) or ("[rarer labels]",))

    def hidden(example: ExampleText) -> int:
        return -sum(not text.startswith("[") for text in example.history + example.gold)

    return tuple(sorted((in_words(*row) for row in total.prompts.iter_rows()), key=hidden)[:3])
