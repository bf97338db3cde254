"""Lists as long as their expected F-score grows."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from merit.propensity.lengths import LengthConfig, best_lengths

CHANCES = st.lists(st.floats(0.001, 0.999), min_size=1, max_size=12)


def test_by_hand() -> None:
    best = np.array([[0.5, 0.3, 0.2, 0.0], [0.9, 0.8, 0.7, 0.6], [0.9, 0.01, 0.01, 0.01]])
    # the first: 2·0.5/2 = 0.5, 2·0.8/3 = 0.533, 2·1.0/4 = 0.5
    assert best_lengths(best, np.array([1.0, 3.0, 0.93])).tolist() == [2, 4, 1]


def test_recall_weighs_more_in_longer_lists() -> None:
    best = np.array([[0.5, 0.3, 0.2, 0.1, 0.05]])
    lengths = [
        int(best_lengths(best, np.array([1.2]), LengthConfig(recall_weight=weight))[0]) for weight in (0.3, 1, 3)
    ]
    assert lengths == sorted(lengths) and lengths[0] < lengths[-1]


@given(CHANCES, st.floats(0, 5), st.floats(0.2, 4))
def test_no_other_length_has_a_better_expected_score(chances: list[float], rest: float, weight: float) -> None:
    falling = sorted(chances, reverse=True)
    total = sum(falling) + rest

    def score(size: int) -> float:
        return (1 + weight**2) * sum(falling[:size]) / (size + weight**2 * total)

    (chosen,) = best_lengths(np.array([falling]), np.array([total]), LengthConfig(recall_weight=weight))
    assert score(int(chosen)) >= max(map(score, range(1, len(falling) + 1))) - 1e-12
