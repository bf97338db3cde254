"""What is written is what is read, and what would be measured wrongly is refused."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import polars as pl
import pytest

from merit.core.errors import DamagedArtifact, DataError
from merit.core.ragged import Ragged, head
from merit.evaluation.predictions import Predictions, check, read, top, write
from tests.evaluation.worlds import said, world


def rows(lists: Ragged | None) -> list[list[int]] | None:
    return None if lists is None else [lists[place].tolist() for place in range(len(lists))]


@pytest.mark.parametrize("ranked", [None, [[1, 2, 3], [4], []]])
def test_round_trip(tmp_path: Path, ranked: list[list[int]] | None) -> None:
    had = replace(said([[1], [], [2, 3]], "self-correction", ranked), seed=3, command="merit run", commit="abc")
    write(tmp_path / "p.parquet", had)
    got = read(tmp_path / "p.parquet")
    assert (rows(got.free), rows(got.ranked)) == (rows(had.free), rows(had.ranked))
    assert (got.method, got.seed, got.command, got.commit) == ("self-correction", 3, "merit run", "abc")


def test_examples_that_are_missing_or_double_are_refused(tmp_path: Path) -> None:
    whole = tmp_path / "whole.parquet"
    write(whole, said([[0], [1], [2]]))
    frame, facts = pl.read_parquet(whole), {"merit": pl.read_parquet_metadata(whole)["merit"]}
    for wrong in ([0, 2], [0, 1, 1], [1, 0, 2]):
        frame[wrong].write_parquet(whole, metadata=facts)
        with pytest.raises(DataError, match="missing or double"):
            read(whole)


def test_other_files_are_not_predictions(tmp_path: Path) -> None:
    (tmp_path / "x.parquet").write_bytes(b"PAR1 not really")
    pl.DataFrame({"a": [1]}).write_parquet(tmp_path / "y.parquet")
    for name in ("x", "y", "none"):
        with pytest.raises(DamagedArtifact, match="does not hold predictions"):
            read(tmp_path / f"{name}.parquet")


@pytest.mark.parametrize(
    ("lists", "told"),
    [([[0]], "1 predictions for 2"), ([[0], [36]], "outside"), ([[-1], [0]], "outside"), ([[0], [1, 2, 1]], "twice")],
)
def test_wrong_predictions_are_refused(lists: list[list[int]], told: str) -> None:
    truth = world([[0], [1]])
    for predictions in (said(lists), Predictions("m", 0, Ragged.of([[0], [1]]), Ragged.of(lists))):
        with pytest.raises(DataError, match=rf"^m \(seed 0\) .*{told}"):
            check(predictions, truth)


def test_top_is_live_best_first_and_of_equals_the_lower_id() -> None:
    scores = np.array([[3, 9, 3, 1], [0, 0, 0, 0]], np.float32)
    assert rows(top(scores, np.array([0, 2, 3]), 2)) == [[0, 2], [0, 2]]
    assert rows(top(scores, np.array([0, 2, 3]))) == [[0, 2, 3], [0, 2, 3]]


def test_head() -> None:
    assert rows(head(Ragged.of([[1, 2, 3], [], [4]]), 2)) == [[1, 2], [], [4]]
    assert rows(head(Ragged.of([[1, 2, 3], [], [4, 5]]), np.array([1, 3, 0]))) == [[1], [], []]
