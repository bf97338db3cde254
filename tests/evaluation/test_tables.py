"""Tables carry intervals, gains and provenance, and name the best honestly."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import polars as pl
import pytest

from merit.core import console
from merit.core.errors import DataError
from merit.core.ragged import Ragged
from merit.evaluation.classification import EvaluationConfig, MetricKey, measure
from merit.evaluation.exposure_bias import exposure
from merit.evaluation.predictions import Predictions
from merit.evaluation.tables import (
    EXPOSURE,
    HEADLINE,
    SCHEMA,
    compare,
    headline,
    leaders,
    markdown,
    pick,
    show,
    soft_of,
)
from tests.evaluation.worlds import world

USERS = 80


@pytest.fixture(scope="module")
def figures() -> pl.DataFrame:
    rng = np.random.default_rng(0)
    golds = [[int(rng.integers(0, 36))] for _ in range(USERS)]
    truth = world(golds)

    def run(method: str, seed: int, skill: float) -> Predictions:
        lists = [[gold[0] if rng.random() < skill else (gold[0] + 18) % 36] for gold in golds]
        return Predictions(method, seed, Ragged.of(lists), command=f"merit predict {method}", commit="abc")

    runs = [run("weak|one", 0, 0.2), run("trivial", 0, 0.4), run("good", 1, 0.8), run("good", 2, 0.9)]
    return compare([(each, measure(each, truth) | exposure(each, truth)) for each in runs], USERS, 7, resamples=200)


def test_figures_are_complete_and_paired(figures: pl.DataFrame) -> None:
    assert figures.schema == SCHEMA
    recall = pick(figures, MetricKey("recall", "soft"))
    rows = {row["method"]: row for row in recall.iter_rows(named=True)}
    assert list(rows) == ["weak|one", "trivial", "good"]
    assert (rows["good"]["seeds"], rows["good"]["commit"], rows["good"]["users"]) == (2, "abc", USERS)
    assert (rows["trivial"]["gain"], rows["trivial"]["gain_low"], rows["trivial"]["gain_high"]) == (0, 0, 0)
    assert rows["good"]["gain"] == pytest.approx(rows["good"]["value"] - rows["trivial"]["value"])
    assert 0 < rows["good"]["gain_low"] < rows["good"]["gain"] < rows["good"]["gain_high"]
    assert rows["good"]["spread"] > 0


def test_headline_is_sorted_and_says_where_it_came_from(figures: pl.DataFrame) -> None:
    table = headline(figures)
    assert table["method"].to_list() == ["good", "trivial", "weak|one"]
    assert table.columns[:3] == ["method", "recall", "Δ recall"]
    assert table.columns[-4:] == ["users", "seeds", "commit", "command"]
    value = pick(figures, MetricKey("recall", "soft")).filter(pl.col("method") == "good")["value"][0]
    assert table["recall"][0].startswith(f"{100 * value:.1f} [")
    assert table["Δ recall"][0].startswith("+") and table["Δ recall"][1] == "+0.0 [+0.0, +0.0]"
    assert table["predictions per user"][0] == "1.0 [1.0, 1.0]"


def test_tables_follow_the_threshold_that_was_judged() -> None:
    truth = world([[0], [9]])
    for threshold, right in ((0.9, 0), (0.7, 0.5)):  # 30° apart
        config = EvaluationConfig(thresholds=(threshold, 0.8), resamples=100)
        run = Predictions("trivial", 0, Ragged.of([[3], [20]]))
        metrics = measure(run, truth, config) | exposure(run, truth, config)
        figures = compare([(run, metrics)], truth.users, 7, resamples=100)
        assert soft_of(figures) == f"{threshold:g}"
        assert headline(figures)["recall@10"][0].startswith(f"{100 * right:.1f} [")
        assert headline(figures, EXPOSURE, ())["near-correlates @10"][0] is not None


def test_markdown_and_terminal(figures: pl.DataFrame, capsys: pytest.CaptureFixture[str]) -> None:
    best = leaders(figures, HEADLINE)
    assert best["recall"] == "good" and "predictions per user" not in best
    text = markdown(headline(figures), best)
    assert "| good | **" in text and "weak\\|one" in text
    assert {line.count(" | ") for line in text.strip().split("\n")} == {len(headline(figures).columns) - 1}
    assert text.splitlines()[1].split(" | ")[1] == "---"
    show("Results", headline(figures, EXPOSURE, ()), best)
    assert "Results" in capsys.readouterr().out


def test_a_table_on_the_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    shown: list[list[list[str]]] = []
    monkeypatch.setattr(console, "show_table", lambda title, columns, rows: shown.append(rows))
    table = pl.DataFrame({"method": ["a", "[b]"], "recall": ["1.0 [0, 2]", None], "users": [1_000, 2]})
    show("Results", table, {"recall": "a"})
    show("Results", table)
    assert shown[0] == [["a", "[bold]1.0 [0, 2][/bold]", "1,000"], ["\\[b]", "–", "2"]]
    assert shown[1][0] == ["a", "1.0 [0, 2]", "1,000"]
    assert markdown(table, {"recall": "a"}).splitlines()[2:] == ["| a | **1.0 [0, 2]** | 1000 |", "| [b] | – | 2 |"]


def test_equals_are_in_the_order_of_their_names_and_what_was_not_measured_is_last() -> None:
    truth = world([[0], [9]])
    right = Predictions("c", 0, Ragged.of([[0], [9]]))
    runs = [right, replace(right, method="trivial"), replace(right, method="b")]
    silent = Predictions("a", 0, Ragged.of([[], []]))
    made = [(each, measure(each, truth)) for each in [*runs, silent]]
    columns = {"precision": MetricKey("precision", "0.7"), "recall": MetricKey("recall", "soft")}
    figures = compare(made, 2, 7, resamples=100)
    table = headline(figures, columns, ())
    assert table["method"].to_list() == ["b", "c", "trivial", "a"]
    assert table["precision"].to_list()[2:] == ["100.0 [100.0, 100.0]", None]
    assert "Δ recall" not in table.columns
    assert leaders(figures, columns) == {"precision": "b", "recall": "b"}


def test_an_absent_figure_is_an_empty_column(figures: pl.DataFrame) -> None:
    assert headline(figures, EXPOSURE, ())["recall lost"].is_null().all()


def test_nothing_to_compare_with() -> None:
    truth = world([[0]])
    only = Predictions("m", 0, Ragged.of([[0]]))
    with pytest.raises(DataError, match="no method 'trivial'"):
        compare([(only, measure(only, truth))], 1, 7)
    with pytest.raises(DataError):
        compare([(replace(only, method="x"), {})], 1, 7, against="m")
