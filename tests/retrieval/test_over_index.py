"""What over-indexes, against counting user by user."""

from __future__ import annotations

import numpy as np
import pytest

from merit.core.ragged import Ragged
from merit.retrieval.over_index import ENOUGH, Histories

LABELS = 9


@pytest.mark.parametrize("seed", range(20))
def test_shares_are_counted_user_by_user(seed: int) -> None:
    rng = np.random.default_rng(seed)
    had = rng.random((60, LABELS)) < rng.random(LABELS)
    rows = np.flatnonzero(rng.random(60) < rng.random())  # few of them, or most
    live, k, at_least = rng.random(LABELS) < 0.8, int(rng.integers(1, LABELS)), int(rng.integers(0, 9))
    found = Histories(Ragged.of([np.flatnonzero(user).tolist() for user in had]), LABELS).over_indexed(
        rows, live, k, at_least
    )
    slow = []
    for label in range(LABELS):
        owners, here = sum(user[label] for user in had), sum(had[row, label] for row in rows)
        if live[label] and owners >= ENOUGH and here >= max(1, at_least):
            share, base = here / len(rows), owners / len(had)
            slow.append((-share / base, label, share, base))
    slow = [each for each in sorted(slow)[:k] if each[0] < -1]
    assert found.labels.tolist() == [label for _, label, _, _ in slow]
    assert found.index.tolist() == pytest.approx([-index for index, _, _, _ in slow])
    assert found.share.tolist() == [share for _, _, share, _ in slow]
    assert found.base.tolist() == [base for _, _, _, base in slow]


def test_what_few_had_is_chance_and_does_not_over_index() -> None:
    few, many = ([[0]] * owners + [[1]] * 100 for owners in (ENOUGH - 1, ENOUGH))
    live = np.ones(2, dtype=bool)
    assert not len(Histories(Ragged.of(few), 2).over_indexed(np.arange(5), live, 5, 1).labels)
    assert Histories(Ragged.of(many), 2).over_indexed(np.arange(5), live, 5, 1).index.tolist() == [120 / ENOUGH]


def test_nobody_over_indexes_in_nothing() -> None:
    nobody = np.empty(0, dtype=np.int64)
    assert not len(Histories(Ragged.of([[0]] * 30), 1).over_indexed(nobody, np.ones(1, dtype=bool), 5, 1).labels)
