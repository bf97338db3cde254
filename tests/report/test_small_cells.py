"""What is told about fewer than 50 users: nothing, and nothing from which it could be worked out."""

from __future__ import annotations

import polars as pl
from hypothesis import given
from hypothesis import strategies as st

from merit.evaluation.calibration import Reliability
from merit.report.page import SMALLEST_CELL, TOO_FEW, WITHHELD, large_enough, suppress
from merit.retrieval import build

USERS = st.lists(st.integers(0, 200), min_size=1, max_size=8)


def table(users: list[int]) -> pl.DataFrame:
    rows = [(f"row {place}", count, 3 * count) for place, count in enumerate(users)]
    return pl.DataFrame(rows, schema={"name": pl.String, "users": pl.Int64, "events": pl.Int64}, orient="row")


@given(USERS, st.booleans())
def test_no_cell_of_few_is_told(users: list[int], partition: bool) -> None:
    shown = suppress(table(users), keep=("name",), partition=partition)
    for count, told, events in zip(users, shown["users"], shown["events"], strict=True):
        assert (told == TOO_FEW) == (count < SMALLEST_CELL)
        assert (events is None) == (told in (TOO_FEW, WITHHELD))
    assert shown["name"].to_list() == table(users)["name"].to_list()


@given(USERS)
def test_a_cell_of_few_cannot_be_worked_out_from_a_total(users: list[int]) -> None:
    """Of rows that add up to a known total, none or several are hidden; only a table of one row has no choice."""
    shown = suppress(table(users), keep=("name",), partition=True)
    hidden = shown["events"].null_count()
    assert hidden != 1 or len(users) == 1
    assert hidden == 0 or min(users) < SMALLEST_CELL


@given(USERS, st.booleans())
def test_machines_are_told_what_people_are(users: list[int], partition: bool) -> None:
    people = suppress(table(users), keep=("name",), partition=partition).drop_nulls("events")
    machines = large_enough(table(users), partition=partition)
    assert machines.select("name", "events").equals(people.select("name", "events"))


def test_a_model_card_names_no_vertical_of_few_pairs() -> None:
    overall = Reliability(ece=0.01, ece_likely=0.01, brier=0.1, prevalence=0.1, pairs=9_000)
    verticals = pl.DataFrame({"vertical": ["rare", "large"], "ece": [0.5, 0.4], "pairs": [SMALLEST_CELL - 1, 900]})
    told = build._weak_verticals(overall, verticals)
    assert "large" in told and "rare" not in told
