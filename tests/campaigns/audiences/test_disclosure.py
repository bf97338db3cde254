"""What two previews tell about one user: next to nothing, while the figures stay useful."""

from __future__ import annotations

from functools import cache
from itertools import pairwise
from typing import Any

import numpy as np
import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from merit.campaigns.audiences.audience import Audience, AudienceProvenance, AudienceSummary, ScoredUsers, compose
from merit.campaigns.audiences.disclosure import MARGIN, STEP, Noise
from merit.campaigns.audiences.eligibility import WaterfallStep
from merit.campaigns.audiences.forecast import CombinedScores, ReliabilityBins
from merit.campaigns.audiences.request import AudienceRequest
from merit.core.config import build
from merit.core.errors import DataError, PolicyError

USERS = 600
KEPT = ReliabilityBins(np.array([0.0]), np.array([400.0]), np.array([420.0]))
SCORES = np.random.default_rng(1).random(USERS) ** 3 * 0.5
EVERYBODY = {"by": "percentile", "percent": 100}


def audience(left_out: tuple[int, ...] = (), size: dict[str, Any] | None = None, **changes: Any) -> Audience:
    """An audience with a rule that leaves these users out."""
    asked = build(AudienceRequest, {"name": "a", "interests": ["tents"], "size": size or EVERYBODY} | changes)
    eligible = np.ones(USERS, dtype=bool)
    eligible[list(left_out)] = False
    left = int(eligible.sum())
    steps = (WaterfallStep(rule="without those listed", removed=USERS - left, left=left),)
    scored = ScoredUsers(CombinedScores(SCORES, SCORES * 0.9, SCORES), reliability=KEPT, secret="of the model")
    origin = AudienceProvenance(model="abc", label_version=1, users=USERS)
    return compose(asked, users(), scored, eligible, steps, origin)


@cache
def users() -> pl.Series:
    return pl.Series([f"user-{number}" for number in range(USERS)])


def preview(*left_out: int, **changes: Any) -> AudienceSummary:
    return audience(left_out, **changes).published


def conversions(figures: AudienceSummary) -> float:
    assert figures.forecast
    return figures.forecast.conversions


def test_a_score_cannot_be_worked_out_from_two_previews() -> None:
    """Before, the difference was the score to seven digits."""
    whole = conversions(preview())
    wrong = [abs(whole - conversions(preview(user)) - SCORES[user]) for user in range(0, USERS, 5)]
    assert np.median(wrong) > SCORES.max()
    exact = audience().figures.forecast, audience((7,)).figures.forecast
    assert exact[0] and exact[1] and exact[0].conversions - exact[1].conversions == pytest.approx(SCORES[7], abs=1e-9)


def test_a_cut_does_not_tell_on_which_side_of_it_a_user_is() -> None:
    """Whether an audience above a probability shrinks without the user, halving the scores in the middle."""
    size = {"by": "probability", "at_least": float(np.median(SCORES))}
    whole, asked = preview(size=size).members, range(0, USERS, 3)
    right = [(preview(user, size=size).members < whole) == (SCORES[user] >= size["at_least"]) for user in asked]
    assert np.mean(right) < 0.65


@pytest.mark.parametrize("figure", ["eligible", "lowest", "sizes", "waterfall", "eligible_histogram"])
def test_no_figure_has_its_exact_value(figure: str) -> None:
    shown = [getattr(preview(user), figure) for user in range(20)]
    assert shown != [getattr(audience((user,)).figures, figure) for user in range(20)]


def test_asking_again_tells_nothing_new_and_nobody_is_left_out_by_a_rule_unseen() -> None:
    assert preview(3, 4) == preview(3, 4)
    counts = {preview(user).eligible for user in range(40)}
    assert len(counts) > 1 and all(count % STEP == 0 for count in counts)


def test_a_bin_that_lies_in_the_audience_has_one_number() -> None:
    """Else the mean over many cuts below it would be the exact one."""
    shown = [preview(5, size={"by": "probability", "at_least": at}).member_histogram[-2:] for at in (0.01, 0.02, 0.03)]
    assert len(set(shown)) == 1


@settings(max_examples=40, deadline=None)
@given(
    st.lists(st.integers(0, USERS - 1), max_size=200, unique=True),
    st.sampled_from([EVERYBODY, {"by": "percentile", "percent": 40}, {"by": "probability", "at_least": 0.02}]),
    st.booleans(),
)
def test_figures_fit_together_and_are_near_the_exact_ones(left_out: list[int], size: Any, control: bool) -> None:
    arms = {"control": {"share": 0.2, "salt": "spring-2027"}} if control else {}
    both = audience(tuple(left_out), size=size, economics={"cost_per_contact": 0.1, "value_per_conversion": 5}, **arms)
    shown, exact = both.published, both.figures
    assert 100 <= shown.members <= shown.eligible <= USERS and sum(shown.arms.values()) == shown.members
    assert [step.left for step in shown.waterfall] == [shown.eligible] and shown.lowest is not None
    assert sum(step.removed for step in shown.waterfall) == USERS - shown.eligible
    assert abs(shown.members - exact.members) < 60 and shown.lowest <= 0.5
    ahead = shown.forecast
    assert ahead and ahead.users == shown.arms["treatment"] and ahead.cost == pytest.approx(0.1 * ahead.users)
    assert 0 <= ahead.low <= ahead.high and ahead.least <= ahead.conversions <= ahead.most
    assert all(before.users <= after.users for before, after in pairwise(shown.sizes))


def test_a_count_of_the_request_is_told_as_it_was_asked() -> None:
    assert preview(1, size={"by": "count", "users": 123}).members == 123
    with pytest.raises(DataError, match=r"About 5\d\d users are eligible, and 600"):
        preview(1, size={"by": "count", "users": 600})


def test_refusals_keep_a_distance_from_the_exact_number() -> None:
    """99 known users and one more were an oracle: refused or not was the answer about that one."""

    def refused(members: int, users: range) -> list[bool]:
        ends = []
        for start in users:
            inside = np.argsort(-SCORES)[start : start + members]
            try:
                preview(*np.setdiff1d(np.arange(USERS), inside).tolist())
            except PolicyError:
                ends.append(True)
            else:
                ends.append(False)
        return ends

    near = refused(100 + MARGIN // 2, range(30))
    assert any(near) and not all(near) and all(refused(99, range(3))) and not any(refused(120, range(3)))


def test_shares_of_few_users_are_rough() -> None:
    table = pl.DataFrame(
        {"interest": ["tents", "tea"], "share": [0.501, 0.3], "base": [0.25, 0.1], "index": [2.0, 3.0]}
    )
    shown = Noise("secret", np.arange(150)).shares(table)
    assert set(shown["interest"]) == {"tents", "tea"} and shown["index"].is_sorted(descending=True)
    assert all(round(share, 2) == share for share in shown["share"]) and shown.columns == table.columns
    assert shown["share"].to_list() != Noise("secret", np.arange(151)).shares(table)["share"].to_list()
