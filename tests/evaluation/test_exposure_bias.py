"""The meter against its definition, and on a method that goes round in circles."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from merit.core.errors import DataError
from merit.core.ragged import Ragged
from merit.evaluation import predictions
from merit.evaluation.classification import MetricKey, named
from merit.evaluation.exposure_bias import (
    AFTER_GOLD,
    AFTER_MISTAKES,
    exposure,
    read_recall_lost,
    recall_lost,
    write_continuations,
)
from merit.evaluation.matching import NEAR, SOFT
from tests.evaluation.worlds import said, world

lists = st.lists(st.integers(0, 35), max_size=8, unique=True)


def slow_share(predicted: list[list[int]], gold: list[list[int]]) -> tuple[int, int]:
    vectors = world(gold).vectors
    near = every = 0
    for labels, true in zip(predicted, gold, strict=True):
        errors = [label for label in labels if not any(vectors[label] @ vectors[g] >= SOFT for g in true)]
        every += len(errors)
        near += sum(any(vectors[e] @ vectors[f] > NEAR for f in errors[:place]) for place, e in enumerate(errors))
    return near, every


@settings(max_examples=60, deadline=None)
@given(st.lists(st.tuples(lists, lists), min_size=1, max_size=5))
def test_the_meter_against_a_slow_twin(rows: list[tuple[list[int], list[int]]]) -> None:
    predicted, gold = [row[0] for row in rows], [row[1] for row in rows]
    found = exposure(said(predicted), world(gold))
    for budget in (None, 5):
        cut = [labels[:budget] for labels in predicted]
        meter = found[MetricKey("near_correlates", named(SOFT), budget)].columns.sum(axis=0)
        assert tuple(meter) == slow_share(cut, gold)
        clusters = sum(len({label * 10 // 90 for label in labels}) for labels in cut)
        assert found[MetricKey("clusters", budget=budget)].value == clusters / len(rows)


def test_only_earlier_and_only_wrong_predictions_count() -> None:
    truth = world([[0]])
    near = MetricKey("near_correlates", named(SOFT))
    assert exposure(said([[0, 5]]), truth)[near].value == 0  # 50° resembles a right prediction: no cascade
    assert exposure(said([[18, 19, 20]]), truth)[near].value == 2 / 3  # the first has nobody before it
    assert exposure(said([[9, 18, 27]]), truth)[near].value == 0


def test_recall_lost() -> None:
    truth = world([[0], [9, 18]])
    lost = recall_lost(said([[0], [9, 18]]), said([[0], [27, 18]]), truth)
    assert lost.value == pytest.approx(1 / 3) and lost.users == 2
    with pytest.raises(DataError, match="two models"):
        recall_lost(said([[0], [9]], "a"), said([[0], [9]], "b"), truth)


def test_what_mistakes_cost_is_counted_over_the_golds_that_were_left(tmp_path: Path) -> None:
    truth = world(gold=[[0, 9], [18, 27]])  # of which 0 and 18 were given
    after_gold, after_mistakes = (
        replace(said(lists, "self-correction"), seed=3) for lists in ([[9], [27]], [[9], [5]])
    )
    write_continuations(tmp_path, after_gold, after_mistakes, Ragged.of([[9], [27]]))
    lost = read_recall_lost(tmp_path, truth)["self-correction", 3]
    assert lost.value == pytest.approx(1 / 2) and lost.columns.tolist() == [[0, 1], [1, 1]]


def test_examples_without_a_prefix_do_not_count(tmp_path: Path) -> None:
    truth = world(gold=[[0, 9], [18]])
    write_continuations(tmp_path, said([[9], [18]]), said([[], []]), Ragged.of([[9], []]))
    (lost,) = read_recall_lost(tmp_path, truth).values()
    assert lost.value == 1 and lost.users == 1


def test_files_are_predictions_that_anything_can_read(tmp_path: Path) -> None:
    write_continuations(tmp_path, said([[1]], "a"), said([[2, 3]], "a"), Ragged.of([[1]]))
    found = [predictions.read(tmp_path / name) for name in (AFTER_GOLD, AFTER_MISTAKES)]
    assert [each.free[0].tolist() for each in found] == [[1], [2, 3]]


def test_where_nothing_was_measured_nothing_is_told(tmp_path: Path) -> None:
    assert read_recall_lost(tmp_path, world(gold=[[0]])) == {}
