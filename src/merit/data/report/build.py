"""data-report: an HTML page to look at, a JSON file to compute with, and a data sheet to hand on.

The questions of the data sheet are those of Gebru et al., Datasheets for Datasets (2021), as far as they matter for the
log of a shop. What the tables can answer is answered; the rest stays a question, for no program knows who consented to
what.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import fields
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import polars as pl

from merit import __version__
from merit.core import artifacts
from merit.core.artifacts import Artifact
from merit.core.config import Frozen
from merit.core.ragged import Ragged
from merit.data.corpus import LABEL_COUNTS
from merit.data.prepare import shards
from merit.data.report.page import data_page
from merit.data.report.summary import DataSummary, add_up, count_events, summarise
from merit.data.split import SPLITS
from merit.labels import space
from merit.report import page
from merit.report.page import SMALLEST_CELL, large_enough

FIGURES = "figures.json"
PARTITIONS = ("types", "splits", "verticals")  # their totals are shown, so a single hidden row could be worked out
QUESTIONS = {
    "Why and by whom": (
        "For what purpose was the log written, and who paid for it?",
        "Who answers questions about it?",
    ),
    "People in it": (
        "How were users told that their purchases are recorded, and did they consent to being addressed?",
        "Are there minors, patients or others among them who need protection?",
        "For how long may the rows be kept, and who erases them at the source (`merit erase` does so here)?",
    ),
    "Before it came here": (
        "Which shops, channels or months are missing?",
        "Were bots, employees, tests and returns taken out?",
        "Who wrote the tags: people, suppliers, or a model?",
    ),
}


class DataReportConfig(Frozen):
    """Nothing to set: the page is the same for every shop."""


def write_data_report(
    examples: Artifact, labels: Artifact, corpus: Artifact, out: Path, config: DataReportConfig, seed: int
) -> Artifact:
    """The report: the page, its figures, and the data sheet."""
    parents = {"examples": examples, "labels": labels, "corpus": corpus}
    with artifacts.writing(out, "data-report", config=config, seed=seed, parents=parents) as draft:
        summary = summary_of(examples, labels, corpus)
        html = page.render(data_page(summary, page.provenance(examples.manifest)))
        (draft.path / "index.html").write_text(html, encoding="utf-8")
        (draft.path / FIGURES).write_text(json.dumps(_figures(summary), default=str, indent=1), encoding="utf-8")
        sheet = data_sheet(
            summary, examples.manifest.config["source"], examples.manifest.summary, labels.manifest.summary
        )
        (draft.path / "README.md").write_text(sheet, encoding="utf-8")
        draft.summary |= {
            "gold already in the history": round(summary.repeat_share, 4),
            "gold never in the history": round(1 - summary.repeat_share, 4),
            "labels seen fewer than 5 times": round(summary.rare_share, 4),
            "gold held by the top 1 % of labels": round(summary.top_gold_share, 4),
        }
    return artifacts.load(out, "data-report")


def summary_of(examples: Artifact, labels: Artifact, corpus: Artifact) -> DataSummary:
    """The figures of a prepared data set; its events are counted shard by shard."""
    items, label_space = pl.read_parquet(examples.file("items.parquet")), space.load(labels.path)
    first, last = (datetime.fromtimestamp(examples.manifest.summary[name] / 1000, UTC) for name in ("first", "last"))
    return summarise(
        span=(first, last),
        counts=add_up(_counts(examples, items)),
        label_counts=pl.read_parquet(corpus.file(LABEL_COUNTS)),
        examples=pl.concat(
            pl.scan_parquet(corpus.file(f"{split}.parquet")).with_columns(split=pl.lit(split)) for split in SPLITS
        ),
        items=items,
        item_labels=Ragged(*space.item_labels(label_space, items)),
        labels=label_space.table,
    )


def _counts(examples: Artifact, items: pl.DataFrame) -> Iterator[dict[str, pl.DataFrame]]:
    """Counts of each shard, with users numbered through."""
    before = 0
    for shard in shards(examples):
        yield count_events(shard.events.with_columns(pl.col("user") + before), items)
        before += len(shard.users)


def _figures(summary: DataSummary) -> dict[str, Any]:
    """The figures behind the charts, without the examples in words and without cells of fewer than 50 users."""
    values = {field.name: getattr(summary, field.name) for field in fields(summary) if field.name != "prompts"}
    return {name: _rows(name, value) if isinstance(value, pl.DataFrame) else value for name, value in values.items()}


def _rows(name: str, frame: pl.DataFrame) -> list[dict[str, Any]]:
    shown = large_enough(frame, partition=name in PARTITIONS) if "users" in frame.columns else frame
    return shown.to_dicts()


# --- the data sheet --------------------------------------------------------------------------------------------------


def data_sheet(
    summary: DataSummary, source: Mapping[str, Any], prepared: Mapping[str, Any], labels: Mapping[str, Any]
) -> str:
    """The data sheet in Markdown. `source`: its settings; `prepared`, `labels`: the summaries of the two artifacts."""
    parts = [
        "# Data sheet",
        f"Written by merit {__version__} from the prepared tables. Lines with a box are for the owner of the data to "
        "answer.",
        "## What it holds",
        _list(_composition(summary, labels)),
        _verticals(summary),
        "## How it was read",
        _list(_reading(source, prepared)),
        "## What is to be predicted",
        _list(_targets(summary)),
        *(f"## {title}\n\n{_list(f'[ ] {line}' for line in questions)}" for title, questions in QUESTIONS.items()),
        "## Not for",
        "Decisions about single people in credit, housing, employment, health or insurance. Tags are what products are "
        "called, not what people are; a purchase may be a gift.",
    ]
    return "\n\n".join(parts) + "\n"


def _composition(summary: DataSummary, labels: Mapping[str, Any]) -> list[str]:
    first, last = summary.span
    kinds = ", ".join(f"{count:,} × {event}" for event, count in summary.types.select("event", "events").iter_rows())
    return [
        f"{summary.events:,} interactions of {_users(summary.users)} with {summary.items:,} items"
        f", {first:%Y-%m-%d} to {last:%Y-%m-%d} (UTC)",
        f"By kind: {kinds}",
        f"{labels['labels']:,} labels, {labels['live']:,} of them live; {labels['blocked']:,} are blocked, "
        f"{labels['merged']:,} further texts became no label of their own (merged.parquet says why)",
        f"{summary.rare_share:.1%} of the labels occur in fewer than five events; the most frequent hundredth of them "
        f"is {summary.top_gold_share:.1%} of all targets",
        f"{labels['items_without_labels']:,} items carry no label: they are history and never a target",
    ]


def _verticals(summary: DataSummary) -> str:
    shown = large_enough(summary.verticals).head(20)
    if not len(shown):
        return f"No vertical has {SMALLEST_CELL} users; none is shown."
    rows = [
        f"| {str(name).replace('|', '/')} | {events:,} | {share:.1%} |"
        for name, events, share in shown.select("vertical", "events", "share").iter_rows()
    ]
    return "\n".join(["| vertical | events | share |", "|---|---|---|", *rows])


def _reading(source: Mapping[str, Any], prepared: Mapping[str, Any]) -> list[str]:
    aside = f"{prepared['set_aside']:,} rows set aside (quarantine.parquet says why)"
    lines = [f"Source: {source.get('kind', 'tables')}, {aside}"]
    if zone := source.get("time_zone"):
        lines.append(f"Times without a zone were read in {zone}")
    if event := source.get("default_event"):
        lines.append(f"The table names no events: every row was taken as a {event}")
    if extra := source.get("extra_tags"):
        lines.append(f"Further columns that became tags: {', '.join(extra)}")
    return lines


def _targets(summary: DataSummary) -> list[str]:
    sizes = dict(summary.splits.select("split", "examples").iter_rows())
    splits = ", ".join(f"{sizes.get(split, 0):,} for {split}" for split in SPLITS)
    return [
        f"{summary.examples:,} examples of {_users(summary.example_users)}: {splits}; a user is in one split for ever",
        "An example is what a user did before a purchase, without the last days before it, and the labels of what was "
        "bought",
        f"{summary.repeat_share:.1%} of the labels to be found were in the user's history already",
    ]


def _users(count: int) -> str:
    return f"{count:,} users" if count >= SMALLEST_CELL else f"fewer than {SMALLEST_CELL} users"


def _list(sentences: Iterable[str]) -> str:
    return "\n".join(f"- {sentence}" + "." * (not sentence.startswith("[ ]")) for sentence in sentences)
