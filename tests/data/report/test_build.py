"""The data sheet says what the tables say, tells of no small group, and leaves what nobody knows as a question."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import polars as pl
import pytest

from merit.core import artifacts
from merit.data.report.build import data_sheet, summary_of
from merit.data.report.summary import DataSummary


def facts_of(made: Path) -> DataSummary:
    return summary_of(*(artifacts.load(made / name) for name in ("examples", "labels", "corpus")))


@pytest.fixture(scope="module")
def sheet(made: Path) -> tuple[str, DataSummary, dict[str, Any]]:
    examples, labels = artifacts.load(made / "examples"), artifacts.load(made / "labels")
    facts = facts_of(made)
    told = data_sheet(facts, examples.manifest.config["source"], examples.manifest.summary, labels.manifest.summary)
    return told, facts, examples.manifest.summary


def test_its_figures_are_those_of_the_tables(sheet: tuple[str, DataSummary, dict[str, Any]]) -> None:
    told, facts, summary = sheet
    for figure in (facts.events, facts.users, summary["train"], summary["test"]):
        assert f"{figure:,}" in told
    assert f"{facts.repeat_share:.1%}" in told
    first = facts.types.row(0, named=True)
    assert f"{first['events']:,} × {first['event']}" in told


def test_the_page_and_the_sheet_agree(sheet: tuple[str, DataSummary, dict[str, Any]], made: Path) -> None:
    told, _, _ = sheet
    page = json.loads((made / "data-report/figures.json").read_text(encoding="utf-8"))
    assert f"{page['events']:,} interactions" in told and f"{page['examples']:,} examples" in told


def test_small_groups_are_not_told_of(made: Path) -> None:
    examples, labels = artifacts.load(made / "examples"), artifacts.load(made / "labels")
    facts = facts_of(made)
    few = facts.verticals.with_columns(users=pl.lit(7))
    told = data_sheet(
        DataSummary(**{**vars(facts), "verticals": few, "users": 7}),
        {},
        examples.manifest.summary,
        labels.manifest.summary,
    )
    assert "fewer than 50 users" in told and "| vertical |" not in told


def test_what_nobody_knows_stays_a_question(sheet: tuple[str, DataSummary, dict[str, Any]]) -> None:
    told, _, _ = sheet
    asked = [line for line in told.splitlines() if line.startswith("- [ ] ")]
    assert len(asked) == 8 and all(line.endswith("?") for line in asked)


def test_no_user_is_named(sheet: tuple[str, DataSummary, dict[str, Any]]) -> None:
    assert "u000" not in sheet[0]
