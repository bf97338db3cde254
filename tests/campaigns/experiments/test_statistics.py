"""Sums must equal those of the rows, in whatever pieces they come; files are written, read, and refused."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from merit.campaigns.experiments import statistics
from merit.campaigns.experiments.analysis import analyse
from merit.campaigns.experiments.outcomes import tabulate
from merit.campaigns.experiments.statistics import Moments, Reals, from_sums, merge, points_near, sums
from merit.core.errors import MeritError
from tests.campaigns.worlds import KNOWN, design, moments, outcomes

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
    assert one.extremes == two.extremes


@settings(max_examples=60, deadline=None)
@given(TABLES, st.integers(0, 10_000))
def test_one_pass_equals_the_loop_over_rows(rows: Reals, seed: int) -> None:
    group = np.random.default_rng(seed).choice(["a", "b"], len(rows)).tolist()
    streams = streamed(rows, group)
    assert set(streams) == set(group)
    for name, found in streams.items():
        assert_same(found, moments(rows[np.array(group) == name]))


def test_the_heaviest_user_is_known_where_rows_were_seen() -> None:
    even, heavy = moments(np.array([[1.0], [2.0], [3.0]])), moments(np.array([[0.0]] * 99 + [[100.0]]))
    assert even.heaviest == 0.5 and heavy.heaviest == pytest.approx(99**2 / (99**2 + 99))
    unseen = Moments(heavy.users, heavy.mean, heavy.scatter)
    assert unseen.heaviest is None and merge([heavy, unseen]).extremes is None
    assert moments(np.ones((3, 1))).heaviest is None


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


def test_an_analysis_of_the_statistics_is_the_analysis_of_the_users(tmp_path: Path) -> None:
    agreed = design(covariates=("orders_before",), segment="vertical")
    outcomes(2_000, lift=0.2).write_parquet(tmp_path / "users.parquet")
    seen = tabulate(agreed, tmp_path / "users.parquet")
    statistics.write(tmp_path / "statistics.json", seen)
    one, two = (analyse(agreed, each, KNOWN) for each in (seen, statistics.read(tmp_path / "statistics.json", agreed)))
    assert one.posterior.lift == pytest.approx(two.posterior.lift)
    assert one.posterior.high == pytest.approx(two.posterior.high)
    assert [each.name for each in one.segments] == [each.name for each in two.segments]
    assert any("Only statistics" in finding.message for finding in two.findings)


def test_rates_alone_are_enough_for_a_yes_or_no_outcome(tmp_path: Path) -> None:
    cells = [{"arm": "expert", "users": 1000, "mean": [0.1]}, {"arm": "merit", "users": 1000, "mean": [0.12]}]
    (tmp_path / "s.json").write_text(json.dumps({"columns": ["bought"], "cells": cells}))
    found = statistics.read(tmp_path / "s.json", design())
    rows = np.repeat([1.0, 0.0], [120, 880])
    assert found.cells[1].moments.covariance[0, 0] == pytest.approx(rows.var(ddof=1))


GOOD = {"arm": "merit", "users": 1000, "mean": [0.1, 2.0], "covariance": [[0.09, 0.0], [0.0, 1.0]]}
BAD: dict[str, tuple[Any, str]] = {
    "no JSON": ("{", "is not valid JSON"),
    "a list": ([], "settings with names"),
    "an unknown key": ({"columns": ["bought"], "cells": [GOOD | {"sd": 1}]}, "unknown setting"),
    "another column": ({"columns": ["sold", "orders_before"], "cells": [GOOD]}, "the design agreed on bought"),
    "an unknown arm": ({"columns": ["bought", "orders_before"], "cells": [GOOD | {"arm": "B"}]}, "arm 'B'"),
    "an arm twice": ({"columns": ["bought", "orders_before"], "cells": [GOOD, GOOD]}, "twice"),
    "a wrong choice": ({"columns": ["bought", "orders_before"], "cells": [GOOD | {"chosen": "x"}]}, "chosen is one of"),
    "a mean too few": ({"columns": ["bought", "orders_before"], "cells": [GOOD | {"mean": [0.1]}]}, "one per column"),
    "no covariance": ({"columns": ["bought", "orders_before"], "cells": [GOOD | {"covariance": None}]}, "left out"),
    "a crooked covariance": (
        {"columns": ["bought", "orders_before"], "cells": [GOOD | {"covariance": [[0.09, 1.0], [0.0, 1.0]]}]},
        "symmetric",
    ),
    "an impossible covariance": (
        {"columns": ["bought", "orders_before"], "cells": [GOOD | {"covariance": [[0.09, 2.0], [2.0, 1.0]]}]},
        "not positive",
    ),
    "a rate above one": ({"columns": ["bought", "orders_before"], "cells": [GOOD | {"mean": [1.5, 2.0]}]}, "between 0"),
}


@pytest.mark.parametrize("name", BAD)
def test_bad_statistics_are_explained(name: str, tmp_path: Path) -> None:
    value, words = BAD[name]
    (tmp_path / "s.json").write_text(value if isinstance(value, str) else json.dumps(value))
    with pytest.raises(MeritError) as told:
        statistics.read(tmp_path / "s.json", design(covariates=("orders_before",)))
    assert words in str(told.value)


def test_a_file_that_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(MeritError, match="--statistics PATH"):
        statistics.read(tmp_path / "s.json", design())
