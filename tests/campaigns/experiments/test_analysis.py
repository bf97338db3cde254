"""The whole analysis: decisions, what blocks them, segments, and rule against rule."""

from __future__ import annotations

from dataclasses import replace
from datetime import date
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest

from benchmarks import coverage
from merit.campaigns.experiments.analysis import Analysis, analyse
from merit.campaigns.experiments.checks import AnalysisContext, imbalance
from merit.campaigns.experiments.outcomes import tabulate
from merit.campaigns.experiments.statistics import CellMoments, Flow, Moments, Outcomes
from merit.core.errors import DataError
from tests.campaigns.worlds import KNOWN, design, moments, outcomes


def of(rate: float, users: int) -> Moments:
    return Moments(users, np.array([rate]), np.array([[rate * (1 - rate) * users]]))


def rates(expert: float, merit: float, users: tuple[int, int] = (50_000, 50_000), **flow: Any) -> Outcomes:
    cells = (
        CellMoments("expert", None, None, of(expert, users[0])),
        CellMoments("merit", None, None, of(merit, users[1])),
    )
    return Outcomes(("bought",), cells, Flow(rows=sum(users), **flow))


def analysed(seen: Outcomes, known: AnalysisContext = KNOWN, **changes: Any) -> Analysis:
    return analyse(design(**changes), seen, known)


def findings(told: Analysis) -> dict[str, str]:
    return {each.what: each.level for each in told.findings}


def test_a_campaign_that_helps_is_shipped() -> None:
    told = analysed(rates(0.10, 0.105))
    assert told.verdict == "ship" and told.posterior.above_zero > 0.99
    assert told.sentence.startswith("Ship merit: against expert it changes “bought” by +5.00 %")
    assert told.difference == pytest.approx(0.005) and told.loss_of_shipping < told.loss_of_keeping
    assert told.doubt is not None and findings(told) == {}


def test_a_campaign_that_does_nothing_is_not() -> None:
    told = analysed(rates(0.10, 0.1001), minimum_effect=0.1)
    assert told.verdict == "keep" and "more users will not help" in told.sentence and told.doubt is None
    small = analysed(rates(0.10, 0.1001, (2_000, 2_000)))
    assert "only a larger test would tell" in small.sentence and findings(small) == {"precision": "warn"}


def test_the_agreed_prior_decides() -> None:
    seen = rates(0.10, 0.1025)
    assert analysed(seen).verdict == "ship"
    told = analysed(seen, prior={"sd": 0.01})
    assert told.verdict == "keep" and next(iter(told.sensitivity)) == "agreed"
    assert told.posterior.lift < told.estimate.lift


def test_51_to_49_at_a_million_is_blocked() -> None:
    told = analysed(rates(0.10, 0.12, (510_000, 490_000)))
    assert told.verdict == "blocked" and findings(told)["sample ratio"] == "block"
    assert "50.00" not in told.sentence and "51.00 %" in told.sentence
    assert findings(analysed(rates(0.10, 0.12, (50_450, 49_550))))["sample ratio"] == "warn"


def test_an_amount_that_outweighs_all_others_is_named() -> None:
    rng = np.random.default_rng(7)
    rows = {arm: rng.gamma(1.0, 10.0, (5_000, 1)) for arm in ("expert", "merit")}
    amounts = {"outcome": {"column": "bought", "kind": "amount"}, "outlook": {"mean": 10.0, "sd": 10.0}}

    def seen() -> Outcomes:
        return Outcomes(("bought",), tuple(CellMoments(arm, None, None, moments(rows[arm])) for arm in rows), None)

    assert "heavy amounts" not in findings(analysed(seen(), **amounts))
    rows["merit"][0] = 1_000.0
    told = analysed(seen(), **amounts)
    [finding] = [each for each in told.findings if each.what == "heavy amounts"]
    assert finding.level == "warn" and "In merit one user" in finding.message and "1,000" not in finding.message


def test_heavy_tails_are_not_missed_in_silence() -> None:
    """A small part of benchmarks.coverage: the interval is too short, and nearly all campaigns are told so."""
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(coverage, "CAMPAIGNS", 300)
        worlds = (coverage.HEAVY, coverage.WORLDS["coverage"], coverage.HEAVY.model_copy(update={"winsorise": 0.995}))
        heavy, even, winsorised = (coverage.coverage(world, 7) for world in worlds)
    assert winsorised.covered > 0.92 and not winsorised.flagged
    assert heavy.covered < 0.93 and heavy.flagged > 0.9 and heavy.missed_in_silence < 0.03
    assert even.covered > 0.92 and not even.flagged


