"""Sizes, arms and floors over plain arrays, against the slow way."""

from __future__ import annotations

from typing import Any

import numpy as np
import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from merit.campaigns.audiences import audience
from merit.campaigns.audiences.audience import (
    ARMS,
    Audience,
    AudienceProvenance,
    ScoredUsers,
    arms_of,
    compose,
    cut,
    members,
    ranking,
)
from merit.campaigns.audiences.forecast import CombinedScores, ReliabilityBins
from merit.campaigns.audiences.request import ArmShare, AudienceRequest, Economics
from merit.campaigns.experiments.assign import arm_of
from merit.core.config import build
from merit.core.errors import DataError, PolicyError

KEPT = ReliabilityBins(np.array([0.0]), np.array([100.0]), np.array([100.0]))
MONEY = {"cost_per_contact": 0.1, "value_per_conversion": 2.0}


def request(**changes: Any) -> AudienceRequest:
    return build(AudienceRequest, {"name": "a", "interests": ["a"], "size": {"by": "count", "users": 120}} | changes)


def made(scores: np.ndarray, eligible: np.ndarray | None = None, **changes: Any) -> Audience:
    users = pl.Series([f"u{number}" for number in range(len(scores))])
    everyone = np.ones(len(scores), dtype=bool)
    scored = ScoredUsers(CombinedScores(scores, scores, scores), reliability=KEPT)
    origin = AudienceProvenance(model="0", label_version=1, users=len(scores))
    return compose(request(**changes), users, scored, everyone if eligible is None else eligible, (), origin)


@settings(max_examples=100, deadline=None)
@given(
    st.lists(st.tuples(st.sampled_from([0.0, 0.01, 0.05, 0.05, 0.3]), st.booleans()), max_size=40),
    st.integers(0, 12),
    st.integers(1, 5),
)
def test_sizes_are_what_a_person_counts(rows: list[tuple[float, bool]], money: int, at_first: int) -> None:
    scores, contacted = np.array([row[0] for row in rows]), np.array([row[1] for row in rows], dtype=bool)
    slow = sorted(range(len(rows)), key=lambda at: (-rows[at][0], at))
    falling, treated = scores[slow], contacted[slow]

    def size(**values: Any) -> int:
        asked = request(size=values, economics=MONEY).size
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(audience, "FIRST", at_first)
            part = cut(asked, scores, falling, lambda wanted: contacted[wanted], Economics(**MONEY))
        inside = members(scores, falling, part)
        assert np.flatnonzero(inside).tolist() == sorted(slow[part])
        assert ranking(scores, inside).tolist() == slow[part]
        return part.stop - part.start

    assert size(by="probability", at_least=0.05) == sum(score >= 0.05 for score in falling)
    assert size(by="probability", at_least=0.01, at_most=0.05) == sum(0.01 <= score <= 0.05 for score in falling)
    assert size(by="value") == sum(score * 2 > 0.1 for score in falling)
    assert size(by="percentile", percent=50) == len(falling) // 2
    if rows:
        assert size(by="count", users=1 + money % len(rows)) == 1 + money % len(rows)
    if money:
        count = size(by="budget", budget=money * 0.1)
        assert treated[:count].sum() <= money
        assert count == len(falling) or treated[: count + 1].sum() == money + 1


def test_a_contact_that_costs_next_to_nothing_reaches_everybody() -> None:
    money = {"cost_per_contact": 5e-324}
    size = request(size={"by": "budget", "budget": 1e12}, economics=money).size
    scores = np.linspace(0.2, 0.1, 7)
    assert cut(size, scores, scores, lambda rows: np.ones(len(rows), dtype=bool), Economics(**money)) == slice(0, 7)


def test_nobody_is_asked_for_an_arm_who_cannot_be_afforded() -> None:
    size = request(size={"by": "budget", "budget": 10}, economics=MONEY).size
    scores, asked = np.random.default_rng(1).random(300_000), []

    def contacted(rows: np.ndarray) -> np.ndarray:
        asked.append(len(rows))
        return np.ones(len(rows), dtype=bool)

    assert cut(size, scores, np.sort(scores)[::-1], contacted, Economics(**MONEY)) == slice(0, 100)
    assert asked == [audience.FIRST]


def test_more_than_are_eligible_is_told() -> None:
    with pytest.raises(DataError, match="150 users are eligible, and 151"):
        made(np.linspace(0.1, 0.2, 150), size={"by": "count", "users": 151})


@pytest.mark.parametrize(
    "changes",
    [
        {"size": {"by": "count", "users": 99}},
        {"size": {"by": "probability", "at_least": 0.99}},
        {"size": {"by": "value"}, "economics": {"cost_per_contact": 9, "value_per_conversion": 1}},
        {"size": {"by": "budget", "budget": 5}, "economics": {"cost_per_contact": 1}},
    ],
)
def test_fewer_than_a_hundred_are_refused_and_not_counted(changes: dict[str, Any]) -> None:
    with pytest.raises(PolicyError, match="Fewer than 100") as told:
        made(np.linspace(0.1, 0.2, 300), **changes)
    assert "99" not in str(told.value)


def test_a_rule_that_isolates_one_user_is_refused() -> None:
    with pytest.raises(PolicyError, match="Fewer than 100"):
        made(np.linspace(0.1, 0.2, 300), eligible=np.arange(300) == 7)


def test_members_are_the_best_with_ranks_and_arms() -> None:
    scores = np.random.default_rng(1).random(3_000) / 10
    control = {"share": 0.2, "salt": "spring-2027"}
    found = made(scores, size={"by": "percentile", "percent": 10}, control=control)
    assert found.members["score"].to_list() == sorted(scores, reverse=True)[:300]
    assert found.members["rank"].to_list() == list(range(1, 301))
    assert sum(found.figures.arms.values()) == found.figures.members == 300
    ahead = found.figures.forecast
    treated = found.members.filter(pl.col("arm") == "treatment")
    assert ahead is not None and ahead.users == len(treated)
    assert ahead.conversions == pytest.approx(treated["score"].sum())


def test_the_control_is_that_of_an_experiment_with_its_salt_and_the_holdout_that_of_all() -> None:
    users = pl.Series([f"u{number}" for number in range(4_000)])
    holdout, control = ArmShare(share=0.1, salt="nobody-2027"), ArmShare(share=0.2, salt="spring-2027")
    arms = arms_of(users, holdout, control)
    agreed = arm_of(users, {"control": 0.2, "treatment": 0.8}, "spring-2027")
    rest = arms != "holdout"
    assert (arms.cast(pl.String) == agreed.cast(pl.String)).filter(rest).all()
    other = arms_of(users, holdout, ArmShare(share=0.2, salt="summer-2027"))
    assert ((other == "holdout") == (arms == "holdout")).all()
    assert arms_of(users, None, None).unique().to_list() == ["treatment"] and arms.dtype == pl.Enum(ARMS)
