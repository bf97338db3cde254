"""The bound holds for every pair, and is not so wide that it is useless."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from merit.retrieval import fast, store
from merit.retrieval.exact import Exact, ScorerWeights
from merit.retrieval.fast import Bound
from merit.retrieval.store import Side
from tests.retrieval.worlds import naive_score, weights


def rounded(side: Side, exact: Exact, kept: str) -> Side:
    """A side whose projections were stored in fewer bits."""
    stored = side.projections.values.astype(kept).astype(np.float32)
    off = np.linalg.norm(stored - exact.users.of(side.vectors.values), axis=1).max()
    norm = float(np.linalg.norm(stored.astype(float), axis=1).max())
    return replace(side, projections=store.Rows(stored), norm=norm, error=float(off))


def errors(
    net: ScorerWeights, users: np.ndarray, label: np.ndarray, kept: str = "<f4", fixed: str = "<f4"
) -> tuple[np.ndarray, float]:
    """(users,) of |float32 − float64| against one label, and the bound. `kept` and `fixed` round the projections."""
    exact = Exact.of(net)
    side = rounded(store.hold("users", users, exact.users), exact, kept)
    projection = exact.labels.of(label[None])
    stored = projection.astype(fixed).astype(np.float32)
    rough = fast.scores(net, side.projections, fast.fix(net, stored), None, 1, 64)[0]
    off = Bound.of(net).most(side.norm, side.error, projection, stored)
    return np.abs(rough - exact.scores(exact.users.of(users), projection[0])), float(off[0])


@settings(max_examples=60, deadline=None)
@given(
    st.integers(0, 2**32),
    st.sampled_from(["<f4", "<f2"]),
    st.integers(0, 80),
    st.integers(1, 20),
    st.integers(0, 70),
    st.sampled_from([1e-4, 1.0, 100.0]),
    st.sampled_from([0.0, 1.0]),
)
def test_no_score_is_off_by_more(
    seed: int, kept: str, first: int, second: int, factors: int, scale: float, layers: float
) -> None:
    rng = np.random.default_rng(seed)
    net = weights(rng, 5, 7, first, second if first else 0, factors)
    net = replace(net, w3=net.w3 * np.float32(layers), d3=net.d3 * layers)  # at 0 there is nothing but the product
    users = rng.standard_normal((50, 5), dtype=np.float32) * np.float32(scale) * rng.pareto(1.5, (50, 1)).clip(0, 20)
    label = rng.standard_normal(7, dtype=np.float32)
    found, off = errors(net, users.astype(np.float32), label, kept)
    assert (found <= off).all()


@pytest.mark.parametrize(
    ("whole", "kept", "fixed"),
    [(False, "<f2", "<f4"), (True, "<f4", "<f2"), (True, "<f4", "<f4")],
    ids=["the stored factors", "the fixed factors", "the rounding of the product"],
)
def test_each_way_in_which_a_product_can_be_off_is_in_the_bound(whole: bool, kept: str, fixed: str) -> None:
    """Silent layers, and one way at a time: without its part of the bound, scores are off by more."""
    rng = np.random.default_rng(3)
    net = weights(rng, 64, 64, 1, 1, 64)
    net = replace(net, W_u=net.W_u * 0, W_e=net.W_e * 0, d1=net.d1 * 0, w3=net.w3 * 0, d3=0.0)
    if whole:
        net = replace(net, P_u=np.eye(64, dtype=np.float32), P_e=np.eye(64, dtype=np.float32))  # float32 loses nothing
    users, label = rng.standard_normal((500, 64), dtype=np.float32), rng.standard_normal(64, dtype=np.float32)
    found, off = errors(net, users, label, kept, fixed)
    assert 0 < found.max() <= off


def test_at_the_default_sizes_it_is_a_small_part_of_the_spread_of_scores() -> None:
    rng = np.random.default_rng(0)
    net = weights(rng, 128, 384, 256, 64, 64)
    scaled = replace(
        net,
        **{"W_u": net.W_u / 11, "d1": net.d1 * 0, "W2": net.W2 / 11, "d2": net.d2 * 0, "w3": net.w3 / 6},
        **{"P_u": net.P_u / 33, "P_e": net.P_e / 3},
    )
    users, label = rng.standard_normal((2_000, 128), dtype=np.float32), rng.standard_normal(384, dtype=np.float32)
    found, off = errors(scaled, users, label / np.float32(np.linalg.norm(label)))
    spread = np.std([naive_score(scaled, user, label / np.float32(np.linalg.norm(label))) for user in users[:200]])
    assert found.max() <= off <= 0.02 * spread