def test_the_true_lift_of_winsorised_amounts_is_that_of_many_draws() -> None:
    world = coverage.HEAVY.model_copy(update={"shape": 1.0, "winsorise": 0.95, "lift": 0.2, "treated": 0.25})
    rng = np.random.default_rng(7)
    arms = [world.draw(rng, (1, users), lift)[0, :, 0] for users, lift in ((200_000, 0.2), (600_000, 0.0))]
    cap = np.quantile(np.concatenate(arms), 0.95)
    treated, control = (np.minimum(rows, cap).mean() for rows in arms)
    assert treated / control - 1 == pytest.approx(world.true_lift, abs=0.02)


def test_the_true_lift_of_capped_amounts_is_that_of_many_draws() -> None:
    world = coverage.HEAVY.model_copy(update={"shape": 1.0, "cap": 3.0, "lift": 0.2})
    rng = np.random.default_rng(7)
    treated, control = (world.draw(rng, (1, 400_000), lift)[..., 0].mean() for lift in (world.lift, 0.0))
    assert treated / control - 1 == pytest.approx(world.true_lift, abs=0.02)


BROKEN: dict[str, tuple[Outcomes, dict[str, Any], str]] = {
    "many crossovers": (rates(0.1, 0.12, crossovers=2_000), {}, "crossovers"),
    "another assignment": (rates(0.1, 0.12, checked=1_000, misplaced=500), {}, "assignment"),
    "exposed too early": (rates(0.1, 0.12, early=5_000), {}, "exposure"),
    "an early look": (rates(0.1, 0.12), {"known": AnalysisContext(until=date(2026, 3, 5))}, "window"),
    "a longer window": (rates(0.1, 0.12), {"known": AnalysisContext(until=date(2026, 3, 20))}, "window"),
    "only buyers": (rates(0.1, 0.12), {"known": replace(KNOWN, assigned=900_000)}, "users"),
    "strangers": (rates(0.1, 0.12), {"known": replace(KNOWN, assigned=90_000)}, "users"),
    "a handful of conversions": (rates(0.0002, 0.0008), {}, "few conversions"),
}


@pytest.mark.parametrize("name", BROKEN)
def test_a_broken_comparison_decides_nothing(name: str) -> None:
    seen, changes, what = BROKEN[name]
    told = analysed(seen, **changes)
    assert told.verdict == "blocked" and findings(told)[what] == "block" and told.findings[0].level == "block"
    assert told.sentence == f"No decision can be made. {told.findings[0].message}"


WARNED: dict[str, tuple[Outcomes, dict[str, Any], str]] = {
    "few crossovers": (rates(0.1, 0.12, crossovers=20), {}, "crossovers"),
    "few misplaced": (rates(0.1, 0.12, checked=1_000, misplaced=2), {}, "assignment"),
    "few exposed early": (rates(0.1, 0.12, early=20), {}, "exposure"),
    "a window nobody told": (rates(0.1, 0.12), {"known": AnalysisContext()}, "window"),
    "a design from after the start": (
        rates(0.1, 0.12),
        {"known": replace(KNOWN, frozen_on=date(2026, 3, 4))},
        "design",
    ),
    "few users lost": (rates(0.1, 0.12), {"known": replace(KNOWN, assigned=100_020)}, "users"),
    "a covariate few have": (rates(0.1, 0.12, missing={"orders_before": 90_000}), {}, "covariates"),
}


@pytest.mark.parametrize("name", WARNED)
def test_what_is_only_to_be_kept_in_mind(name: str) -> None:
    seen, changes, what = WARNED[name]
    told = analysed(seen, **changes)
    assert told.verdict == "ship" and findings(told) == {what: "warn"}
    assert "20 users" not in " ".join(
        finding.message for finding in told.findings
    )  # about fewer than 50, no exact figure


def test_an_arm_without_users() -> None:
    seen = rates(0.1, 0.12)
    with pytest.raises(DataError, match="No user is in the arm 'merit'"):
        analysed(replace(seen, cells=seen.cells[:1]))


def test_arms_that_differed_before_are_told(tmp_path: Path) -> None:
    frame = outcomes(4_000).with_columns(
        orders_before=pl.col("orders_before") + 2 * (pl.col("arm") == "merit").cast(pl.Int64)
    )
    frame.write_parquet(tmp_path / "users.parquet")
    agreed = design(covariates=("orders_before", "visits_before"))
    told = analyse(agreed, tabulate(agreed, tmp_path / "users.parquet"), KNOWN)
    assert told.imbalance < 1e-6 and "covariates" in findings(told)
    assert [each.name for each in told.balance] == ["orders_before", "visits_before"]
    assert told.balance[0].difference > 0.3 > abs(told.balance[1].difference)


