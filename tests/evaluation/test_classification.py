"""Every figure against its definition, written out."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import ValidationError

from merit.evaluation.classification import EvaluationConfig, MetricKey, measure, named, trapezoid
from merit.evaluation.matching import SOFT
from tests.evaluation.worlds import said, world

labels = st.lists(st.integers(0, 35), max_size=6, unique=True)
PAPER = {  # Table "threshold sensitivity": improvement at 0.7, 0.8, 0.9, and the τ-AUC printed beside it
    "XLGen recall": ((2.0, 1.2, 0.9), 1.3),
    "GROOV precision": ((3.1, 1.9, 1.5), 2.1),
    "DEXML-STk F1": ((-4.3, -4.2, -4.3), -4.2),
    "MERIT recall": ((14.1, 10.3, 9.1), 11.0),
    "MERIT F1": ((3.4, 1.6, 1.0), 1.9),
    "MERIT precision": ((-0.3, -1.4, -1.7), -1.2),
}


@pytest.mark.parametrize("row", PAPER.values(), ids=PAPER)
def test_the_paper_s_tau_auc(row: tuple[tuple[float, ...], float]) -> None:
    values, printed = row
    assert trapezoid((0.7, 0.8, 0.9)) @ np.array(values) == pytest.approx(printed, abs=0.0501)


def test_pooled_is_not_the_mean_of_users() -> None:
    truth = world(gold=[[0], [9, 18, 27]])
    found = measure(said([[0], [9, 1, 2, 3]]), truth)
    assert found[MetricKey("recall", "exact")].value == 2 / 4
    assert found[MetricKey("precision", "exact")].value == 2 / 5
    assert found[MetricKey("f1", "exact")].value == pytest.approx(2 * 2 / (4 + 5))
    assert found[MetricKey("recall", "exact", average="per_user")].value == pytest.approx((1 + 1 / 3) / 2)
    assert found[MetricKey("precision", "exact", average="per_user")].value == pytest.approx((1 + 1 / 4) / 2)
    harmonic = (1 + 2 * (1 / 3) * (1 / 4) / (1 / 3 + 1 / 4)) / 2
    assert found[MetricKey("f1", "exact", average="per_user")].value == pytest.approx(harmonic)
    assert found[MetricKey("predictions")].value == 2.5


def test_users_without_a_gold_are_not_in_the_mean_over_users() -> None:
    found = measure(said([[0], [1], [2]]), world(gold=[[0], [], [9]]))
    assert [found[MetricKey(name, "0.7", average="per_user")].value for name in ("recall", "precision", "f1")] == [
        0.5
    ] * 3
    assert MetricKey("recall", "0.55", average="per_user") not in found, "only at the thresholds asked for, and exact"


def test_any_gold_will_do_where_the_rule_says_so() -> None:
    found = measure(said([[1, 35]]), world(gold=[[0]]))  # both within 10° of the one gold
    one, any_ = (
        {name: found[MetricKey(name, "0.7", rule=rule)].value for name in ("recall", "precision", "f1")}
        for rule in ("one_to_one", "any")
    )
    assert one == {"recall": 1, "precision": 0.5, "f1": pytest.approx(2 / 3)}
    assert any_ == {"recall": 1, "precision": 1, "f1": 1}


def test_one_threshold_is_its_own_area_and_the_first_is_that_of_verticals() -> None:
    truth = world(gold=[[0]])
    found = measure(said([[3]]), truth, EvaluationConfig(thresholds=(0.8,)))  # 30°: cosine 0.866
    assert found[MetricKey("tau_auc", "0.8–0.8")].value == 1
    strict_first = measure(said([[3]]), truth, EvaluationConfig(thresholds=(0.9, 0.7)))
    assert strict_first[MetricKey("recall", "0.9", vertical="upper")].value == 0


def test_saying_nothing_has_no_precision_to_boast_of() -> None:
    found = measure(said([[], [9]]), world(gold=[[0], [9]]))
    assert found[MetricKey("precision", "exact")].value == 1
    assert found[MetricKey("precision", "exact", average="per_user")].value == 0.5
    silent = measure(said([[], []]), world(gold=[[0], [9]]))
    assert silent[MetricKey("recall", "0.7")].value == silent[MetricKey("f1", "0.7")].value == 0
    assert np.isnan(silent[MetricKey("precision", "0.7")].value)


def test_soft_match_follows_the_threshold() -> None:
    found = measure(said([[3]]), world(gold=[[0]]))  # 30°: cosine 0.866
    assert [found[MetricKey("recall", match)].value for match in ("0.7", "0.8", "0.9", "exact")] == [1, 1, 0, 0]
    assert found[MetricKey("tau_auc", "0.7–0.9")].value == pytest.approx(0.75)
    assert found[MetricKey("tau_auc", "0.5–1")].value == pytest.approx((0.35 + 0.05 / 2) / 0.5)


def test_verticals_count_golds_for_recall_and_predictions_for_precision() -> None:
    truth = world(gold=[[0, 17], [20]])  # 170° is in the upper half, 200° in the lower
    found = measure(said([[0, 18], [5]]), truth)
    upper, lower = (
        {name: found[MetricKey(name, named(SOFT), vertical=half)] for name in ("recall", "precision")}
        for half in ("upper", "lower")
    )
    assert (upper["recall"].value, upper["precision"].value) == (1, 0.5)  # 180° finds 170°; 50° is wrong
    assert (lower["recall"].value, lower["precision"].value) == (0, 1)
    assert (upper["recall"].users, lower["recall"].users) == (1, 1)


def test_budgets_use_the_ranked_list_and_never_pad() -> None:
    truth = world(gold=[[0, 9]])
    ranked = [[1, 30, 31, 32, 33, 9, 0]]
    found = measure(said([[0]], ranked=ranked), truth)
    at = {k: found[MetricKey("recall", "exact", k)].value for k in (5, 10, 20)}
    assert at == {5: 0, 10: 1, 20: 1}
    assert found[MetricKey("recall", "exact")].value == 0.5
    assert [found[MetricKey("predictions", budget=k)].value for k in (5, 10, 20)] == [5, 7, 7]
    without = measure(said([[0]]), truth)
    assert without[MetricKey("recall", "exact", 20)].value == 0.5


def test_novel_golds_are_those_outside_the_own_history() -> None:
    truth = world(gold=[[0, 9], [0, 18]], history=[[0], [9, 18]])
    found = measure(said([[0, 9], [18]]), truth)
    novel = found[MetricKey("recall", "exact", 5, "novel")]
    assert novel.value == 1 / 2  # 9 of the first user, found; 0 of the second, not found
    assert found[MetricKey("recall", "exact", 5)].value == 3 / 4
    repeating = measure(said([[0], [9, 18]]), truth)
    assert repeating[MetricKey("recall", "exact", 20, "novel")].value == 0


def test_examples_of_one_user_are_one_unit() -> None:
    found = measure(said([[0], [1], [9]]), world(gold=[[0], [9], [9]], user=[0, 0, 1]))
    assert found[MetricKey("recall", "exact")].columns.tolist() == [[1, 2], [1, 1]]
    assert found[MetricKey("recall", "exact", average="per_user")].value == 0.75


@settings(max_examples=40, deadline=None)
@given(st.lists(st.tuples(labels, labels), min_size=1, max_size=5))
def test_laws(rows: list[tuple[list[int], list[int]]]) -> None:
    found = measure(said([row[0] for row in rows]), world(gold=[row[1] for row in rows]))
    recall = {match: found[MetricKey("recall", match)].value for match in ("0.5", "0.7", "0.8", "0.9", "exact")}
    if any(row[1] for row in rows):
        assert recall["0.5"] >= recall["0.7"] >= recall["0.8"] >= recall["0.9"] >= recall["exact"]
        assert found[MetricKey("recall", "0.7", rule="any")].value >= recall["0.7"]
        assert found[MetricKey("recall", named(SOFT), 5)].value <= found[MetricKey("recall", named(SOFT), 10)].value
        p, r = np.nan_to_num(found[MetricKey("precision", "0.7")].value), recall["0.7"]
        assert found[MetricKey("f1", "0.7")].value == pytest.approx(2 * p * r / (p + r) if p + r else 0)
    else:
        assert np.isnan(recall["0.7"])


def test_thresholds_below_what_is_kept_are_refused() -> None:
    with pytest.raises(ValidationError):
        EvaluationConfig(thresholds=(0.3,))
