"""Judged pairs against cosines: the sheet, and the threshold that agrees with it."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import polars as pl
import pytest

from merit.core.errors import DataError
from merit.core.ragged import Ragged
from merit.evaluation import judging
from merit.evaluation.judging import COLUMNS, EDGES, GRID, agreements, by_bin, draw, read_sheets
from merit.evaluation.matching import NEAR, SOFT
from tests.evaluation.worlds import circle


def judged(*words: str) -> pl.DataFrame:
    return pl.DataFrame({"first": "a", "second": "b", "judgement": list(words), "reason": ""})


def test_the_best_threshold_is_that_of_a_judge_who_follows_one() -> None:
    cosine = np.linspace(0.41, 0.99, 400, dtype=np.float32)
    words = ["same" if each >= 0.8 else "related" if each >= 0.5 else "different" for each in cosine]
    same, near = agreements(judged(*words), cosine, seed=1).rows(named=True)
    assert (same["best"], near["best"]) == (pytest.approx(0.8, abs=0.011), pytest.approx(0.5, abs=0.011))
    assert same["best_agreement"] == near["best_agreement"] == 1
    assert (same["default"], near["default"]) == (SOFT, NEAR)
    assert same["agreement"] == pytest.approx(np.mean((cosine >= SOFT) == (cosine >= 0.8)))
    assert same["low"] <= same["best"] <= same["high"] < 0.83


def test_agreement_equals_its_slow_twin() -> None:
    rng = np.random.default_rng(0)
    cosine = rng.uniform(0.4, 1, 60).astype(np.float32)
    words = rng.choice(["same", "related", "different"], 60).tolist()
    for row, yes in zip(
        agreements(judged(*words), cosine, 1).rows(named=True), (("same",), ("same", "related")), strict=True
    ):

        def right(threshold: float, yes: tuple[str, ...] = yes) -> int:
            return sum((one >= np.float32(threshold)) == (word in yes) for one, word in zip(cosine, words, strict=True))

        assert row["agreement"] == pytest.approx(right(row["default"]) / 60)
        assert row["best_agreement"] == pytest.approx(right(row["best"]) / 60) == max(map(right, GRID)) / 60


def test_a_noisy_judge_gives_a_wide_interval() -> None:
    rng = np.random.default_rng(0)
    cosine = rng.uniform(0.4, 1, 60).astype(np.float32)
    same = agreements(judged(*rng.choice(["same", "different"], 60).tolist()), cosine, 1).row(0, named=True)
    assert same["high"] - same["low"] > 0.2


def test_pairs_are_different_once_and_spread_over_the_bins() -> None:
    degrees = np.arange(0, 66, 0.5).tolist()
    vectors = circle(degrees)
    predicted, gold = Ragged.of([list(range(132)), list(range(40, 60))]), Ragged.of([[0, 1, 2], [50, 51]])
    drawn = draw([predicted, predicted], gold, vectors, 60, seed=3)
    assert len({tuple(pair) for pair in drawn.tolist()}) == len(drawn) == 60
    assert (drawn[:, 0] < drawn[:, 1]).all()
    compared = {
        tuple(sorted((one, other)))
        for row in range(2)
        for one in predicted[row].tolist()
        for other in gold[row].tolist()
    }
    assert {tuple(pair) for pair in drawn.tolist()} <= compared
    bins = np.digitize(np.einsum("ij,ij->i", vectors[drawn[:, 0]], vectors[drawn[:, 1]]), EDGES)
    counts = np.bincount(bins, minlength=13)[1:13]
    assert counts.tolist() == [5] * 12
    assert np.array_equal(drawn, draw([predicted], gold, vectors, 60, seed=3))


def test_sheets_are_read_together_and_unjudged_pairs_left_out(tmp_path: Path) -> None:
    one, two = tmp_path / "one.csv", tmp_path / "two.csv"
    pl.DataFrame({"first": ["a", "1"], "second": ["b", "2"], "judgement": [" Same", None], "reason": None}).write_csv(
        one
    )
    pl.DataFrame({"first": ["x, y"], "second": ['"z"'], "judgement": ["different"], "reason": "no"}).write_csv(two)
    assert read_sheets([one, two]).rows() == [("a", "b", "same", None), ("x, y", '"z"', "different", "no")]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("first,second,judgement,reason\na,b,same,\na,c,alike,\n", "line 3: 'alike' is no judgement"),
        ("first,second,judgement,reason\na,b,,\n", "has no judgement"),
        ("first,second\na,b\n", "no sheet with the columns first, second"),
    ],
)
def test_a_sheet_that_cannot_be_read_says_why(tmp_path: Path, text: str, message: str) -> None:
    sheet = tmp_path / "sheet.csv"
    sheet.write_text(text, encoding="utf-8")
    with pytest.raises(DataError, match=message):
        read_sheets([sheet])
    with pytest.raises(DataError, match="--run RUN"):
        read_sheets([tmp_path / "none.csv"])


def test_a_sheet_is_never_overwritten(tmp_path: Path) -> None:
    sheet = tmp_path / "sheet.csv"
    sheet.write_text(",".join(COLUMNS), encoding="utf-8")
    with pytest.raises(DataError, match="may hold judgements"):
        judging.write_sheet(tmp_path, sheet, 10, 1)


def test_judgements_are_counted_by_bin() -> None:
    table = by_bin(judged("same", "different", "related", "same"), np.array([0.2, 0.62, 0.61, 0.99], np.float32))
    assert table["cosine"].to_list() == ["below 0.40", "0.60–0.65", "0.95–1.00"]
    assert table.select("pairs", "same", "related", "different").rows() == [(1, 1, 0, 0), (2, 0, 1, 1), (1, 1, 0, 0)]
