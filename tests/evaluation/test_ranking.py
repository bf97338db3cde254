"""Full rankings of users, with ties that flatter nobody, and lists of new labels."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from merit.core.errors import DataError
from merit.core.ragged import Ragged
from merit.core.types import Floats
from merit.evaluation import ranking
from merit.evaluation.classification import MetricKey
from merit.evaluation.predictions import Truth
from merit.evaluation.ranking import (
    BUDGETS,
    MEAN,
    SHARES,
    Positives,
    budget,
    hit_key,
    measure_audiences,
    measure_new_labels,
    new_labels_key,
    ranks,
)
from tests.evaluation.worlds import world

FEW, VERTICALS = 7, 3
LABELS = 36


@settings(max_examples=40, deadline=None)
@given(st.integers(0, 2**32), st.integers(1, 5))
def test_ranks_against_counting(seed: int, width: int) -> None:
    rng = np.random.default_rng(seed)
    scores = rng.integers(0, 4, (12, 5)).astype(np.float32)  # many ties
    users, targets = np.nonzero(rng.random((12, 5)) < 0.4)
    blocks = [(np.arange(5)[at : at + width], scores[:, at : at + width]) for at in range(0, 5, width)]
    places = ranks(reversed(blocks), Positives(users, targets))
    for user, target, place in zip(users, targets, places, strict=True):
        column = scores[:, target]
        assert place == (column > column[user]).sum() + (column[:user] == column[user]).sum()


def test_a_constant_score_is_no_better_than_the_order_of_users() -> None:
    users = 1_000
    rng = np.random.default_rng(0)
    wanted = np.sort(rng.choice(users, 200, replace=False))
    positives = Positives(wanted, np.zeros(200, dtype=np.int64))
    flat = ranks([(np.array([0]), np.zeros((users, 1), dtype=np.float32))], positives)
    assert flat.tolist() == wanted.tolist()
    perfect = np.isin(np.arange(users), wanted).astype(np.float32)[:, None]
    assert sorted(ranks([(np.array([0]), perfect)], positives)) == list(range(200))


def test_targets_are_ranked_apart() -> None:
    scores = np.array([[3, 0], [2, 1], [1, 2]], dtype=np.float32)
    positives = Positives(np.array([0, 1, 0]), np.array([0, 0, 1]))
    assert ranks([(np.array([0, 1]), scores)], positives).tolist() == [0, 1, 2]


def test_budgets_are_whole_users() -> None:
    assert [budget(0.05, users) for users in (20, 39, 40, 5)] == [1, 1, 2, 1]
    assert budget(0.01, 20_000) == 200


def test_missing_and_broken_scores_are_refused() -> None:
    positives = Positives(np.array([0, 1]), np.array([0, 7]))
    with pytest.raises(DataError, match="no scores, such as 7"):
        ranks([(np.array([0]), np.zeros((2, 1), dtype=np.float32))], positives)
    with pytest.raises(DataError, match="not numbers"):
        ranks([(np.array([0, 7]), np.full((2, 2), np.nan, dtype=np.float32))], positives)


def _truth(gold: list[list[int]], vertical: list[int], bought: list[list[int]]) -> Truth:
    users = len(gold)
    nothing = Ragged(np.zeros(users + 1, np.int64), np.zeros(0, np.int32))
    none = np.zeros(0, np.int32)
    return Truth(
        gold=Ragged.of(gold),
        bought=Ragged.of(bought),
        history=nothing,
        counts=none,
        purchases=none,
        user=np.arange(users),
        vertical=np.asarray(vertical),
        verticals=["food", "garden", "toys"],
        vectors=np.zeros((FEW, 2), np.float32),
        cluster=np.zeros(FEW, np.int64),
    )


def _first(scores: Floats, k: int) -> set[int]:
    """Users in order of score, the lower number first where scores are equal."""
    return set(sorted(range(len(scores)), key=lambda user: (-scores[user], user))[:k])


@settings(max_examples=60, deadline=None)
@given(data=st.data())
def test_hits_equal_their_slow_twin(data: st.DataObject) -> None:
    users = data.draw(st.integers(2, 25))
    label = st.integers(0, FEW - 1)
    gold = data.draw(st.lists(st.lists(label, min_size=1, max_size=3, unique=True), min_size=users, max_size=users))
    vertical = data.draw(st.lists(st.integers(0, VERTICALS - 1), min_size=FEW, max_size=FEW))
    verticals = st.lists(st.integers(0, VERTICALS - 1), min_size=1, max_size=2, unique=True).map(sorted)
    bought = data.draw(st.lists(verticals, min_size=users, max_size=users))  # of products, whatever labels they have
    eighths = st.integers(0, 8).map(lambda n: n / 8)  # sums are exact, and ties are frequent
    row = st.lists(eighths, min_size=FEW, max_size=FEW)
    scores = np.array(data.draw(st.lists(row, min_size=users, max_size=users)), dtype=np.float32)
    shares = np.eye(VERTICALS, dtype=np.float32)[vertical]
    found = measure_audiences(lambda labels: scores[:, labels], _truth(gold, vertical, bought), shares)
    for share in SHARES:
        k = budget(share, users)
        pairs = [(user, each) for user in range(users) for each in gold[user]]
        right = sum(user in _first(scores[:, each], k) for user, each in pairs)
        assert abs(found[hit_key(share)].value - right / len(pairs)) < 1e-12
        means = []
        for number, name in enumerate(["food", "garden", "toys"]):
            wanted = [user for user in range(users) if number in bought[user]]
            total = sum((scores[:, each] for each in range(FEW) if vertical[each] == number), np.zeros(users))
            if wanted:
                means.append(len(_first(total, k) & set(wanted)) / len(wanted))
                assert abs(found[hit_key(share, name)].value - means[-1]) < 1e-12
        assert abs(found[hit_key(share, MEAN)].value - np.mean(means)) < 1e-12


def test_blocks_of_labels_change_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    scores = np.random.default_rng(0).random((20, FEW)).astype(np.float32)
    truth = _truth([[user % FEW] for user in range(20)], [0, 0, 1, 1, 2, 2, 2], [[user % 3] for user in range(20)])
    shares = np.eye(VERTICALS, dtype=np.float32)[truth.vertical]
    whole = measure_audiences(lambda labels: scores[:, labels], truth, shares)
    monkeypatch.setattr(ranking, "BLOCK", 2)
    parts = measure_audiences(lambda labels: scores[:, labels], truth, shares)
    assert {key: metric.value for key, metric in whole.items()} == {key: each.value for key, each in parts.items()}


@settings(max_examples=60, deadline=None)
@given(data=st.data(), block=st.sampled_from([1, 5, 36, 512]))
def test_recall_of_new_labels_equals_its_slow_twin(data: st.DataObject, block: int) -> None:
    users = data.draw(st.integers(1, 6))
    lists = st.lists(st.integers(0, LABELS - 1), max_size=8, unique=True)
    gold = data.draw(st.lists(lists, min_size=users, max_size=users))
    history = data.draw(st.lists(lists, min_size=users, max_size=users))
    eighths = st.integers(0, 8).map(lambda n: n / 8)  # ties are frequent
    row = st.lists(eighths, min_size=LABELS, max_size=LABELS)
    scores = np.array(data.draw(st.lists(row, min_size=users, max_size=users)), dtype=np.float32)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(ranking, "BLOCK", block)
        found = measure_new_labels(lambda labels: scores[:, labels], world(gold, history))
    wanted = [set(now) - set(before) for now, before in zip(gold, history, strict=True)]
    if not any(wanted):
        return
    for size in BUDGETS:
        hits = 0
        for user, new in enumerate(wanted):
            may = [label for label in range(LABELS) if label not in history[user]]
            said = sorted(may, key=lambda label: (-scores[user, label], label))[:size]
            hits += len({label for label in said if scores[user, label] > 0} & new)
        assert found[new_labels_key(size)].value == pytest.approx(hits / sum(map(len, wanted)))


def test_repeats_do_not_take_the_room() -> None:
    truth = world(gold=[[7]], history=[list(range(6))])
    scores = np.linspace(1, 0.1, LABELS, dtype=np.float32)[None]  # all of the history is before the gold
    assert measure_new_labels(lambda labels: scores[:, labels], truth)[new_labels_key(5)].value == 1
    assert new_labels_key(5) == MetricKey("recall", "exact", budget=5, part="discovery")


def test_the_scores_are_left_as_they_are() -> None:
    truth = world(gold=[[7]], history=[[1, 2]])
    scores = np.ones((1, LABELS), np.float32)
    measure_new_labels(lambda labels: scores[:, : len(labels)], truth)
    assert (scores == 1).all()
