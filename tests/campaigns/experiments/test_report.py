"""The lift report: complete, self-contained, and silent about fewer than 50 users."""

from __future__ import annotations

import re
from pathlib import Path

import polars as pl
import pytest

from merit.campaigns.experiments.analysis import Analysis, analyse
from merit.campaigns.experiments.charts import density, forest
from merit.campaigns.experiments.checks import p_value, user_count
from merit.campaigns.experiments.lift import Lift, published
from merit.campaigns.experiments.outcomes import tabulate
from merit.campaigns.experiments.pooling import pool, pool_page
from merit.campaigns.experiments.report import lift_page
from merit.report.page import render, share, signed
from tests.campaigns.worlds import KNOWN, design, outcomes

RULES = {"treatment": "model", "control": "human"}


def told(folder: Path, tiny: int = 0, crossed: int = 0) -> Analysis:
    """`tiny`: users of a segment of their own. `crossed`: users who are also in the other arm."""
    place = pl.int_range(pl.len())
    frame = outcomes(4_000, lift=0.3).with_columns(
        vertical=pl.when(place < tiny).then(pl.lit("<rare>")).otherwise("vertical"),
        model=place % 3 == 0,
        human=place % 3 == 1,
    )
    other = pl.when(pl.col("arm") == "merit").then(pl.lit("expert")).otherwise(pl.lit("merit"))
    pl.concat([frame, frame.tail(crossed).with_columns(arm=other)]).write_parquet(folder / "users.parquet")
    agreed = design(
        name="Trail <running>", covariates=("orders_before", "visits_before"), segment="vertical", policies=RULES
    )
    return analyse(agreed, tabulate(agreed, folder / "users.parquet"), KNOWN)


def test_every_part_is_there_and_nothing_is_fetched(tmp_path: Path) -> None:
    analysis = told(tmp_path)
    page = lift_page(analysis)
    titles = " ".join(section.title for section in page.sections)
    for part in (
        "Decision",
        "measured",
        "prior",
        "counted",
        "Covariates",
        "vertical",
        "Rule",
        "Agreed",
        "not to believe",
    ):
        assert part in titles
    html = render(page)
    assert html.count("<svg") == 5 and "aria-label" in html
    assert not re.search(r"(src|href)=\"(?!#)|<script|@import", html)
    assert "Trail <running>" not in html and "Trail &lt;running&gt;" in html
    assert page.subtitle == analysis.sentence and page.tiles[0].value == "Ship"


def test_a_broken_comparison_has_no_headline_figure(tmp_path: Path) -> None:
    analysis = told(tmp_path, crossed=300)
    page = lift_page(analysis)
    assert analysis.verdict == "blocked" and page.sections[0].title == "What to know first"
    assert [tile.label for tile in page.tiles] == ["Decision", "Users compared"]
    assert "no evidence" in page.sections[0].text[0]


def test_fewer_than_50_users_give_no_figure(tmp_path: Path) -> None:
    analysis = told(tmp_path)
    few = tuple(arm.model_copy(update={"users": 49}) for arm in analysis.arms)
    page = lift_page(analysis.model_copy(update={"arms": few}))
    assert [section.title for section in page.sections] == ["Too few users"] and not page.tiles


def test_a_small_segment_is_hidden_and_cannot_be_worked_out(tmp_path: Path) -> None:
    page = lift_page(told(tmp_path, tiny=30))
    section = next(section for section in page.sections if section.title == "By vertical")
    rows = {row["segment"]: row for row in section.tables[0].frame.iter_rows(named=True)}
    assert rows["<rare>"]["users"] == "<50" and rows["<rare>"]["alone"] is None
    assert [row["users"] for row in rows.values()].count("withheld") == 1


def test_few_crossovers_are_not_counted_out(tmp_path: Path) -> None:
    html = render(lift_page(told(tmp_path, crossed=20)))
    assert "fewer than 50 users are in more than one arm" in html and "not drawn" in html


def test_a_small_group_of_the_rules_is_not_split(tmp_path: Path) -> None:
    analysis = told(tmp_path)
    small = tuple(
        group.model_copy(update={"users": 30}) if "human" in group.name or "expert only" in group.name else group
        for group in analysis.groups
    )
    page = lift_page(analysis.model_copy(update={"groups": small}))
    table = next(section for section in page.sections if section.title == "Rule against rule").tables[0].frame
    assert table["users for whom"].to_list() == ["the rules differ", "the rules agree"]


def test_pooled_campaigns_have_a_page() -> None:
    lifts = {"a <b>": published(0.002, -0.001, 0.005), "c": published(0.003, 0.0, 0.006)}
    html = render(pool_page(lifts, pool(list(lifts.values()))))
    assert html.count("<svg") == 2 and "a &lt;b&gt;" in html and "prior = {" in html


@pytest.mark.parametrize("lift", [Lift(0.02, 0.01), Lift(-0.3, 0.001), Lift(0.0, 0.2)])
def test_charts_of_any_lift(lift: Lift) -> None:
    assert "lies above zero" in density(lift)
    assert "Lifts with 95 % intervals" in forest({"x": (lift.value, *lift.interval())})


def test_figures_as_text() -> None:
    assert signed(0.0023) == "+0.23 %" and signed(-0.5) == "−50.00 %"
    assert share(0.98123) == "98.1 %" and share(0.99999) == "more than 99.9 %" and share(0.00001) == "less than 0.1 %"
    assert user_count(120, 5_000) == "120 users (2.40 %)" and user_count(12, 5_000) == "fewer than 50 users"
    assert p_value(1e-9) == "below one in a million" and p_value(0.0123) == "0.012"
