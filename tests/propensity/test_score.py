"""The formula on tensors and on arrays, against one pair at a time."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from merit.propensity.score import pair_score, repeat_score

HIDDEN, SECOND, FACTORS = 6, 4, 3


@pytest.fixture
def weights() -> dict[str, np.ndarray]:
    rng = np.random.default_rng(0)
    shapes = {"users": (5, 9), "labels": (7, 9), "W2": (HIDDEN, SECOND), "d2": (SECOND,), "w3": (SECOND,)}
    return {name: rng.standard_normal(shape) for name, shape in shapes.items()}


def test_pairs_are_scored_as_one_at_a_time(weights: dict[str, np.ndarray]) -> None:
    users, labels, W2, d2, w3 = weights.values()
    slow = np.empty((5, 7))
    for row, user in enumerate(users):
        for column, label in enumerate(labels):
            first = [max(0.0, user[unit] + label[unit]) for unit in range(HIDDEN)]
            second = [
                max(0.0, sum(first[unit] * W2[unit, at] for unit in range(HIDDEN)) + d2[at]) for at in range(SECOND)
            ]
            factors = sum(user[HIDDEN + at] * label[HIDDEN + at] for at in range(FACTORS))
            slow[row, column] = sum(w3[at] * second[at] for at in range(SECOND)) + factors
    before = users.copy()
    arrays = pair_score(users[:, None], labels, HIDDEN, lambda x: x @ W2 + d2, lambda x: (x * w3).sum(-1))
    np.testing.assert_allclose(arrays, slow, rtol=1e-12)
    assert (users == before).all()
    tensors = {name: torch.from_numpy(array) for name, array in weights.items()}
    found = pair_score(
        tensors["users"][:, None],
        tensors["labels"],
        HIDDEN,
        lambda x: x @ tensors["W2"] + tensors["d2"],
        lambda x: x @ tensors["w3"],
    )
    np.testing.assert_allclose(found.numpy(), slow, rtol=1e-12)


@given(st.lists(st.sampled_from([0.0, 0.2, 0.9, 1.0, 2.5, 40.0]), min_size=1, max_size=5), st.integers(1, 90))
def test_repeats_are_added_as_one_at_a_time(times: list[float], total: int) -> None:
    """Less than once counts by how much, and nothing for nothing."""
    first, often, share = weights = (0.3, -0.7, 0.2)
    of_label = 0.4
    slow = []
    for count in times:
        seen = max(count, 1)
        slow.append((first + often * math.log(1 + seen) + share * math.log(seen / total) + of_label) * min(count, 1))
    arrays = np.array(times)
    shares = np.maximum(arrays, 1) / total
    np.testing.assert_allclose(repeat_score(arrays, shares, weights, of_label), slow, rtol=1e-12)
    tensors = repeat_score(torch.from_numpy(arrays), torch.from_numpy(shares), torch.tensor(weights).double(), of_label)
    np.testing.assert_allclose(tensors, slow, rtol=1e-5)
