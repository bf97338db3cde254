"""The data report: what the model learns from, and how hard it is.

facts = gather(events, examples, items, item_labels, labels)                # or, shard by shard of users:
facts = summarise(merge(count_shard(...) for each shard), items, item_labels, labels)
html = page.render(data_page(facts, page.provenance(manifest)))
"""

from __future__ import annotations

from collections.abc import Callable

import polars as pl

from merit.data.report.counts import count_shard, merge
from merit.data.report.summary import DataFacts, ExampleText, gather, summarise
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
)

__all__ = ["DataFacts", "ExampleText", "count_shard", "data_page", "gather", "merge", "summarise"]


def data_page(facts: DataFacts, provenance: Provenance | None = None) -> Page:
    """Six sections below the key figures; of fewer than 50 users, a page that shows no figure."""
    title, subtitle = "Data report", "What the model learns from: events, examples, labels, and how hard they are."
    if facts.users < SMALLEST_CELL:
        told = f"This data is about fewer than {SMALLEST_CELL} users. No figure is shown."
        return Page(title, subtitle, (Section("Too few users", (told,)),), (), provenance)
    sections = (
        _events_section(facts),
        _examples_section(facts),
        _labels_section(facts),
        _repeat_section(facts),
        _verticals_section(facts),
        _prompts_section(facts),
    )
    return Page(title, subtitle, sections, _tiles(facts), provenance)


def _tiles(facts: DataFacts) -> tuple[Tile, ...]:
    days = (facts.span[1] - facts.span[0]).days + 1 if facts.span else 0
    between = f"{facts.span[0]:%d %b %Y} – {facts.span[1]:%d %b %Y}" if facts.span else ""
    return (
        Tile("Users", count(facts.users)),
        Tile("Items", count(facts.items)),
        Tile("Labels", count(facts.labels)),
        Tile("Events", count(facts.events), f"{number(facts.events / facts.users)} per user"),
        Tile("Examples", _unless_few(facts, count(facts.examples))),
        Tile("Days", count(days), between),
    )


def _events_section(facts: DataFacts) -> Section:
    shown = large_enough(facts.weeks)
    hidden = len(facts.weeks) - len(shown)
    weeks = charts.curve(
        shown,
        "week",
        "events",
        says=f"Events per week over {len(shown)} weeks, {_range(shown, 'events')}.",
        y_title="events a week",
        x_form="date",
        area=True,
    )
    shares = facts.types.with_columns(share=pl.col("events") / facts.events)
    types = suppress(shares, keep=("event",), partition=True)
    note = f"{_some(hidden, 'week')} with fewer than {SMALLEST_CELL} users not drawn." if hidden else ""
    return Section(
        "Events",
        ("What people did. An event is a view, a click, a cart or a purchase of one item.",),
        charts=(
            Chart("Events per week", weeks, note),
            _histogram("Events per user", facts.events_per_user, "users", "events of a user", "users"),
            _histogram("Days between purchases", facts.gaps, "rows", "days to the next purchase", "pairs of purchases"),
        ),
        tables=(
            Table("By type", types, {"share": "percent"}),
            Table("Typical", suppress(facts.typical, keep=("measure",))),
        ),
    )


def _examples_section(facts: DataFacts) -> Section:
    return Section(
        "Examples",
        (
            "An example is a purchase, with what the same user did in the year before it, up to a week before it. "
            "Its gold labels are the tags of what was bought. A user is in one split only.",
        ),
        charts=(
            _histogram("History length", facts.history_length, "rows", "events in the history", "examples"),
            _histogram("Gold labels per example", facts.gold_labels, "rows", "gold labels", "examples"),
        ),
        tables=(Table("By split", suppress(facts.splits, keep=("split",), partition=True)),),
    )


def _labels_section(facts: DataFacts) -> Section:
    ranks = charts.curve(
        facts.rank_frequency,
        "rank",
        "events",
        says=f"Events of a label against its rank, both logarithmic, {_range(facts.rank_frequency, 'events')}.",
        x_title="rank of the label",
        y_title="events",
        x_log=True,
        y_log=True,
    )
    top = large_enough(facts.top_labels)
    leader = f"; most frequent: {top['label'][0]}" if len(top) else ""
    bars = charts.bars(top, "label", "events", says=f"Events of the {len(top)} most frequent labels{leader}.")
    return Section(
        "Labels",
        ("A long tail is normal: few labels are everywhere, most are rare, and the rare ones decide who is reached.",),
        tiles=(
            Tile("Labels seen fewer than 5 times", percent(facts.rare_share), "including those never seen"),
            Tile("Gold held by the top 1 % of labels", _unless_few(facts, percent(facts.top_gold_share))),
        ),
        charts=(
            Chart("Rank and frequency", ranks, "Each point is the mean of the labels around that rank."),
            Chart("Most frequent labels (events)", bars),
        ),
        tables=(Table("Top 20 labels", suppress(facts.top_labels, keep=("label", "vertical"))),),
    )


def _repeat_section(facts: DataFacts) -> Section:
    shown = large_enough(facts.history_length).filter(pl.col("gold") > 0)
    shares = shown.with_columns(share=pl.col("repeated") / pl.col("gold"))
    chart = charts.columns(
        shares,
        "bin",
        "share",
        says=f"Share of gold labels already in the history, by history length, {_range(shares, 'share', percent)}.",
        x="events in the history",
        y="repeat share",
        form="percent",
    )
    old, new = (_unless_few(facts, percent(share)) for share in (facts.repeat_share, 1 - facts.repeat_share))
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


def _verticals_section(facts: DataFacts) -> Section:
    table = suppress(facts.verticals, keep=("vertical",), partition=True)
    return Section("Verticals", tables=(Table("Users and events by vertical", table, {"share": "percent"}),))


def _prompts_section(facts: DataFacts) -> Section:
    rows = [(" · ".join(prompt.history), ", ".join(prompt.gold)) for prompt in facts.prompts]
    heads = {"last items of the history, newest last": pl.String, "gold labels of what was bought later": pl.String}
    few = f"Items of fewer than {SMALLEST_CELL} users are told by their common labels in brackets, or not at all."
    table = Table("History → gold", pl.DataFrame(rows, schema=heads, orient="row"), note=few, wide=True)
    return Section("Examples in words", ("Three of the examples, without who they are about.",), tables=(table,))


def _histogram(title: str, frame: pl.DataFrame, value: str, x: str, y: str) -> Chart:
    shown = large_enough(frame)
    says = f"{title}: {y} by {x}, {_range(shown, value)}; most in {_peak(shown, value)}."
    return Chart(title, charts.columns(shown, "bin", value, says=says, x=x, y=y))


def _range(frame: pl.DataFrame, value: str, form: Callable[[float], str] = count) -> str:
    if not len(frame):
        return "nothing to show"
    return f"from {form(frame[value].min())} to {form(frame[value].max())}"  # type: ignore[arg-type]


def _peak(frame: pl.DataFrame, value: str) -> str:
    return str(frame.sort(value, descending=True)["bin"][0]) if len(frame) else "no bin"


def _unless_few(facts: DataFacts, told: str) -> str:
    """A figure about examples, unless they are of too few users."""
    return told if facts.example_users >= SMALLEST_CELL else TOO_FEW


def _some(amount: int, thing: str) -> str:
    return f"{count(amount)} {thing}{'' if amount == 1 else 's'}"