def test_a_covariate_that_knows_too_much_is_told() -> None:
    rng = np.random.default_rng(1)
    spent = rng.gamma(1, 1, (2, 500))
    cells = [
        CellMoments(arm, None, None, moments(np.stack([row, row + 0.1 * rng.normal(size=500)], axis=1)))
        for arm, row in zip(("expert", "merit"), spent, strict=True)
    ]
    amounts = {"outcome": {"column": "spent", "kind": "amount"}, "outlook": {"mean": 1, "sd": 1}}
    told = analysed(Outcomes(("spent", "after"), tuple(cells), Flow(1000)), covariates=("after",), **amounts)
    assert findings(told)["covariates"] == "warn" and told.variance_removed > 0.9


def test_chance_alone_seldom_sets_arms_apart() -> None:
    rng = np.random.default_rng(7)
    drawn = [
        imbalance(*(moments(np.hstack([np.ones((200, 1)), rng.gamma(1, 1, (200, 2))])) for _ in range(2)))
        for _ in range(200)
    ]
    assert np.mean(np.array(drawn) < 0.05) == pytest.approx(0.05, abs=0.04)


def test_segments_are_seen_by_themselves_and_together(tmp_path: Path) -> None:
    outcomes(6_000).write_parquet(tmp_path / "users.parquet")
    agreed = design(segment="vertical")
    told = analyse(agreed, tabulate(agreed, tmp_path / "users.parquet"), KNOWN)
    assert [each.name for each in told.segments] == ["garden", "sports", "toys"]
    assert sum(each.users for each in told.segments) == 6_000
    own, shared = ([getattr(each, kind).lift for each in told.segments] for kind in ("alone", "pooled"))
    assert np.std(shared) < np.std(own) and told.segments_alike and told.segments_alike > 0.001
    tiny = replace(
        rates(0.1, 0.1),
        cells=tuple(replace(cell, segment=name) for name in "ab" for cell in rates(0.1, 0.1, (60, 60)).cells),
    )
    assert all(each.alone is None for each in analysed(tiny, segment="vertical").segments)


def test_rule_against_rule(tmp_path: Path) -> None:
    """The treatment's rule finds users whom contact helps; the control's picks at random."""
    rng = np.random.default_rng(3)
    frame = outcomes(60_000).drop("bought")
    keen, model, expert = rng.random(60_000) < 0.2, rng.random(60_000) < 0.8, rng.random(60_000) < 0.2
    model &= keen
    contacted = np.where(frame["arm"] == "merit", model, expert)
    rate = 0.1 + 0.1 * (contacted & keen)
    frame = frame.with_columns(
        bought=(rng.random(60_000) < rate).astype(np.int64), model=pl.Series(model), expert=pl.Series(expert)
    )
    frame.write_parquet(tmp_path / "users.parquet")
    agreed = design(policies={"treatment": "model", "control": "expert"})
    told = analyse(agreed, tabulate(agreed, tmp_path / "users.parquet"), KNOWN)
    groups = {each.name: each for each in told.groups}
    differ, agree = groups["the rules differ"], groups["the rules agree"]
    assert differ.users + agree.users == 60_000
    assert groups["chosen by merit only"].users + groups["chosen by expert only"].users == differ.users
    assert differ.worth and differ.worth_low and differ.worth_high and agree.lift
    assert differ.worth == pytest.approx(told.estimate.lift, abs=0.05)  # the same quantity, with less noise
    assert differ.worth_high - differ.worth_low < 0.8 * (told.estimate.high - told.estimate.low)
    assert agree.lift.low < 0 < agree.lift.high and findings(told) == {}


def test_a_difference_where_the_rules_agree_is_suspicious() -> None:
    cells = [
        CellMoments(arm, None, chosen, of(rate, 20_000))
        for chosen, pair in {"both": (0.1, 0.13), "treatment only": (0.1, 0.12), "control only": (0.1, 0.1)}.items()
        for arm, rate in zip(("expert", "merit"), pair, strict=True)
    ]
    told = analysed(Outcomes(("bought",), tuple(cells), Flow(120_000)), policies={"treatment": "m", "control": "e"})
    assert findings(told)["placebo"] == "warn"
