"""The page of an audience: complete, self-contained, without a date, and silent about fewer than 50 users."""

from __future__ import annotations

import re
from itertools import pairwise
from typing import Any

import numpy as np
import polars as pl
from hypothesis import given, settings
from hypothesis import strategies as st

from merit.campaigns.audiences.audience import (
    AudienceProvenance,
    AudienceSummary,
    ResolvedInterest,
    ScoredUsers,
    compose,
)
from merit.campaigns.audiences.eligibility import WaterfallStep
from merit.campaigns.audiences.forecast import CombinedScores, ReliabilityBins
from merit.campaigns.audiences.report import audience_page, public_summary, waterfall_table
from merit.campaigns.audiences.request import AudienceRequest
from merit.core.config import build
from merit.report.page import render

KEPT = ReliabilityBins(np.array([0.0]), np.array([400.0]), np.array([420.0]))
NAMES = ("What to know first", "Request", "may be addressed", "to expect", "contacted", "build it again")


def told(removed: list[int], users: int = 4_000, **changes: Any) -> AudienceSummary:
    scores = np.random.default_rng(1).random(users) ** 3 * 0.2
    left, steps = users, []
    for place, count in enumerate(removed):
        left -= count
        steps.append(WaterfallStep(rule=f"rule {place}", removed=count, left=left))
    asked = build(
        AudienceRequest,
        {
            "name": "Spring <sale>",
            "interests": ["tents", "stoves"],
            "size": {"by": "count", "users": 400},
            "economics": {"cost_per_contact": 0.1, "value_per_conversion": 5},
            "control": {"share": 0.05, "salt": "spring-2027"},
        }
        | changes,
    )
    meant = tuple(
        ResolvedInterest(text=text, label=-1, nearest="camping", similarity=0.4, far=True, weight=1)
        for text in ("tents", "stoves")
    )
    ids = pl.Series([f"user-{number}" for number in range(users)])
    found = CombinedScores(scores, scores * 0.5, np.minimum(scores * 2, 1))
    origin = AudienceProvenance(model="abc", label_version=1, users=users, tables={"c.csv": {"c.csv": "0" * 64}})
    return compose(asked, ids, ScoredUsers(found, meant, KEPT), np.arange(users) < left, tuple(steps), origin).figures


def test_every_part_is_there_and_nothing_is_fetched_or_dated() -> None:
    page = audience_page(told([700, 300]))
    titles = " ".join(section.title for section in page.sections)
    assert all(name in titles for name in NAMES)
    html = render(page)
    assert html.count("<svg") == 3 and "user-" not in html
    assert not re.search(r"(src|href)=\"(?!#)|<script|@import", html)
    assert "Spring <sale>" not in html and "Spring &lt;sale&gt;" in html
    assert render(audience_page(told([700, 300]))) == html and not re.search(r"20\d\d-\d\d-\d\dT", html)


def test_a_small_control_cannot_be_worked_out() -> None:
    figures = told([])
    page = audience_page(figures)
    arms = next(section for section in page.sections if section.title == "Who is contacted").tables[0].frame
    assert arms["users"].to_list() == ["<50", "withheld"]
    contacted, cost = figures.arms["treatment"], figures.forecast.cost  # type: ignore[union-attr]
    assert 0 < figures.members - contacted < 50
    assert f"{contacted}" not in render(page) and f"{cost:.2f}" not in render(page)
    assert not {"users", "cost"} & set(public_summary(figures)["forecast"])


@settings(max_examples=60, deadline=None)
@given(st.lists(st.integers(0, 120), max_size=6))
def test_no_small_step_can_be_worked_out(removed: list[int]) -> None:
    figures = told(removed)
    rows = waterfall_table(figures).rows(named=True)
    exact = [int(row["left"].replace(",", "")) for row in rows if "about" not in row["left"]]
    apart = [before - after for before, after in pairwise(exact[:-1])]
    assert all(step >= 50 for step in apart)
    shown = [row["removed"] for row in rows[1:-1]]
    assert all(each == "<50" or int(each.replace(",", "")) >= 50 for each in shown)
    assert all(f"rule {place}" in " ".join(row["step"] for row in rows) for place in range(len(removed)))


def test_programs_are_told_no_more_than_people() -> None:
    figures = told([700, 10])
    spoken = public_summary(figures)
    assert spoken["members"] == 400 and spoken["forecast"]["conversions"] > 0
    assert all(size["users"] >= 50 for size in spoken["sizes"]) and "10" not in [
        row["removed"] for row in spoken["waterfall"]
    ]


def test_rules_that_begin_alike_keep_a_bar_each() -> None:
    figures = told([700, 300])
    alike = tuple(step.model_copy(update={"rule": "consent: newsletter of " + step.rule}) for step in figures.waterfall)
    page = audience_page(figures.model_copy(update={"waterfall": alike}))
    drawn = next(section for section in page.sections if section.title == "Who may be addressed").charts[0].svg
    assert "2. consent" in drawn and "3. consent" in drawn
