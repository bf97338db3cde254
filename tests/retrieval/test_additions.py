"""Additions to a few scores against sorting everything."""

from __future__ import annotations

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from merit.core.ragged import Ragged
from merit.retrieval.additions import ahead, merged, merged_lists
from merit.retrieval.scorer import Lists
from merit.retrieval.topk import Ranked, order

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
    found = merged(_best(dense, n + ahead(added)), rows, dense[rows], added, n)
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
    each = [_best(scores, k + ahead(added)) for scores in dense]
    lists = Lists(
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
