"""data-report: what the data is: an HTML page to look at, a JSON file to compute with, a data sheet to hand on."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import fields
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl

from merit.core import artifacts
from merit.core.artifacts import Artifact
from merit.core.config import Frozen
from merit.data.prepare import shards
from merit.data.report import datasheet
from merit.data.report.counts import ItemLabels, ShardCounts, count_shard, merge
from merit.data.report.page import data_page
from merit.data.report.summary import DataFacts, summarise
from merit.labels import space
from merit.report import page

ADD_UP = ("types", "splits", "verticals")  # to totals that are told: one row that is left out could be worked out


class DataReportConfig(Frozen):
    """Nothing to set: the page is the same for every shop."""


def write_data_report(examples: Artifact, labels: Artifact, out: Path, config: DataReportConfig, seed: int) -> Artifact:
    """Count shard by shard, then write the page and its figures."""
    items = pl.read_parquet(examples.file("items.parquet"))
    known = space.load(labels.path)
    offsets, ids = space.item_labels(known, items)
    item_labels = offsets, ids.astype(np.int32)
    parents = {"examples": examples, "labels": labels}
    with artifacts.writing(out, "data-report", config=config, seed=seed, parents=parents) as draft:
        facts = summarise(merge(_tallies(examples, items, item_labels, len(known))), items, item_labels, known.table)
        html = page.render(data_page(facts, page.provenance(examples.manifest)))
        (draft.path / "index.html").write_text(html, encoding="utf-8")
        (draft.path / "facts.json").write_text(json.dumps(_plain(facts), default=str, indent=1), encoding="utf-8")
        source, counted = examples.manifest.config["source"], (examples.manifest.summary, labels.manifest.summary)
        (draft.path / "README.md").write_text(datasheet.write(facts, source, *counted), encoding="utf-8")
        draft.summary |= {
            "gold already in the history": round(facts.repeat_share, 4),
            "gold never in the history": round(1 - facts.repeat_share, 4),
            "labels seen fewer than 5 times": round(facts.rare_share, 4),
            "gold held by the top 1 % of labels": round(facts.top_gold_share, 4),
        }
    return artifacts.load(out, "data-report")


def _tallies(examples: Artifact, items: pl.DataFrame, item_labels: ItemLabels, labels: int) -> Iterator[ShardCounts]:
    """Counts of each shard, with users numbered through."""
    before = 0
    for part in shards(examples):
        events, built = (frame.with_columns(pl.col("user") + before) for frame in (part.events, part.examples))
        yield count_shard(events, built, items, item_labels, labels)
        before += len(part.users)


def _plain(facts: DataFacts) -> dict[str, Any]:
    """The figures behind the charts, without the examples in words and without cells of fewer than 50 users."""
    values = {field.name: getattr(facts, field.name) for field in fields(facts) if field.name != "prompts"}
    return {name: _rows(name, value) if isinstance(value, pl.DataFrame) else value for name, value in values.items()}


def _rows(name: str, frame: pl.DataFrame) -> list[dict[str, Any]]:
    told = page.large_enough(frame, partition=name in ADD_UP) if "users" in frame.columns else frame
    return told.to_dicts()
