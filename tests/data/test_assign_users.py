from __future__ import annotations

import polars as pl
import pytest
from pydantic import ValidationError

from merit.data.prepare import SplitConfig, assign_users


def ids(count: int) -> pl.Series:
    return pl.Series("user_id", [f"user-{n}" for n in range(count)])


def test_shares_are_as_asked() -> None:
    users = assign_users(ids(20_000), SplitConfig(validation=0.1, test=0.2), seed=7, shards=4)
    shares = dict(users["split"].value_counts(normalize=True).iter_rows())
    assert abs(shares["train"] - 0.7) < 0.015
    assert abs(shares["test"] - 0.2) < 0.015
    assert users["shard"].n_unique() == 4


def test_a_user_stays_put_whoever_else_is_there() -> None:
    few, many = (assign_users(ids(n), SplitConfig(), seed=7, shards=3) for n in (50, 5_000))
    kept = many.join(few, on="user_id", suffix="_few")
    assert len(kept) == 50
    assert (kept["split"] == kept["split_few"]).all()
    assert (kept["shard"] == kept["shard_few"]).all()


def test_input_order_does_not_matter() -> None:
    forward = assign_users(ids(300), SplitConfig(), 7, 2)
    assert forward.equals(assign_users(ids(300).reverse(), SplitConfig(), 7, 2))


def test_the_seed_moves_splits_but_never_shards() -> None:
    one, two = (assign_users(ids(1_000), SplitConfig(), seed, 5) for seed in (1, 2))
    assert (one["shard"] == two["shard"]).all()
    assert not (one["split"] == two["split"]).all()


def test_users_are_numbered_within_their_shard() -> None:
    users = assign_users(ids(1_000), SplitConfig(), 7, 3)
    for (_,), members in users.partition_by("shard", as_dict=True).items():
        assert members["user"].to_list() == list(range(len(members)))


def test_no_users_is_fine() -> None:
    assert len(assign_users(ids(0).cast(pl.String), SplitConfig(), 7, 1)) == 0


def test_a_small_shop_keeps_its_test_users() -> None:
    whole, small, smaller = (assign_users(ids(2_000), SplitConfig(users=users), 7, 3) for users in (None, 200, 50))
    test = whole.filter(split="test")["user_id"]
    assert small.filter(split="test")["user_id"].equals(test)
    assert len(small) == len(test) + 200 and len(smaller) == len(test) + 50
    assert set(smaller["user_id"]) < set(small["user_id"]) < set(whole["user_id"])
    assert abs((small["split"] == "validation").sum() / 200 - 1 / 8) < 0.08
    assert (
        small.join(whole, on="user_id", suffix="_whole")
        .select(pl.col("split") == pl.col("split_whole"))
        .to_series()
        .all()
    )
    for (_,), members in small.partition_by("shard", as_dict=True).items():
        assert members["user"].to_list() == list(range(len(members)))


def test_someone_must_be_left_to_train_on() -> None:
    with pytest.raises(ValidationError, match="no users to train on"):
        SplitConfig(validation=0.5, test=0.5)
