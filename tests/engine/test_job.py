"""The plan: everybody once, a user in one shard, and nothing depends on who else is there."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from merit.data.prepare import SplitConfig, assign_users
from merit.engine import job

IDS = st.lists(st.text(max_size=8), min_size=1, max_size=60)


@given(IDS, st.integers(1, 50))
def test_every_row_is_in_one_shard_and_in_its_own_order(ids: list[str], number: int) -> None:
    plan = job.shard_plan(ids, number)
    assert sorted(row for rows in plan.values() for row in rows.tolist()) == list(range(len(ids)))
    assert all((np.diff(rows) > 0).all() and 0 <= shard < number for shard, rows in plan.items())
    assert list(plan) == sorted(plan)


@given(IDS, st.integers(1, 50))
def test_a_user_is_in_one_shard_whoever_else_is_there(ids: list[str], number: int) -> None:
    where = {ids[row]: shard for shard, rows in job.shard_plan(ids, number).items() for row in rows.tolist()}
    for shard, rows in job.shard_plan(ids, number).items():
        assert {where[ids[row]] for row in rows.tolist()} == {shard}
    for name in set(ids):
        assert list(job.shard_plan([name], number)) == [where[name]]


@given(st.integers(0, 10**9))
def test_the_number_of_shards_is_one_for_few_rows_and_grows_with_them(rows: int) -> None:
    number = job.shard_count(rows)
    assert 1 <= number <= job.MAX_SHARDS
    assert number in (1, job.MAX_SHARDS) or (number - 1) * job.SHARD_ROWS < rows <= number * job.SHARD_ROWS


def test_shards_are_even_also_among_users_of_one_part_of_prepare() -> None:
    import polars as pl

    people = assign_users(pl.Series([f"u{number}" for number in range(40_000)]), SplitConfig(), 7, shards=8)
    ids = people.filter(pl.col("shard") == 3)["user_id"].to_list()
    sizes = [len(rows) for rows in job.shard_plan(ids, 8).values()]
    assert len(sizes) == 8
    assert max(sizes) < 1.25 * min(sizes)
