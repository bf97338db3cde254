"""What was said after a prefix, written by one stage and measured by another."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from merit.core.ragged import Ragged
from merit.evaluation import continuations, predictions
from tests.evaluation.worlds import said, world


def test_what_mistakes_cost_is_counted_over_the_golds_that_were_left(tmp_path: Path) -> None:
    truth = world(gold=[[0, 9], [18, 27]])  # of which 0 and 18 were given
    after_gold, after_mistakes = (
        replace(said(lists, "self-correction"), seed=3) for lists in ([[9], [27]], [[9], [5]])
    )
    continuations.write(tmp_path, after_gold, after_mistakes, Ragged.of([[9], [27]]))
    whose, lost = continuations.lost(tmp_path, truth) or pytest.fail("it was measured")
    assert whose == ("self-correction", 3)
    assert lost.value == pytest.approx(1 / 2) and lost.columns.tolist() == [[0, 1], [1, 1]]


def test_examples_without_a_prefix_do_not_count(tmp_path: Path) -> None:
    truth = world(gold=[[0, 9], [18]])
    continuations.write(tmp_path, said([[9], [18]]), said([[], []]), Ragged.of([[9], []]))
    _, lost = continuations.lost(tmp_path, truth) or pytest.fail("it was measured")
    assert lost.value == 1 and lost.users == 1


def test_files_are_predictions_that_anything_can_read(tmp_path: Path) -> None:
    continuations.write(tmp_path, said([[1]], "a"), said([[2, 3]], "a"), Ragged.of([[1]]))
    found = [predictions.read(tmp_path / name) for name in (continuations.AFTER_GOLD, continuations.AFTER_MISTAKES)]
    assert [each.free[0].tolist() for each in found] == [[1], [2, 3]]


def test_where_nothing_was_measured_nothing_is_told(tmp_path: Path) -> None:
    assert continuations.lost(tmp_path, world(gold=[[0]])) is None
