"""The page of the data report: what the model learns from, and how hard it is."""

from __future__ import annotations

from collections.abc import Callable

import polars as pl

from merit.core.artifacts import Artifact
from merit.data.report.summary import DataSummary
from merit.report import charts
from merit.report.page import (
    SMALLEST_CELL,
    TOO_FEW,
    Chart,
    Page,
    Provenance,
    Section,
    Table,
    Tile,
    count,
    large_enough,
    number,
    percent,
    suppress,
    too_few,
)


def data_page(summary: DataSummary, provenance: Provenance | None = None, tags: Artifact | None = None) -> Page:
    """Six sections below the key figures, and one about tags that were found; of fewer than 50 users, no figure."""
    title, subtitle = "Data report", "What the model learns from: events, examples, labels, and how hard they are."
    if summary.users < SMALLEST_CELL:
        return too_few(title, subtitle, "This data is about", provenance)
    sections = (_events, _examples, _labels, _old_and_new, _verticals, _in_words)
    first, last = summary.span
    tiles = (
        Tile("Users", count(summary.users)),
        Tile("Items", count(summary.items)),
        Tile("Labels", count(summary.labels)),
        Tile("Events", count(summary.events), f"{number(summary.events / summary.users)} per user"),
        Tile("Examples", _unless_few(summary, count(summary.examples))),
        Tile("Days", count((last - first).days + 1), f"{first:%d %b %Y} – {last:%d %b %Y}"),
    )
    shown = [section(summary) for section in sections]
    return Page(title, subtitle, [*shown, tags_section(tags)] if tags else shown, tiles, provenance)


def _events(summary: DataSummary) -> Section:
    shown = large_enough(summary.weeks)
    hidden = len(summary.weeks) - len(shown)
    over = f"Events per week over {len(shown)} weeks, {_range(shown, 'events')}."
    weeks = charts.curve(shown, "week", "events", description=over, y_title="events a week", x_form="date", area=True)
    shares = summary.types.with_columns(share=pl.col("events") / summary.events)
    types = suppress(shares, keep=("event",), partition=True)
    note = f"{count(hidden)} week{'s' * (hidden != 1)} with fewer than {SMALLEST_CELL} users not drawn."
    return Section(
        "Events",
        ("What users did. An event is a view, a click, a cart or a purchase of one item.",),
        charts=(
            Chart("Events per week", weeks, note if hidden else ""),
            _histogram("Events per user", summary.events_per_user, "users", "events of a user", "users"),
            _histogram(
                "Days between purchases", summary.gaps, "rows", "days to the next purchase", "pairs of purchases"
            ),
        ),
        tables=(
            Table("By type", types, {"share": "percent"}),
            Table("Typical", suppress(summary.typical, keep=("measure",))),
        ),
    )


def _examples(summary: DataSummary) -> Section:
    return Section(
        "Examples",
        (
            "An example is a purchase, with what the same user did in the year before it, up to a week before it. "
            "Its gold labels are the tags of what was bought. A user is in one split only.",
        ),
        charts=(
            _histogram("History length", summary.history_length, "rows", "events in the history", "examples"),
            _histogram("Gold labels per example", summary.gold_labels, "rows", "gold labels", "examples"),
        ),
        tables=(Table("By split", suppress(summary.splits, keep=("split",), partition=True)),),
    )


def _labels(summary: DataSummary) -> Section:
    frequencies = summary.rank_frequency
    falling = f"Events of a label against its rank, both logarithmic, {_range(frequencies, 'events')}."
    ranks = charts.curve(
        frequencies, "rank", "events", description=falling, x_title="rank of the label", y_title="events", log=True
    )
    top = large_enough(summary.top_labels)
    leader = f"; most frequent: {top['label'][0]}" if len(top) else ""
    bars = charts.bars(top, "label", "events", description=f"Events of the {len(top)} most frequent labels{leader}.")
    return Section(
        "Labels",
        ("A long tail is normal: few labels are everywhere, most are rare, and the rare ones decide who is reached.",),
        tiles=(
            Tile("Labels seen fewer than 5 times", percent(summary.rare_share), "including those never seen"),
            Tile("Gold held by the top 1 % of labels", _unless_few(summary, percent(summary.top_gold_share))),
        ),
        charts=(
            Chart("Rank and frequency", ranks, "Each point is the mean of the labels around that rank."),
            Chart("Most frequent labels (events)", bars),
        ),
        tables=(Table("Top 20 labels", suppress(summary.top_labels, keep=("label", "vertical"))),),
    )


