"""data-report: what the data is, as one HTML page to look at and one JSON file to compute with."""

from __future__ import annotations

import json
from dataclasses import fields
from pathlib import Path
from typing import Any

import polars as pl

from merit import artifacts
from merit.artifacts import Artifact
from merit.config import Frozen
from merit.labels import space
from merit.report import page
from merit.report.data import data_page
from merit.report.facts import DataFacts, summarise
from merit.report.tally import merge, tally
from merit.stages.prepare import shards


class DataReportConfig(Frozen):
    """Nothing to set: the page is the same for every shop."""


def write_data_report(examples: Artifact, labels: Artifact, out: Path, config: DataReportConfig, seed: int) -> Artifact:
    """Count shard by shard, then write the page and its figures."""
    items = pl.read_parquet(examples.file("items.parquet"))
    known = space.load(labels.path)
    item_labels = space.item_labels(known, items)
    parents = {"examples": examples, "labels": labels}
    with artifacts.writing(out, "data-report", config=config, seed=seed, parents=parents) as draft:
        counted = (tally(part.events, part.examples, items, item_labels, len(known)) for part in shards(examples))
        facts = summarise(merge(counted), items, item_labels, known.table)
        html = page.render(data_page(facts, page.provenance(examples.manifest)))
        (draft.path / "index.html").write_text(html, encoding="utf-8")
        (draft.path / "facts.json").write_text(json.dumps(_plain(facts), default=str, indent=1), encoding="utf-8")
        draft.summary |= {
            "gold already in the history": round(facts.repeat_share, 4),
            "gold never in the history": round(1 - facts.repeat_share, 4),
            "labels seen fewer than 5 times": round(facts.rare_share, 4),
            "gold held by the top 1 % of labels": round(facts.top_gold_share, 4),
        }
    return artifacts.load(out, "data-report")


def _plain(facts: DataFacts) -> dict[str, Any]:
    """The figures behind the charts, without the examples in words."""
    values = {field.name: getattr(facts, field.name) for field in fields(facts) if field.name != "prompts"}
    return {name: value.to_dicts() if isinstance(value, pl.DataFrame) else value for name, value in values.items()}
