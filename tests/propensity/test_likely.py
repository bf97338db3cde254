"""The weight of likely labels, against a maintained logistic regression and on planted pairs."""

from __future__ import annotations

import numpy as np
import pytest
from sklearn.linear_model import LogisticRegression

from merit.core.ragged import Ragged
from merit.propensity.features import LikelyLabels
from merit.propensity.likely import Pairs, fit_weight


def pairs(weight: float, seed: int = 0, users: int = 400, labels: int = 30) -> Pairs:
    rng = np.random.default_rng(seed)
    scores = rng.normal(-3, 1.5, (users, labels)).astype(np.float32)
    likely = np.maximum(0, rng.normal(-1, 2, (users, labels))).astype(np.float32)
    chances = 1 / (1 + np.exp(-(0.9 * scores + 0.9 * weight * likely + 0.2)))
    return Pairs(scores, likely, rng.random((users, labels)) < chances)


@pytest.mark.parametrize("weight", [0.0, 0.4, 1.1])
def test_it_is_that_of_a_logistic_regression(weight: float) -> None:
    block = pairs(weight)
    parts = [Pairs(*(values[at : at + 100] for values in block)) for at in range(0, 400, 100)]
    columns = np.stack([block.scores.ravel(), block.likely.ravel()], 1)
    [[first, second]] = LogisticRegression(C=np.inf, tol=1e-8).fit(columns, block.truth.ravel()).coef_
    assert fit_weight(parts) == pytest.approx(max(0.0, second / first), abs=2e-3)
    assert fit_weight([block]) == pytest.approx(weight, abs=0.15)


def test_what_misleads_weighs_nothing() -> None:
    assert fit_weight([pairs(-0.5)]) == 0.0


def test_without_likely_labels_there_is_no_weight() -> None:
    block = pairs(0.4)
    assert fit_weight([block._replace(likely=np.zeros_like(block.likely))]) == 0.0


def test_likely_labels_in_a_grid_are_those_of_the_lists() -> None:
    likely = LikelyLabels(Ragged.of([[3, 1], [], [0, 4]]), np.array([1.0, 2.0, 3.0, 4.0], np.float32))
    assert likely.grid(np.array([1, 4, 3]), 6).tolist() == [[2, 0, 1], [0, 0, 0], [0, 4, 0]]
    part = likely.gather(np.array([2, 0]))
    assert part.grid(np.arange(6), 6).tolist() == [[3, 0, 0, 0, 4, 0], [0, 2, 0, 1, 0, 0]]
