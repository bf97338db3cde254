"""The bound holds for every pair, and is not so wide that it is useless."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from merit.retrieval import fast, store
from merit.retrieval.bound import Bound
from merit.retrieval.exact import Exact
from merit.retrieval.mlp import Mlp
from merit.retrieval.quantise import DTYPES, Form
from tests.retrieval.worlds import naive_score, weights


def errors(net: Mlp, users: np.ndarray, label: np.ndarray, form: Form) -> tuple[np.ndarray, float]:
    """(users,) of |float32 − float64| against one label, and the bound."""
    exact = Exact.of(net)
    side = store.hold("users", users, exact.users, halves_form=form)
    half = exact.labels.halves(label[None])
    stored = half.astype(np.float32)
    rough = fast.scores(net, side.halves, fast.fix(net, stored), None, 1, 64)[0]
    off = Bound.of(net).most(
        side.norm, side.error, np.linalg.norm(stored, axis=1).astype(float), np.linalg.norm(half - stored, axis=1)
    )
    return np.abs(rough - exact.scores(exact.users.halves(users), half[0])), float(off[0])


@settings(max_examples=60, deadline=None)
@given(
    st.integers(0, 2**32),
    st.sampled_from(sorted(DTYPES)),
    st.integers(1, 80),
    st.integers(1, 20),
    st.sampled_from([1e-4, 1.0, 300.0]),
)
def test_no_score_is_off_by_more(seed: int, form: Form, half: int, second: int, scale: float) -> None:
    rng = np.random.default_rng(seed)
    net = weights(rng, 5, 7, half, second)
    users = rng.standard_normal((50, 5), dtype=np.float32) * np.float32(scale) * rng.pareto(1.5, (50, 1)).clip(0, 20)
    label = rng.standard_normal(7, dtype=np.float32)
    found, off = errors(net, users.astype(np.float32), label, form)
    assert (found <= off).all()


@pytest.mark.parametrize(("form", "widest"), [("float32", 0.02), ("float16", 0.05), ("int8", 1.0)])
def test_at_the_default_sizes_it_is_a_small_part_of_the_spread_of_scores(form: Form, widest: float) -> None:
    rng = np.random.default_rng(0)
    net = weights(rng, 128, 384, 256, 64)
    scaled = Mlp(net.W_u / 11, net.W_e, net.d1 * 0, net.W2 / 11, net.d2 * 0, net.w3 / 6, net.d3)
    users, label = rng.standard_normal((2_000, 128), dtype=np.float32), rng.standard_normal(384, dtype=np.float32)
    found, off = errors(scaled, users, label / np.float32(np.linalg.norm(label)), form)
    spread = np.std([naive_score(scaled, user, label / np.float32(np.linalg.norm(label))) for user in users[:200]])
    assert found.max() <= off <= widest * spread
