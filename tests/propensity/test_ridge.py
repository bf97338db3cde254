"""The regression that the product starts at: solved as numpy would, split into factors, put into the model."""

from __future__ import annotations

import numpy as np
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from merit.core.ragged import Ragged
from merit.propensity import ridge
from merit.propensity.features import States, UserFeatures
from merit.propensity.linear import FactorsConfig, fit_factors
from merit.propensity.ridge import RidgeConfig
from merit.propensity.states_model import Propensity, PropensityConfig

LABELS = 7


def slow(histories: list[list[int]], times: list[list[int]], gold: list[list[int]], strength: float) -> np.ndarray:
    """One row after the other, with the bias among the columns, by the textbook."""
    rows, wanted = np.zeros((len(histories), LABELS + 1)), np.zeros((len(gold), LABELS))
    for row, (labels, counts, bought) in enumerate(zip(histories, times, gold, strict=True)):
        for label, count in zip(labels, counts, strict=True):
            rows[row, label] = np.log(1 + count)
        rows[row] /= max(np.sqrt((rows[row] ** 2).sum()), 1e-9)
        rows[row, -1] = 1
        wanted[row, bought] = 1
    return np.linalg.inv(rows.T @ rows + strength * np.eye(LABELS + 1)) @ rows.T @ wanted


lists = st.lists(st.integers(0, LABELS - 1), max_size=4, unique=True)


@settings(max_examples=60, deadline=None)
@given(data=st.data(), users=st.integers(2, 8), strength=st.sampled_from([0.5, 3.0, 100.0]))
def test_factors_of_full_rank_multiply_to_what_the_textbook_solves(
    data: st.DataObject, users: int, strength: float
) -> None:
    histories, gold = ([data.draw(lists) for _ in range(users)] for _ in range(2))
    times = [[data.draw(st.integers(1, 5)) for _ in labels] for labels in histories]
    counts = np.array([count for row in times for count in row], np.int32)
    config = RidgeConfig(weight=2.0, strength=strength)
    found = ridge.factors(Ragged.of(histories), counts, Ragged.of(gold), LABELS, LABELS, config, seed=1)
    product = np.zeros((LABELS, LABELS))
    product[np.ix_(found.labels, found.labels)] = found.says @ found.own.T
    np.testing.assert_allclose(product, 2 * slow(histories, times, gold, strength)[:-1], atol=2e-4)


def test_a_low_rank_is_the_best_of_that_rank() -> None:
    rng = np.random.default_rng(0)
    histories, gold = ([rng.choice(LABELS, 2, replace=False).tolist() for _ in range(200)] for _ in range(2))
    counts = np.ones(400, np.int32)
    config = RidgeConfig(weight=1.0, strength=1.0)
    whole = slow(histories, [[1, 1]] * 200, gold, 1.0)[:-1]
    found = ridge.factors(Ragged.of(histories), counts, Ragged.of(gold), LABELS, 3, config, seed=1)
    left, sizes, right = np.linalg.svd(whole)
    np.testing.assert_allclose(found.says @ found.own.T, (left[:, :3] * sizes[:3]) @ right[:3], atol=1e-4)


def test_only_the_most_popular_labels_are_solved_for() -> None:
    histories, gold = Ragged.of([[0, 1], [2], [1]]), Ragged.of([[5], [5, 2], [6, 2]])
    found = ridge.factors(histories, np.ones(4, np.int32), gold, LABELS, 4, RidgeConfig(labels=2), seed=1)
    assert found.labels.tolist() == [2, 5] and found.says.shape == found.own.shape == (2, 2)


def shop(users: int = 400) -> tuple[UserFeatures, Ragged]:
    """Who had a label buys the next one."""
    had = np.random.default_rng(3).integers(0, LABELS, users)
    states = States(np.zeros((users, 1, 4), np.float16), np.ones(users, np.int32))
    known = UserFeatures(states, Ragged.of([[label] for label in had.tolist()]), np.ones(users, np.int32))
    return known, Ragged.of([[(label + 1) % LABELS] for label in had.tolist()])


def test_the_product_starts_there() -> None:
    known, gold = shop()
    vectors = np.zeros((LABELS, 5), np.float32)
    config = PropensityConfig(labels=1, width=8, heads=2, layers=1, hidden=8, second=4, own=LABELS + 1)

    def first_loss(weight: float) -> float:
        torch.manual_seed(0)
        model = Propensity(config, 4, 5, torch.ones(LABELS, dtype=torch.bool))
        how = FactorsConfig(epochs=1, learning_rate=1e-9, dropout=0, ridge=RidgeConfig(weight=weight, strength=1))
        return fit_factors(model, known, gold, np.arange(LABELS), vectors, how, seed=1)[0]

    assert first_loss(5.0) < 0.6 * first_loss(0.0)
