from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from merit.core.ragged import Ragged
from merit.propensity.states_model import Propensity, PropensityConfig
from merit.retrieval.repeats import Additions, Repeats

LABELS = 12
histories = st.lists(st.dictionaries(st.integers(0, LABELS - 1), st.integers(1, 9), max_size=6), min_size=1, max_size=8)


def made(users: list[dict[int, int]]) -> tuple[Repeats, Propensity, torch.Tensor]:
    """Of a model with weights of any size, and its vectors of all labels."""
    torch.manual_seed(7)
    model = Propensity(
        PropensityConfig(width=8, heads=1, hidden=8, factors=3), 4, 5, torch.ones(LABELS, dtype=torch.bool)
    )
    with torch.no_grad():
        model.repeat.normal_()
        model.repeat_bias.normal_()
        vectors = model.eval().labels(torch.randn(LABELS, 5), torch.arange(LABELS))
        of_label = model.label_repeats(vectors).double().numpy()
    times = np.array([count for user in users for count in user.values()], dtype=np.int32)
    first, often, share = model.repeat.tolist()
    return Repeats.of(Ragged.of([list(user) for user in users]), times, (first, often, share), of_label), model, vectors


@settings(max_examples=50, deadline=None)
@given(histories)
def test_repeats_are_those_of_the_model(users: list[dict[int, int]]) -> None:
    ours, model, vectors = made(users)
    for row, user in enumerate(users):
        times, total = torch.tensor([float(count) for count in user.values()]), max(1, sum(user.values()))
        with torch.no_grad():
            theirs = model.repeat_score(times, times / total, model.label_repeats(vectors)[list(user)])
        np.testing.assert_allclose(ours.of_users(np.array([row])), theirs.numpy(), rtol=1e-4, atol=1e-5)


@settings(max_examples=50, deadline=None)
@given(histories, st.integers(0, LABELS - 1))
def test_users_with_a_label_are_found_with_what_it_adds(users: list[dict[int, int]], label: int) -> None:
    ours, _, _ = made(users)
    rows, added = ours.users_with(label)
    assert rows.tolist() == [row for row, user in enumerate(users) if label in user]
    slow = [ours.of_users(np.array([row]))[list(users[row]).index(label)] for row in rows]
    assert added.tolist() == slow


def with_likely(users: list[dict[int, int]], likely: list[dict[int, float]]) -> tuple[Additions, np.ndarray]:
    """Additions, and the same as a grid of users and labels, by a loop."""
    ours, _, _ = made(users)
    grid = np.zeros((len(users), LABELS))
    for row, user in enumerate(users):
        grid[row, list(user)] += ours.of_users(np.array([row]))
        for label, value in likely[row].items():
            grid[row, label] += value
    lists = Ragged.of([list(some) for some in likely[: len(users)]])
    values = np.array([value for some in likely[: len(users)] for value in some.values()], float)
    return Additions(ours, lists, values, LABELS), grid


likely_labels = st.lists(
    st.dictionaries(st.integers(0, LABELS - 1), st.floats(0, 9), max_size=4), min_size=8, max_size=8
)


@settings(max_examples=50, deadline=None)
@given(histories, likely_labels, st.lists(st.booleans(), min_size=8, max_size=8))
def test_repeats_and_likely_labels_add_up(
    users: list[dict[int, int]], likely: list[dict[int, float]], chosen: list[bool]
) -> None:
    ours, grid = with_likely(users, likely)
    rows = np.flatnonzero(chosen[: len(users)])
    lists, added = ours.of_users(rows)
    by_user = np.zeros((len(rows), LABELS))
    by_user[np.repeat(np.arange(len(rows)), lists.lengths()), lists.values] = added
    np.testing.assert_allclose(by_user, grid[rows], atol=1e-12)
    among = ours.by_label(np.arange(LABELS), rows)
    for label, (some, some_added) in enumerate(among):
        who, values = ours.users_with(label)
        whole = np.zeros(len(users))
        whole[who] = values
        np.testing.assert_allclose(whole, grid[:, label], atol=1e-12)
        own = np.isin(who, rows)
        assert some.tolist() == who[own].tolist()
        np.testing.assert_allclose(some_added, values[own], atol=1e-12)
        assert set(who.tolist()) == {row for row, user in enumerate(users) if label in user or label in likely[row]}


def test_a_label_that_is_not_there_adds_nothing() -> None:
    ours, _, _ = made([{1: 2}])
    assert ours.added(np.array([0, 2]), np.array([2, 2]), ours.of_label[[1, 1]])[0] == 0


@pytest.mark.parametrize("times", [0.0, 0.2, 0.9, 1.0, 2.5])
def test_less_than_once_counts_by_how_much_as_in_the_model(times: float) -> None:
    ours, model, vectors = made([{1: 2, 3: 4}])
    with torch.no_grad():
        shares = torch.tensor([max(times, 1.0) / 6])
        theirs = model.repeat_score(torch.tensor([times]), shares, model.label_repeats(vectors)[[5]])
    np.testing.assert_allclose(ours.added(np.array([times]), np.array([6.0]), ours.of_label[5]), theirs, rtol=1e-4)


def test_labels_that_products_name_join_those_that_were_had() -> None:
    ours, _, _ = made([{1: 2}, {}, {3: 1, 4: 1}])
    more = ours.also(np.array([0, 1, 2]), np.array([11, 10, 10]), np.array([0.5, 1.5, 2.0]))
    assert [more.history[row].tolist() for row in range(3)] == [[1, 11], [10], [3, 4, 10]]
    assert more.times.tolist() == [2, 0.5, 1.5, 1, 1, 2.0]
    assert more.totals.tolist() == ours.totals.tolist() == [2, 1, 2]
    assert more.of_users(np.array([2]))[:2].tolist() == ours.of_users(np.array([2])).tolist()
