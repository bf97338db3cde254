"""Recall by training time says what the results say, over the results that are kept here."""

from __future__ import annotations

from pathlib import Path

import pytest

from benchmarks.training_time import METHODS, apart, drawn, in_points, points
from merit.bench.config import MERIT
from merit.bench.results import BenchResults, read

KEPT = Path(__file__).parents[2] / "results" / "amazon_beauty.json"


@pytest.fixture(scope="module")
def results() -> BenchResults:
    return read(KEPT)


def test_a_row_is_what_a_method_took_and_found(results: BenchResults) -> None:
    found = {row["method"]: row for row in points(results).to_dicts()}
    took = {each.method: each.train_seconds for each in results.costs}
    assert list(found) == list(METHODS)
    assert all(found[name]["seconds"] == took[name] for name in METHODS)
    assert all(found[name]["@5"] < found[name]["@10"] < found[name]["@20"] for name in METHODS)
    assert [name for name in METHODS if found[name]["lead @10"] is None] == [MERIT]
    ahead = float(found["trivial"]["lead @10"].split(" ")[0])
    assert ahead == pytest.approx(100 * (found[MERIT]["@10"] - found["trivial"]["@10"]), abs=0.06)


def test_recall_is_told_in_points(results: BenchResults) -> None:
    found = points(results)
    told = in_points(found)
    assert told["@10"].to_list() == (found["@10"] * 100).round(1).to_list()
    assert told["lead @10"].equals(found["lead @10"])


def test_the_picture_has_a_line_for_every_method(results: BenchResults) -> None:
    picture = str(drawn(points(results)))
    assert all(f">{name}<" in picture for name in METHODS if name != "trivial")


def test_names_are_apart_and_in_order() -> None:
    assert apart([0.1, 0.5, 0.49, 0.3], 0.05) == pytest.approx([0.1, 0.5, 0.45, 0.3])
    assert apart([0.2, 0.2, 0.2], 0.1) == pytest.approx([0.2, 0.1, 0.0])
