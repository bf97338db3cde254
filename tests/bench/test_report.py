"""JSON, Markdown and page say the same, in plain words, and nothing of anybody."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import polars as pl
import pytest

from merit.bench.config import BenchConfig
from merit.bench.report import BEGIN, END, SHOWN, bench_page, document, foremost, inserted, overview, scatter
from merit.bench.results import (
    COLUMNS,
    UNION,
    BenchResults,
    claims,
    duels,
    dumped,
    figure_rows,
    paper,
    read,
    read_all,
    sentences,
    verdicts,
    write,
)
from merit.bench.tables import TABLES, parts
from merit.core import artifacts, config
from merit.core.errors import ConfigError, DamagedArtifact, MissingArtifact
from merit.data.prepare import shards
from merit.evaluation import tables
from merit.evaluation.classification import MetricKey
from merit.evaluation.ranking import hit_key
from merit.report.charts import on_white
from merit.report.page import render
from tests.bench.conftest import VARIANTS, Small

ROOT = Path(__file__).parents[2]


@pytest.fixture
def results(grid: Small) -> BenchResults:
    return grid.outcome.results[0]


def row(
    method: str, key: MetricKey, value: float, lead: tuple[float, float, float] | None = None, users: int = 100
) -> list:  # type: ignore[type-arg]
    """A figure as the JSON file has it."""
    spans = [value, value - 0.01, value + 0.01, None, users, 1, 0.0, 0.0, 0.0]
    return [method, *key, *spans, *(lead or (None, None, None))]


def made(results: BenchResults, rows: list[list[Any]], **changes: Any) -> BenchResults:
    return results.model_copy(update={"figures": rows} | changes)


def test_json_is_read_as_it_was_written(results: BenchResults, tmp_path: Path) -> None:
    write(results, tmp_path / "planted.json")
    assert read(tmp_path / "planted.json") == results
    assert dumped(read(tmp_path / "planted.json")) == dumped(results)
    assert read_all(tmp_path, ["nothing", "planted"]) == [results]
    (tmp_path / "broken.json").write_text("{}")
    with pytest.raises(DamagedArtifact):
        read(tmp_path / "broken.json")
    with pytest.raises(MissingArtifact, match="merit bench"):
        read_all(tmp_path, ["nothing"])


def test_few_users_leave_no_figure(results: BenchResults) -> None:
    frame = results.frame()
    assert frame["users"].min() >= 50  # type: ignore[operator]
    few = frame.with_columns(users=pl.when(pl.col("method") == "linear").then(49).otherwise("users"))
    assert {each[0] for each in figure_rows(few)} == set(frame["method"]) - {"linear"}


def test_every_table_has_its_methods_budget_and_paper(results: BenchResults) -> None:
    for name in set(TABLES) - {"verticals", "novel"}:  # of a shop this small, too few users
        for part in parts(name, results):
            assert len(part.frame) and "Budget: 5 s" in part.note, name
    (part,) = parts("classification", results)
    cells = {each["method"]: each for each in part.frame.iter_rows(named=True)}
    assert cells["MERIT"]["paper Δ recall"] == "+14.1" and cells["linear"]["paper Δ recall"] is None
    assert "tab:main_results" in part.note
    assert {each["method"] for each in parts("objectives", results)[0].frame.iter_rows(named=True)} >= {
        "teacher-forcing",
        "self-correction (β = 0)",
    }
    assert "linear" not in parts("objectives", results)[0].frame["method"]
    with pytest.raises(ConfigError, match="no table 'hists'"):
        parts("hists", results)


def test_the_figures_of_the_paper_are_those_of_its_rows() -> None:
    told = paper()
    rows = set(told["rows"].values())
    for section in ("main", "thresholds", "hits"):
        for column in (value for value in told[section].values() if isinstance(value, dict)):
            assert set(column) <= rows
    assert told["main"]["recall"]["MERIT"] - told["main"]["recall"]["XLGen"] == pytest.approx(12.0)
    swept = [told["thresholds"][tau]["MERIT"] for tau in ("0.7", "0.8", "0.9")]
    assert told["thresholds"]["auc"]["MERIT"] == pytest.approx((swept[0] / 2 + swept[1] + swept[2] / 2) / 2, abs=0.1)


def test_variants_are_counted_where_they_beat_both_dual_encoders(results: BenchResults) -> None:
    values = {"MERIT": (0.4, 0.3), "MERIT, k_g = 1": (0.4, 0.1), "DEXML-DS": (0.2, 0.2), "DEXML-STk": (0.1, 0.25)}
    rows = [row(name, hit_key(0.05, "VW"[at]), both[at]) for name, both in values.items() for at in (0, 1)]
    won = parts("variants", made(results, rows))[-1]
    assert won.frame.rows() == [
        ("MERIT", "0/0", "0/0", "2/2", "0/0", "0/0", "2/2", "100%"),
        ("MERIT, k_g = 1", "0/0", "0/0", "1/2", "0/0", "0/0", "1/2", "50%"),
    ]


def test_verticals_and_new_labels_have_tables_where_there_are_users(results: BenchResults) -> None:
    rows = [
        row("MERIT", MetricKey("recall", "exact", 20, "novel"), 0.3),
        row("MERIT", MetricKey("recall", "0.8", vertical="V"), 0.2),
    ]
    rows += [row("MERIT", hit_key(0.05, "V"), 0.4)]
    own = made(results, rows)
    assert parts("novel", own)[0].frame["exact"][0] == "30.0 [29.0, 31.0]"
    assert parts("verticals", own)[0].frame["V"][0] == "20.0 [19.0, 21.0]"
    assert any("k = 5%" in part.title and "V" in part.frame.columns for part in parts("hits", own))


def test_the_verdict_is_the_interval(results: BenchResults) -> None:
    keys = [MetricKey("recall", "exact", k) for k in (5, 10, 20)]
    leads = [(0.02, 0.01, 0.03), (0.01, -0.01, 0.03), (-0.02, -0.03, -0.01)]
    rows = [row("MERIT", key, 0.5) for key in keys]
    rows += [row("linear", key, 0.4, lead) for key, lead in zip(keys, leads, strict=True)]
    rows += [row("self-correction (β = 0)", key, 0.9, (0, 0, 0)) for key in keys]  # ours: no rival
    rows += [row("popularity", key, 0.3, (0.2, 0.1, 0.3)) for key in keys]  # not the best
    own = made(results, rows)
    assert [(duel.other, duel.verdict) for duel in duels(own)] == [
        ("linear", "ahead"),
        ("linear", "level"),
        ("linear", "behind"),
    ]
    told = " ".join(sentences([own]))
    assert "ahead in 1, level (the interval includes zero) in 1, behind in 1" in told
    assert (
        "behind in recall at 20 labels, exact (linear, -2.0 [-3.0, -1.0] points); level with the best other in 1 of 3"
        in told
    )
    assert verdicts([own]).rows() == [
        ("recall at 5 labels, exact", "ahead: 50.0 against 40.0 of linear, +2.0 [+1.0, +3.0]"),
        ("recall at 10 labels, exact", "level: 50.0 against 40.0 of linear, +1.0 [-1.0, +3.0]"),
        ("recall at 20 labels, exact", "behind: 50.0 against 40.0 of linear, -2.0 [-3.0, -1.0]"),
    ]


def test_first_everywhere_and_nothing_to_say(results: BenchResults) -> None:
    key = MetricKey("recall", "exact", 5)
    rows = [row("MERIT", key, 0.5), row("linear", key, 0.4, (0.1, 0.05, 0.2))]
    assert "MERIT is first by every figure." in sentences([made(results, rows)])[1]
    alone = made(results, rows[1:], missing={"planted/MERIT/seed 1": "The disk is full."})
    told = sentences([alone])
    assert "nothing can be compared" in told[0] and "The disk is full." in told[-1]


def test_lists_of_a_hundred_are_no_rival_at_free_length(results: BenchResults) -> None:
    free, ten = MetricKey("recall", "exact"), MetricKey("recall", "exact", 10)
    rows = [row("MERIT", key, 0.5) for key in (free, ten)]
    rows += [row("DEXML-DS, top 100", key, 0.9, (-0.4, -0.5, -0.3)) for key in (free, ten)]
    rows += [row("trivial", key, 0.2, (0.3, 0.2, 0.4)) for key in (free, ten)]
    rows += [row(name, MetricKey("predictions"), size) for name, size in (("MERIT", 7.0), ("trivial", 3.9))]
    first, second = duels(made(results, rows))
    assert first.other == "trivial" and "7.0 against 3.9 labels" in first.what
    assert second.other == "DEXML-DS, top 100"


def test_claims_stand_beside_the_paper(results: BenchResults) -> None:
    rows = [
        row("MERIT", MetricKey("recall", "0.8"), 0.5),
        row("trivial", MetricKey("recall", "0.8"), 0.4, (0.1, 0.05, 0.15)),
    ]
    rows += [row(UNION, MetricKey("recall", "0.8"), 0.3, (0.2, 0.1, 0.3))]
    claimed = claims(made(results, rows))
    assert claimed.rows()[0][1:] == ("+11.9", "+10.0 [+5.0, +15.0]")
    assert claimed.rows()[1][1:] == ("+6.8", "+20.0 [+10.0, +30.0]")


def test_the_document_goes_between_the_marks() -> None:
    assert inserted("new\n", "old") == inserted("new\n", "") == "new\n"
    old = f"before\n{BEGIN}\nold\n{END}\nafter\n"
    once = inserted("new\n", old)
    assert once == f"before\n{BEGIN}\nnew\n{END}\nafter\n"
    assert inserted("new\n", once) == once


def test_the_document_says_what_the_tables_say(results: BenchResults) -> None:
    text = document([results])
    for name in TABLES:
        for part in parts(name, results):
            assert part.markdown() in text
    for sentence in sentences([results]):
        assert sentence in text
    assert tables.markdown(verdicts([results])) in text
    assert results.commit in text and "seeds" in text


def test_the_page_is_whole_and_names_nobody(grid: Small, results: BenchResults) -> None:
    html = render(bench_page([results]))
    for phrase in (
        "Is MERIT first?",
        "Equal budgets",
        "Cost",
        "keep their word",
        "Cascades in pictures",
        "paper claims",
    ):
        assert phrase in html, phrase
    for sentence in sentences([results]):
        assert sentence.split(" (")[0] in html
    assert html.index("Is MERIT first?") < html.index("planted: ")
    assert not re.search(r"(src|href)=\"(?!#)|<script|@import", html)
    people = [name for part in shards(artifacts.load(grid.folder / "examples")) for name in part.users["user_id"]]
    written = html + dumped(results) + document([results])
    assert people and not [name for name in people if re.search(rf"\b{re.escape(name)}\b", written)]


def test_curves_show_our_method_among_the_best(results: BenchResults) -> None:
    names = {f"method {number}": 0.9 - number / 100 for number in range(8)} | {"MERIT": 0.1, VARIANTS[0]: 0.95}
    rows = [row(name, MetricKey("recall", "exact", 10), value) for name, value in names.items()]
    kept = set(foremost(made(results, rows))["method"])
    assert kept == {"MERIT", "method 0", "method 1", "method 2", "method 3"}


def test_the_scatter_tells_its_points(results: BenchResults) -> None:
    assert re.search(r"MERIT \d+ s, \d+\.\d", scatter(results))


def test_the_picture_has_every_method_of_the_grid_once(results: BenchResults) -> None:
    rows = [row(name, SHOWN, 0.4) for name in ("MERIT", "trivial", *VARIANTS)]
    two = made(results, rows).model_copy(update={"seeds": {name: [1] for name in ("MERIT", "trivial", *VARIANTS)}})
    drawn = on_white(overview([two, two]))
    assert drawn.count(">trivial</text>") == drawn.count(">states only</text>") == 1  # named once, beside both panels
    assert VARIANTS[0] not in drawn
    assert "currentColor" not in drawn and drawn.startswith("<svg")


def test_columns_are_those_of_the_evaluator(results: BenchResults) -> None:
    assert len(COLUMNS) == len(results.figures[0])
    assert tables.SCHEMA.keys() - set(COLUMNS) == {"command", "commit"}


@pytest.mark.parametrize(("page", "results"), [("results.md", "results"), ("results-several.md", "results/several")])
def test_the_documents_of_the_project_are_what_its_results_say(page: str, results: str) -> None:
    settings = config.load(BenchConfig, ROOT / "configs/bench.toml")
    folder, text = ROOT / results, (ROOT / "docs" / page).read_text(encoding="utf-8")
    assert inserted(document(read_all(folder, list(settings.datasets))), text) == text
