from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from merit.retrieval.quantise import decode, encode, loss
from merit.retrieval.topk import Ranked


@settings(max_examples=60, deadline=None)
@given(st.integers(0, 2**32), st.sampled_from([1e-6, 1.0, 1e4]))
def test_what_is_read_back_is_near(seed: int, scale: float) -> None:
    rows = np.random.default_rng(seed).standard_normal((9, 5), dtype=np.float32) * np.float32(scale)
    rows[3] = 0
    largest = np.abs(rows).max(axis=1, keepdims=True)
    assert (decode(*encode(rows, "float32")) == rows).all()
    assert (np.abs(decode(*encode(rows, "float16")) - rows) <= largest * 2.0**-11 + 2.0**-25).all()
    assert (np.abs(decode(*encode(rows, "int8")) - rows) <= largest / 254 * 1.0001).all()


def test_loss_counts_rows_and_the_largest_change() -> None:
    full = [Ranked(np.array([3, 1, 2]), np.array([0.9, 0.5, 0.4])), Ranked(np.array([7]), np.array([1.0]))]
    small = [Ranked(np.array([1, 3, 9]), np.array([0.75, 0.6, 0.5])), Ranked(np.array([7]), np.array([1.0]))]
    assert loss(full, full) == (1.0, 0.0)
    assert loss(full, small) == (0.75, pytest.approx(0.3))
    assert loss([], []) == (1.0, 0.0)
