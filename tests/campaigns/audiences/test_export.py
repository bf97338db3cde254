"""A spreadsheet runs no id as a formula, and a program gets every id back."""

from __future__ import annotations

import csv
import json
from pathlib import Path

import polars as pl
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from merit.campaigns.audiences.export import MARK, WRITERS, marked, overlaps

TRIGGERS = "=+-@＝＋－＠−"
IDS = st.lists(
    st.one_of(
        st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"), min_size=1, max_size=12),
        st.sampled_from(
            ['=HYPERLINK("http://x";A1)', "+1", "-2", "@SUM(A1)", "\t=1", "\r=1", "a;=1", 'a"=1', "'=1", "%0A"]
        ),
    ),
    min_size=1,
    max_size=12,
)


def members(ids: list[str]) -> pl.LazyFrame:
    count = len(ids)
    return pl.LazyFrame({"user_id": ids, "rank": range(count), "score": [0.5] * count, "arm": ["treatment"] * count})


def harmless(cell: str) -> bool:
    """As a careful person would check: nothing that may be skipped, and then no sign that begins a formula."""
    rest = cell
    while rest and (rest[0].isspace() or not rest[0].isprintable()):
        rest = rest[1:]
    return (not rest or rest[0] not in TRIGGERS) and not cell.startswith(("\t", "\r", "\n"))


@settings(max_examples=120, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(ids=IDS)
def test_no_cell_is_a_formula_and_no_id_is_lost(ids: list[str], tmp_path: Path) -> None:
    WRITERS["csv"](members(ids), tmp_path / "a.csv")
    with (tmp_path / "a.csv").open(newline="", encoding="utf-8") as file:
        cells = [row["user_id"] for row in csv.DictReader(file)]
    assert all(harmless(cell) for cell in cells)
    assert [cell.removeprefix(MARK) for cell in cells] == ids
    assert marked(members(ids)) == sum(cell != own for cell, own in zip(cells, ids, strict=True))


def test_texts_stand_in_quotes_so_that_another_separator_cuts_nothing_out(tmp_path: Path) -> None:
    WRITERS["csv"](members(["a;=1+1", "b"]), tmp_path / "a.csv")
    assert '"a;=1+1"' in (tmp_path / "a.csv").read_text()


@pytest.mark.parametrize("form", ["parquet", "jsonl"])
def test_programs_get_ids_as_they_are(form: str, tmp_path: Path) -> None:
    ids = ["=1", "u1", "ü\n2"]
    WRITERS[form](members(ids), tmp_path / f"a.{form}")  # type: ignore[index]
    if form == "parquet":
        found = pl.read_parquet(tmp_path / "a.parquet")["user_id"].to_list()
    else:
        found = [json.loads(line)["user_id"] for line in (tmp_path / "a.jsonl").read_text().split("\n") if line]
    assert found == ids


def test_overlaps_tell_nothing_about_few() -> None:
    def audience(first: int, last: int, arm: str = "treatment") -> pl.DataFrame:
        return pl.DataFrame({"user_id": [f"u{number}" for number in range(first, last)], "arm": arm})

    table = overlaps({"a": audience(0, 200), "b": audience(100, 300, "control"), "c": audience(190, 400)})
    shown = table.rows(named=True)
    assert [(row["in both"], row["arms at odds"]) for row in shown] == [("100", "100"), ("<50", "<50"), ("110", "110")]
    assert shown[0]["in both"] == "100" and shown[0]["of the first"] == "50.0 %" and shown[0]["arms at odds"] == "100"
    assert shown[1]["in both"] == "<50" and shown[1]["of the first"] == "–"
    nearly = overlaps({"a": audience(0, 200), "b": audience(3, 300)}).row(0, named=True)
    assert nearly["in both"] == "all but <50 of the smaller" and nearly["of the second"] == "–"
