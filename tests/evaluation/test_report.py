"""The results page: complete, self-contained, and silent about fewer than 50 users."""

from __future__ import annotations

import re

import numpy as np
import polars as pl
import pytest

from merit.core.ragged import Ragged
from merit.evaluation import tables
from merit.evaluation.calibration import Bins
from merit.evaluation.classification import measure
from merit.evaluation.exposure_bias import LOST, RARE, exposure, pictures, recall_lost
from merit.evaluation.predictions import Predictions, Truth
from merit.evaluation.ranking import measure_audiences
from merit.evaluation.report import audience_section, reliability_section, results_page
from merit.evaluation.tables import compare
from merit.report.page import Page, render
from tests.evaluation.worlds import world

TEXTS = [f"label <{number}>" for number in range(36)]


def people(users: int) -> tuple[Truth, Predictions, Predictions]:
    rng = np.random.default_rng(0)
    golds = [sorted(rng.choice(36, 2, replace=False).tolist()) for _ in range(users)]
    golds = [[gold for gold in row if gold < 18 or place < 60] or [0] for place, row in enumerate(golds)]
    circling = [[(row[0] + 9 + step) % 36 for step in range(4)] for row in golds]
    spread = [[(row[0] + 9 * step) % 36 for step in range(4)] for row in golds]
    first, second = (
        Predictions(method, 1, Ragged.of(lists), command=f"merit predict {method}", commit="c0ffee")
        for method, lists in (("trivial", circling), ("self-correction", spread))
    )
    return world(golds), first, second


def figures(users: int) -> pl.DataFrame:
    truth, first, second = people(users)
    lost = {LOST: recall_lost(second, second, truth)}
    runs = [(first, measure(first, truth) | exposure(first, truth))]
    runs += [(second, measure(second, truth) | exposure(second, truth) | lost)]
    return compare(runs, users, 7, resamples=100)


@pytest.fixture(scope="module")
def page() -> Page:
    truth, first, second = people(150)
    drawn = pictures(first, second, truth, TEXTS, np.array([100, 3] * 18), seed=7)
    return results_page(figures(150), drawn)


def test_every_part_is_there(page: Page) -> None:
    titles = [section.title for section in page.sections]
    for part in (
        "equal terms",
        "budgets",
        "new to the user",
        "strict",
        "confound",
        "Exposure",
        "pictures",
        "come from",
    ):
        assert any(part in title for title in titles), part
    html = render(page)
    assert "merit predict self-correction" in html and "c0ffee" in html
    assert html.count("<svg") == 3 + 1 + 1 + 3
    assert not re.search(r"(src|href)=\"(?!#)|<script|@import", html)


def test_labels_are_text_and_rare_ones_are_not_named(page: Page) -> None:
    html = render(page)
    assert "label <" not in html and "label &lt;" in html
    assert RARE in html
    assert not re.search(r"label &lt;\d*[13579]&gt;", html)  # odd labels have 3 users


def test_one_cluster_has_one_letter_in_both_lists() -> None:
    truth, first, second = people(150)
    common = np.full(36, 100)
    for picture in pictures(first, second, truth, [str(label) for label in range(36)], common, seed=3, number=20):
        rows = picture.with_columns(cluster=pl.col("text").cast(pl.Int64) * 10 // 90)
        lettered = rows.filter(pl.col("mark") != "–")
        assert lettered.select("cluster", "mark").unique().height == lettered["cluster"].n_unique()
        assert lettered["cluster"].n_unique() == lettered["mark"].n_unique()
        circling = rows.filter(pl.col("method") == "trivial")
        assert (circling["mark"] != "–").any()
    again = pictures(first, second, truth, TEXTS, common, seed=3, number=20)
    assert again[0].equals(pictures(first, second, truth, TEXTS, common, seed=3, number=20)[0])


def test_fewer_than_50_users_give_no_figure() -> None:
    small = results_page(figures(49))
    assert [section.title for section in small.sections] == ["Too few users"]
    assert not small.tiles


def test_a_small_vertical_is_hidden_and_the_rest_shown() -> None:
    found = figures(150)
    cut = found.with_columns(users=pl.when(pl.col("vertical") == "lower").then(49).otherwise("users"))
    table = next(s for s in results_page(cut).sections if s.title == "Verticals").tables[0].frame
    rows = {row["vertical"]: row for row in table.iter_rows(named=True)}
    assert rows["lower"]["users"] == "<50" and rows["lower"]["trivial"] is None
    assert rows["upper"]["trivial"] is not None


def test_a_small_slice_is_hidden_in_tables_and_charts() -> None:
    found = figures(150)
    novel = pl.col("part") == "novel"
    cut = found.with_columns(
        users=pl.when(novel).then(49).otherwise("users"), value=pl.when(novel).then(98.76).otherwise("value")
    )
    section = next(s for s in results_page(cut).sections if "new to the user" in s.title)
    assert section.tables[0].frame["users"].to_list() == ["<50", "<50"]
    assert section.tables[0].frame.columns == ["method", "users"]
    assert not re.search(r"9,?876", render(results_page(cut)))
    assert re.search(r"9,?876", render(results_page(cut.with_columns(users=pl.lit(50)))))


def _audiences() -> pl.DataFrame:
    """Two verticals: 380 users want something of the first, 20 something of the second."""
    gold = Ragged.of([[0] if user < 380 else [1] for user in range(400)])
    none = np.zeros(0, np.int32)
    nothing = Ragged(np.zeros(400 + 1, np.int64), none)
    truth = Truth(
        gold=gold,
        bought=gold,
        history=nothing,
        counts=none,
        purchases=none,
        user=np.arange(400),
        vertical=np.array([0, 1]),
        verticals=["food", "garden"],
        vectors=np.eye(2, dtype=np.float32),
        cluster=np.zeros(2, np.int64),
    )
    scores = np.random.default_rng(0).random((400, 2)).astype(np.float32)
    shares = np.eye(2, dtype=np.float32)
    judged = [
        (
            Predictions(name, 1, nothing),
            measure_audiences(lambda labels: scores[:, labels], truth, shares),
        )
        for name in ("history frequency", "ours")
    ]
    return tables.compare(judged, 400, 7, "history frequency", 100)


def test_small_verticals_are_left_out_and_counted() -> None:
    by_vertical = audience_section(_audiences(), "history frequency").tables[-1]
    assert by_vertical.frame["vertical"].to_list() == ["food"]
    assert "1 verticals with fewer than 50" in by_vertical.note


def test_the_sections_make_a_page_that_asks_for_nothing() -> None:
    bins = Bins.empty(2)
    rng = np.random.default_rng(0)
    chance = rng.random(5000) ** 3
    bins.add(chance, rng.random(5000) < chance, rng.integers(2, size=5000))
    sections = (
        audience_section(_audiences(), "history frequency"),
        reliability_section(bins.table(["food", "garden"])),
    )
    html = render(Page("Results", "", sections))
    assert "Users for an interest" in html
    assert "Expected calibration error" in html
    assert "://" not in html.replace("http://www.w3.org", "")
