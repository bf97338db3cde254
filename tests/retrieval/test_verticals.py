from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from merit.core.errors import DataError
from merit.retrieval.verticals import given_label, roll_up


@settings(max_examples=50, deadline=None)
@given(st.lists(st.lists(st.integers(0, 5), unique=True), min_size=1, max_size=6), st.integers(0, 2**32))
def test_sums_over_labels_one_by_one(lists: list[list[int]], seed: int) -> None:
    rng = np.random.default_rng(seed)
    likelihood = rng.random((6, 3))
    probabilities = np.zeros((len(lists), 6))
    for user, labels in enumerate(lists):
        probabilities[user, labels] = rng.random(len(labels))
    wanted = [
        [sum(likelihood[label, vertical] * row[label] for label in range(6)) for vertical in range(3)]
        for row in probabilities
    ]
    assert roll_up(probabilities, likelihood) == pytest.approx(np.array(wanted))


def test_a_label_is_of_the_verticals_of_its_events() -> None:
    labels, verticals, counts = np.array([0, 0, 1]), np.array([0, 1, 1]), np.array([30, 10, 1])
    found = given_label(labels, verticals, counts, (3, 3))
    assert found.sum(axis=1) == pytest.approx([1, 1, 1])
    assert found[0] == pytest.approx([(30 + 30 / 41) / 41, (10 + 11 / 41) / 41, 0])
    assert found[1, 1] == pytest.approx((1 + 11 / 41) / 2)  # one event is not certainty
    assert found[2] == pytest.approx([30 / 41, 11 / 41, 0])  # never met in training: as all events
    sharp = given_label(labels, verticals, counts, (2, 2), strength=0)
    assert sharp.tolist() == [[0.75, 0.25], [0, 1]]


def test_without_events_there_is_nothing_to_learn_from() -> None:
    nothing = np.empty(0, np.int64)
    with pytest.raises(DataError, match="No training event"):
        given_label(nothing, nothing, nothing, (2, 2))
