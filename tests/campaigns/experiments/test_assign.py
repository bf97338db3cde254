"""An arm belongs to a user, for ever, and to nobody's convenience."""

from __future__ import annotations

from hashlib import blake2b

import numpy as np
import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from merit.campaigns.experiments.assign import arm_of, sample_ratio, with_arms

ARMS = {"holdout": 0.1, "expert": 0.45, "merit": 0.45}


def slow_arm(user: str, arms: dict[str, float], salt: str) -> str:
    """As another program would do it from the documentation."""
    key = blake2b(salt.encode(), digest_size=16).digest()
    number = int.from_bytes(blake2b(user.encode(), digest_size=8, key=key).digest(), "little")
    place, end = (number >> 11) / 2**53, 0.0
    for name, share in arms.items():
        end += share
        if place < end:
            return name
    return list(arms)[-1]


@settings(max_examples=60, deadline=None)
@given(st.lists(st.text(max_size=12), min_size=1, max_size=30), st.text(min_size=8, max_size=20))
def test_the_fast_way_is_the_documented_way(users: list[str], salt: str) -> None:
    assert arm_of(pl.Series(users), ARMS, salt).to_list() == [slow_arm(user, ARMS, salt) for user in users]


def test_pinned() -> None:
    """If this changes, users of running campaigns change their arm."""
    arms = arm_of(pl.Series(["u1", "u2", "u3", "u4", "ü 5"]), ARMS, "spring-2026")
    assert arms.to_list() == ["merit", "merit", "expert", "merit", "merit"]


def test_others_do_not_matter_and_neither_does_the_order() -> None:
    users = pl.Series([f"u{number}" for number in range(500)])
    alone = arm_of(users, ARMS, "spring-2026")
    assert arm_of(users.reverse(), ARMS, "spring-2026").reverse().equals(alone)
    assert arm_of(users[100:200], ARMS, "spring-2026").equals(alone[100:200])


def test_shares_are_kept_and_salts_are_independent() -> None:
    users = pl.Series([f"u{number}" for number in range(60_000)])
    one, two = (arm_of(users, ARMS, salt) for salt in ("spring-2026", "summer-2026"))
    counts = {str(name): int(number) for name, number in one.value_counts().iter_rows()}
    assert sample_ratio(counts, ARMS) > 0.001
    table = pl.DataFrame({"one": one, "two": two}).group_by("one", "two").len().sort("one", "two")
    assert stats.chi2_contingency(table["len"].to_numpy().reshape(3, 3)).pvalue > 0.001


def test_a_holdout_that_grows_keeps_its_users() -> None:
    users = pl.Series([f"u{number}" for number in range(5_000)])
    small = arm_of(users, {"holdout": 0.1, "rest": 0.9}, "spring-2026") == "holdout"
    large = arm_of(users, {"holdout": 0.2, "rest": 0.8}, "spring-2026") == "holdout"
    assert (small & ~large).sum() == 0 and large.sum() > small.sum()


def test_lazily_and_in_batches_it_is_the_same() -> None:
    users = pl.Series("user_id", [f"u{number}" for number in range(3_000)])
    lazy = with_arms(pl.LazyFrame({"user_id": users}), "user_id", ARMS, "spring-2026")
    found = lazy.collect(engine="streaming")
    assert found["user_id"].equals(users) and found["arm"].equals(arm_of(users, ARMS, "spring-2026"))


@settings(max_examples=40, deadline=None)
@given(st.lists(st.integers(5, 5_000), min_size=3, max_size=3))
def test_the_ratio_test_is_pearsons(counts: list[int]) -> None:
    expected = np.array(list(ARMS.values())) * sum(counts)
    ours = sample_ratio(dict(zip(ARMS, counts, strict=True)), ARMS)
    assert ours == pytest.approx(stats.chisquare(counts, expected).pvalue, abs=1e-12)


def test_what_chance_does_and_what_it_does_not() -> None:
    halves = {"a": 0.5, "b": 0.5}
    assert sample_ratio({"a": 510_000, "b": 490_000}, halves) < 1e-80
    assert sample_ratio({"a": 50_100, "b": 49_900}, halves) > 0.5
    assert sample_ratio({"a": 1_000}, halves) < 1e-100
