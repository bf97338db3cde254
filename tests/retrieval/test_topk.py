from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from merit.core.errors import DataError
from merit.core.ragged import Ragged
from merit.retrieval.topk import (
    Ranked,
    RankedLists,
    candidates,
    merged,
    merged_lists,
    order,
    order_within,
    require_count,
)


@settings(max_examples=200, deadline=None)
@given(st.integers(0, 2**32), st.integers(1, 40), st.integers(1, 50), st.sampled_from([0.0, 0.01, 0.5, 3.0]))
def test_no_error_within_the_bound_loses_a_row(seed: int, rows: int, n: int, bound: float) -> None:
    rng = np.random.default_rng(seed)
    exact = rng.integers(0, 6, rows) / 4  # exact in float32, with many ties
    worst_case = rng.choice([-1, 1], rows) * bound * (rng.random(rows) < 0.9)
    near = candidates((exact + worst_case).astype(np.float32), n, bound * (1 + 1e-6) + 1e-6)
    best = sorted(range(rows), key=lambda row: (-exact[row], row))[:n]
    assert set(best) <= set(near.tolist())
    assert near[order(near, exact[near], n)].tolist() == best


def test_without_the_margin_a_row_is_lost() -> None:
    exact, rough = np.array([1.0, 1.1]), np.array([1.05, 1.04], np.float32)
    assert candidates(rough, 1, 0.0).tolist() == [0]
    near = candidates(rough, 1, 0.061)
    assert near[order(near, exact[near], 1)].tolist() == [1]


@settings(max_examples=60, deadline=None)
@given(st.integers(0, 2**32), st.integers(0, 60), st.integers(1, 9))
def test_several_owners_against_one_by_one(seed: int, pairs: int, n: int) -> None:
    rng = np.random.default_rng(seed)
    owner, scores = rng.integers(0, 5, pairs), rng.integers(0, 3, pairs).astype(float)
    rows = rng.permutation(pairs)
    places, sizes = order_within(owner, rows, scores, n, 5)
    wanted = [
        sorted((at for at in range(pairs) if owner[at] == one), key=lambda at: (-scores[at], rows[at]))[:n]
        for one in range(5)
    ]
    assert places.tolist() == [at for own in wanted for at in own]
    assert sizes.tolist() == [len(own) for own in wanted]


def test_none_at_all_cannot_be_asked_for() -> None:
    require_count(1, "users")
    with pytest.raises(DataError, match="Ask for 1 or more"):
        require_count(0, "users")


quarters = st.integers(-8, 8).map(lambda n: n / 4)  # sums are exact, and ties are frequent


def _best(scores: np.ndarray, n: int) -> Ranked:
    places = order(np.arange(len(scores)), scores, n)
    return Ranked(places, scores[places])


@settings(max_examples=200, deadline=None)
@given(st.data())
def test_the_best_are_those_of_sorting_everything(data: st.DataObject) -> None:
    size = data.draw(st.integers(1, 30))
    dense = np.array(data.draw(st.lists(quarters, min_size=size, max_size=size)))
    rows = np.array(data.draw(st.lists(st.integers(0, size - 1), unique=True, max_size=size)), dtype=np.int64)
    added = np.array(data.draw(st.lists(quarters, min_size=len(rows), max_size=len(rows))), dtype=np.float64)
    n = data.draw(st.integers(1, size))
    total = dense.copy()
    total[rows] += added
    slow = _best(total, n)
    found = merged(_best(dense, n + int((added < 0).sum())), rows, dense[rows], added, n)
    assert found.rows.tolist() == slow.rows.tolist()
    assert found.scores.tolist() == slow.scores.tolist()


@settings(max_examples=100, deadline=None)
@given(st.data())
def test_lists_of_several_users_are_those_of_each_alone(data: st.DataObject) -> None:
    users, labels = data.draw(st.integers(1, 4)), data.draw(st.integers(1, 12))
    row = st.lists(quarters, min_size=labels, max_size=labels)
    dense = np.array(data.draw(st.lists(row, min_size=users, max_size=users)))
    own = Ragged.of(
        [sorted(data.draw(st.lists(st.integers(0, labels - 1), unique=True, max_size=labels))) for _ in range(users)]
    )
    added = np.array(data.draw(st.lists(quarters, min_size=len(own.values), max_size=len(own.values))))
    k = data.draw(st.integers(1, labels))
    each = [_best(scores, k + int((added < 0).sum())) for scores in dense]
    lists = RankedLists(
        np.arange(users), Ragged.of([one.rows.tolist() for one in each]), np.concatenate([one.scores for one in each])
    )
    owner = np.repeat(np.arange(users), own.lengths())
    found = merged_lists(lists, own, dense[owner, own.values], added, k, labels)
    for user in range(users):
        part = slice(own.offsets[user], own.offsets[user + 1])
        alone = merged(each[user], own[user].astype(np.int64), dense[user][own[user]], added[part], k)
        assert found.labels[user].tolist() == alone.rows.tolist()
        at = slice(found.labels.offsets[user], found.labels.offsets[user + 1])
        assert found.scores[at].tolist() == alone.scores.tolist()
