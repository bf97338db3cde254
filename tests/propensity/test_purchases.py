"""What users bought and when: the fast way against loops."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from merit.core.ragged import Ragged
from merit.propensity.purchases import HALF_LIVES, PurchaseHistories, exposure

Events = list[list[tuple[int, int]]]  # by user: age and item
users = st.lists(st.lists(st.tuples(st.integers(0, 90), st.integers(0, 4)), max_size=12), min_size=1, max_size=6)


def purchases(events: Events) -> PurchaseHistories:
    rows = [sorted(row, reverse=True) for row in events]
    ages = np.array([age for row in rows for age, _ in row], np.int32)
    return PurchaseHistories(Ragged.of([[item for _, item in row] for row in rows]), ages)


@settings(max_examples=40, deadline=None)
@given(users, st.sets(st.integers(0, 4)), st.integers(0, 60))
def test_activity_is_what_loops_count(events: Events, wanted: set[int], cut: int) -> None:
    mask = np.isin(np.arange(5), list(wanted))
    known = purchases(events).before(cut)
    found, buyers = known.activity(), known.buyers(mask)
    assert buyers.users.tolist() == [
        user for user, row in enumerate(events) if any(age >= cut and item in wanted for age, item in row)
    ]
    for part, allowed, numbers in ((found, set(range(5)), range(len(events))), (buyers.activity, wanted, buyers.users)):
        for place, user in enumerate(numbers):
            ages = [age - cut for age, item in events[user] if age >= cut and item in allowed]
            days = sorted(set(ages))
            assert part.days[place] == len(days) and part.lines[place] == len(ages)
            assert part.last[place] == (days[0] if days else 0) and part.first[place] == (days[-1] if days else 0)
            halved = [sum(0.5 ** (day / half) for day in days) for half in HALF_LIVES]
            assert part.counts[place] == pytest.approx(halved)


@settings(max_examples=40, deadline=None)
@given(users, st.integers(0, 60), st.integers(0, 40))
def test_a_window_is_what_loops_find(events: Events, first: int, more: int) -> None:
    mask = np.array([True, False, True, False, False])
    within = purchases(events).bought_between(first, first + more, mask)
    assert within.tolist() == [
        any(first <= age <= first + more and item in (0, 2) for age, item in row) for row in events
    ]


def test_buyers_are_found_among_some_users() -> None:
    buyers = purchases([[(1, 0)], [(1, 1)], [(3, 0), (2, 0)], [(4, 0)]]).buyers(np.array([True] + 4 * [False]))
    at, some = buyers.among(np.array([1, 2, 3]))
    assert at.tolist() == [1, 2] and some.users.tolist() == [2, 3] and some.activity.last.tolist() == [2, 4]
    assert not len(buyers.among(np.array([1]))[0])


def test_views_do_not_count() -> None:
    items, ages = Ragged.of([[0, 1], [2]]), np.array([3, 2, 1])
    known = PurchaseHistories.of(items, ages, np.array([True, False, True]))
    assert known.items.values.tolist() == [0, 2] and known.ages.tolist() == [3, 1]
    assert PurchaseHistories.of(items, ages).ages.tolist() == [3, 2, 1]


def test_exposure_is_that_of_a_purchase_a_day() -> None:
    known = purchases([[(age, 0) for age in range(30)]])
    assert exposure(30) == pytest.approx(known.activity().counts[0])