def _old_and_new(summary: DataSummary) -> Section:
    shown = large_enough(summary.history_length).filter(pl.col("gold") > 0)
    shares = shown.with_columns(share=pl.col("repeated") / pl.col("gold"))
    described = f"Share of gold labels already in the history, by history length, {_range(shares, 'share', percent)}."
    titles = {"x": "events in the history", "y": "repeat share"}
    chart = charts.columns(shares, "bin", "share", description=described, form="percent", **titles)
    old, new = (_unless_few(summary, percent(share)) for share in (summary.repeat_share, 1 - summary.repeat_share))
    return Section(
        "Old and new interests",
        (
            "A gold label that is already in the user's history can be found by repeating the history. "
            "The others are new to the user and must be inferred.",
        ),
        tiles=(
            Tile("Repeat share", old, "of gold labels were in the history"),
            Tile("Novel share", new, "of gold labels were not"),
        ),
        charts=(Chart("Repeat share by history length", chart),),
    )


def _verticals(summary: DataSummary) -> Section:
    table = suppress(summary.verticals, keep=("vertical",), partition=True)
    return Section("Verticals", tables=(Table("Users and events by vertical", table, {"share": "percent"}),))


def tags_section(tags: Artifact) -> Section:
    """How many items have tags, what each source gave, and examples of each."""
    figures = tags.manifest.summary
    kinds = [
        name.removesuffix("_items") for name in figures if name.endswith("_items") and f"{name[:-6]}_tags" in figures
    ]
    rows = [(kind, figures[f"{kind}_items"], figures[f"{kind}_tags"]) for kind in kinds]
    sources = pl.DataFrame(rows, schema={"source": pl.String, "items": pl.Int64, "tags": pl.Int64}, orient="row")
    before, after = (
        percent(figures[name] / max(1, figures["items"])) for name in ("items_with_tags_before", "items_with_tags")
    )
    return Section(
        "Tags from titles",
        (
            "Items without tags were given some, with a reason. `merit tag --review FILE` writes them for a person to "
            "look through.",
        ),
        tiles=(
            Tile("Items with tags", after, f"{before} in the table"),
            Tile("Tags per item", number(figures["tags_per_item"]), f"{count(figures['tags'])} different"),
            Tile("Kept back by the policy", count(figures["blocked"]), "see blocked.parquet"),
        ),
        tables=(
            Table("By source", sources),
            Table("Examples", pl.read_parquet(tags.file("examples.parquet")), wide=True),
        ),
    )


def _in_words(summary: DataSummary) -> Section:
    few = f"Items of fewer than {SMALLEST_CELL} users are shown by their common labels in brackets, or not at all."
    heads = ("last items of the history, newest last", "gold labels of what was bought later")
    prompts = summary.prompts.select(
        pl.col("history").list.join(" · ").alias(heads[0]), pl.col("gold").list.join(", ").alias(heads[1])
    )
    table = Table("History → gold", prompts, note=few, wide=True)
    return Section("Examples in words", ("Three of the examples, without who they are about.",), tables=(table,))


def _histogram(title: str, frame: pl.DataFrame, value: str, x: str, y: str) -> Chart:
    shown = large_enough(frame)
    peak = shown.sort(value, descending=True)["bin"][0] if len(shown) else "no bin"
    description = f"{title}: {y} by {x}, {_range(shown, value)}; most in {peak}."
    return Chart(title, charts.columns(shown, "bin", value, description=description, x=x, y=y))


def _range(frame: pl.DataFrame, value: str, form: Callable[[float], str] = count) -> str:
    if not len(frame):
        return "nothing to show"
    return f"from {form(frame[value].min())} to {form(frame[value].max())}"  # type: ignore[arg-type]


def _unless_few(summary: DataSummary, figure: str) -> str:
    """A figure about examples, unless they are of too few users."""
    return figure if summary.example_users >= SMALLEST_CELL else TOO_FEW
