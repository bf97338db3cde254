"""data-report: an HTML page to look at, a JSON file to compute with, and a data sheet to hand on.

The text of the data sheet is in sheet.md.j2. Its questions are those of Gebru et al., Datasheets for Datasets (2021),
as far as they matter for the log of a shop. What the tables can answer is answered; the rest stays a question, for no
program knows who consented to what.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import fields
from datetime import UTC, datetime
from importlib import resources
from pathlib import Path
from typing import Any

import jinja2
import polars as pl

from merit import __version__
from merit.core import artifacts
from merit.core.artifacts import Artifact
from merit.core.config import Frozen
from merit.core.ragged import Ragged
from merit.core.types import SPLITS
from merit.data.corpus import LABEL_COUNTS
from merit.data.prepare import shards
from merit.data.report.page import data_page
from merit.data.report.summary import DataSummary, add_up, count_events, summarise
from merit.labels import space
from merit.report import page
from merit.report.markdown import plain
from merit.report.page import SMALLEST_CELL, large_enough

FIGURES = "figures.json"
PARTITIONS = ("types", "splits", "verticals")  # their totals are shown, so a single hidden row could be worked out


class DataReportConfig(Frozen):
    """Nothing to set: the page is the same for every shop."""


def write_data_report(
    examples: Artifact,
    labels: Artifact,
    corpus: Artifact,
    out: Path,
    config: DataReportConfig,
    seed: int,
    tags: Artifact | None = None,
) -> Artifact:
    """The report: the page, its figures, and the data sheet."""
    parents = {"examples": examples, "labels": labels, "corpus": corpus} | ({"tags": tags} if tags else {})
    with artifacts.writing(out, "data-report", config=config, seed=seed, parents=parents) as draft:
        summary = summary_of(examples, labels, corpus)
        html = page.render(data_page(summary, page.provenance(examples.manifest), tags))
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
    figures = {field.name: getattr(summary, field.name) for field in fields(summary) if field.name != "prompts"}
    for name, value in figures.items():
        if isinstance(value, pl.DataFrame):
            shown = large_enough(value, partition=name in PARTITIONS) if "users" in value.columns else value
            figures[name] = shown.to_dicts()
    return figures


def data_sheet(
    summary: DataSummary, source: Mapping[str, Any], prepared: Mapping[str, Any], labels: Mapping[str, Any]
) -> str:
    """The data sheet in Markdown. `source`: its settings; `prepared`, `labels`: the summaries of the two artifacts."""
    text = resources.files(__package__).joinpath("sheet.md.j2").read_text(encoding="utf-8")
    environment = jinja2.Environment(
        undefined=jinja2.StrictUndefined, trim_blocks=True, lstrip_blocks=True, keep_trailing_newline=True
    )
    environment.filters["plain"] = plain
    return environment.from_string(text).render(
        version=__version__,
        summary=summary,
        source=source,
        prepared=prepared,
        labels=labels,
        sizes=dict(summary.splits.select("split", "examples").iter_rows()),
        splits=SPLITS,
        verticals=large_enough(summary.verticals).head(20).rows(named=True),
        smallest=SMALLEST_CELL,
    )
