"""Sums must say what the rows say, in whatever pieces they come."""

from __future__ import annotations

import numpy as np
import polars as pl
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from merit.campaigns.experiments.moments import Moments, Reals, from_sums, merge, points_near, sums
from tests.campaigns.worlds import moments

TABLES = st.integers(1, 3).flatmap(
    lambda columns: st.integers(2, 40).flatmap(
        lambda rows: arrays(np.float64, (rows, columns), elements=st.floats(-1e4, 1e4, width=32))
    )
)


def streamed(rows: Reals, group: list[str]) -> dict[str, Moments]:
    names = [f"column {place}" for place in range(rows.shape[1])]
    frame = pl.LazyFrame(rows, schema=names).with_columns(group=pl.Series(group))
    about = points_near(frame, names)
    found = frame.group_by("group").agg(sums(names, about)).collect(engine="streaming")
    return {row["group"]: from_sums(row, names, about) for row in found.iter_rows(named=True)}


def assert_same(one: Moments, two: Moments) -> None:
    assert one.users == two.users
    size = 1 + np.abs(two.scatter).max()
    np.testing.assert_allclose(one.mean, two.mean, rtol=1e-9, atol=1e-9 * (1 + np.abs(two.mean).max()))
    np.testing.assert_allclose(one.scatter, two.scatter, atol=1e-8 * size)


@settings(max_examples=60, deadline=None)
@given(TABLES, st.integers(0, 10_000))
def test_one_pass_equals_the_loop_over_rows(rows: Reals, seed: int) -> None:
    group = np.random.default_rng(seed).choice(["a", "b"], len(rows)).tolist()
    streams = streamed(rows, group)
    assert set(streams) == set(group)
    for name, found in streams.items():
        assert_same(found, moments(rows[np.array(group) == name]))


@settings(max_examples=60, deadline=None)
@given(TABLES, st.integers(1, 39))
def test_parts_add_up_to_the_whole(rows: Reals, cut: int) -> None:
    parts = [part for part in (rows[:cut], rows[cut:]) if len(part)]
    assert_same(merge([moments(part) for part in parts]), moments(rows))


def test_differences_survive_large_numbers() -> None:
    """Unix times as a covariate: their squares hold no digit of the seconds between them."""
    rows = np.stack([np.arange(1000) % 2, 1.7e9 + np.arange(1000) % 7], axis=1).astype(np.float64)
    found = streamed(rows, ["a"] * 1000)["a"]
    np.testing.assert_allclose(found.covariance, np.cov(rows.T), rtol=1e-9)
