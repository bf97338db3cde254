from __future__ import annotations

import numpy as np
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from merit.data.ragged import Ragged
from merit.propensity.model import Propensity, PropensityConfig
from merit.retrieval.repeats import Repeats

LABELS = 12
histories = st.lists(st.dictionaries(st.integers(0, LABELS - 1), st.integers(1, 9), max_size=6), min_size=1, max_size=8)


def made(users: list[dict[int, int]]) -> tuple[Repeats, Propensity, torch.Tensor]:
    """Of a model with weights of any size, and its vectors of all labels."""
    torch.manual_seed(7)
    model = Propensity(PropensityConfig(width=8, heads=1, hidden=8, own=3), 4, 5, torch.ones(LABELS, dtype=torch.bool))
    with torch.no_grad():
        model.repeat.normal_()
        model.repeat_own.normal_()
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
            theirs = model.repeats(times, times / total, model.label_repeats(vectors)[list(user)])
        np.testing.assert_allclose(ours.of_users(np.array([row])), theirs.numpy(), rtol=1e-4, atol=1e-5)


@settings(max_examples=50, deadline=None)
@given(histories, st.integers(-1, LABELS - 1))
def test_users_with_a_label_are_found_with_its_place(users: list[dict[int, int]], label: int) -> None:
    ours, _, _ = made(users)
    rows, places = ours.users_with(label)
    assert rows.tolist() == [row for row, user in enumerate(users) if label in user]
    assert (ours.had.values[places] == label).all()
    assert ours.times[places].tolist() == [user[label] for user in users if label in user]


def test_a_label_that_is_not_there_adds_nothing() -> None:
    ours, _, _ = made([{1: 2}])
    assert ours.added(np.array([0, 2]), np.array([2, 2]), np.array([1, 1]))[0] == 0
