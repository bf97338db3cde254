"""The lift report: what a campaign brought, how sure that is, and whether to believe it.

html = page.render(lift_page(analysis, page.provenance(design.manifest)))
"""

from __future__ import annotations

import polars as pl

from merit.campaigns.experiments import power
from merit.campaigns.experiments.analysis import Analysis, Arm, LiftSummary, PolicyGroup
from merit.campaigns.experiments.charts import density, forest
from merit.campaigns.experiments.design import OutcomeSpec
from merit.campaigns.experiments.lift import Lift
from merit.campaigns.experiments.statistics import Flow
from merit.report import charts
from merit.report.page import (
    SMALLEST_CELL,
    TOO_FEW,
    WITHHELD,
    Chart,
    Page,
    Provenance,
    Section,
    Table,
    Tile,
    count,
    large_enough,
    number,
    percent,
    share,
    signed,
    signed_interval,
    suppress,
    too_few,
)

VERDICTS = {"ship": "Ship", "keep": "Do not ship", "blocked": "No decision"}
LEVELS = {"block": "blocks the decision", "warn": "to keep in mind"}
PER = 100_000  # users, for losses that are easy to picture
FEW_NOTE = "–: too few conversions for an interval that holds, or too few users to be shown."


def lift_page(analysis: Analysis, provenance: Provenance | None = None) -> Page:
    """The whole analysis, the decision first."""
    if min(arm.users for arm in _compared(analysis)) < SMALLEST_CELL:
        return too_few(analysis.design.name, "Too few users.", "An arm of this campaign has", provenance)
    sections = (
        *([_finding_section(analysis)] if analysis.findings else []),
        _decision_section(analysis),
        _measured_section(analysis),
        _prior_section(analysis),
        _users_section(analysis),
        *([_covariate_section(analysis)] if analysis.balance else []),
        *([_segment_section(analysis)] if analysis.segments else []),
        *([_policy_section(analysis)] if analysis.groups else []),
        _agreed_section(analysis),
        _BELIEF_SECTION,
    )
    return Page(analysis.design.name, analysis.sentence, sections, _tiles(analysis), provenance)


def _compared(analysis: Analysis) -> list[Arm]:
    return [arm for arm in analysis.arms if arm.name in (analysis.design.treatment, analysis.design.control)]


def _tiles(analysis: Analysis) -> tuple[Tile, ...]:
    """A broken comparison has no headline figure: someone would quote it."""
    posterior, agreed = analysis.posterior, share(analysis.design.threshold, 0)
    decision = Tile("Decision", VERDICTS[analysis.verdict])
    users = Tile("Users compared", count(sum(arm.users for arm in _compared(analysis))))
    if analysis.verdict == "blocked":
        return decision, users
    return (
        decision,
        Tile("Lift", signed(posterior.lift), f"{signed(posterior.low)} to {signed(posterior.high)}"),
        Tile("P(lift > 0)", share(posterior.above_zero), f"{agreed} agreed"),
        users,
        Tile("Variance removed", percent(analysis.variance_removed), "by covariates"),
    )


def _finding_section(analysis: Analysis) -> Section:
    rows = [(finding.what, LEVELS[finding.level], finding.message) for finding in analysis.findings]
    frame = pl.DataFrame(rows, schema=["check", "weight", "what was found"], orient="row")
    useless = "The figures below are there to find the fault. They are no evidence for or against the campaign."
    texts = (useless,) if analysis.verdict == "blocked" else ()
    return Section("What to know first", texts, tables=(Table("Findings", frame, wide=True),))


def _decision_section(analysis: Analysis) -> Section:
    area = f"The blue area is the probability that {analysis.design.treatment} helps. The bar is the 95 % interval."
    steps = {"without covariates": analysis.plain.interval}
    if analysis.design.covariates:
        steps["with covariates"] = analysis.estimate.interval
    if analysis.design.prior.sd is not None:
        steps["with the agreed prior"] = analysis.posterior.interval
    posterior = Lift(analysis.posterior_effect, analysis.posterior_sd)
    passed = "Sample ratio, crossovers, window, balance and precision raised no objection."
    return Section(
        "The figures" if analysis.verdict == "blocked" else "Decision",
        () if analysis.findings else (passed,),
        charts=(
            Chart("What the lift may be", density(posterior), area),
            Chart("Step by step", forest(steps), "The last one counts."),
        ),
        tables=(_loss_table(analysis),),
    )


def _loss_table(analysis: Analysis) -> Table:
    design, control = analysis.design, next(arm for arm in analysis.arms if arm.name == analysis.design.control)
    choices = {
        f"ship {design.treatment}": analysis.loss_of_shipping,
        f"stay with {design.control}": analysis.loss_of_keeping,
    }
    rows = [(choice, share(loss, 3), number(loss * control.mean * PER)) for choice, loss in choices.items()]
    frame = pl.DataFrame(rows, schema=["if we", "we lose on average", f"per {PER:,} users"], orient="row")
    note = (
        "Averaged over what the lift may be, counting the cases in which the choice was wrong; in percent of control."
    )
    return Table("Expected loss", frame, dict.fromkeys(frame.columns[1:], "count"), note)


def _measured_section(analysis: Analysis) -> Section:
    design, control = analysis.design, next(arm for arm in analysis.arms if arm.name == analysis.design.control)
    binary = design.outcome.kind == "binary"

    def amount(value: float) -> str:
        return percent(value, 3) if binary else number(value)

    adjusted = {design.treatment: analysis.adjusted_mean, design.control: control.mean}
    rows = [(arm.name, arm.users, arm.conversions, arm.mean, adjusted.get(arm.name)) for arm in analysis.arms]
    rate = "rate" if binary else "mean"
    names = ["arm", "users", "conversions", rate, f"{rate}, adjusted"]
    arms = suppress(pl.DataFrame(rows, schema=names, orient="row"), keep=("arm",))
    arms = arms.with_columns(pl.col(names[3:]).map_elements(amount, return_dtype=pl.String))
    difference, low, high = map(amount, (analysis.difference, analysis.difference_low, analysis.difference_high))
    note = "Adjusted: had the treatment's users been like the control's before the campaign."
    note += "" if binary else " Conversions: how many equal amounts the outcomes are worth, (Σy)² / Σy²."
    return Section(
        "What was measured",
        (
            f"Outcome: {design.outcome.column}, from {design.start:%d %B %Y} to {design.end:%d %B %Y}, for every "
            f"assigned user, reached or not. The difference per user is {difference} ({low} to {high}).",
            f"The probability that the lift is above {signed(design.minimum_effect)}, the smallest worth having, is "
            f"{share(analysis.posterior.above_minimum)}.",
        ),
        tables=(Table("Arms", arms, dict.fromkeys(names[2:], "count"), note, wide=True),),
    )


def _prior_section(analysis: Analysis) -> Section:
    views = analysis.sensitivity
    prior = analysis.design.prior
    doubt = "Under no prior around zero would the treatment ship."
    if analysis.doubt is not None:
        doubt = (
            "To overturn the decision, one would have had to expect, before the campaign, that 95 of 100 campaigns "
            f"lift by less than {100 * 1.96 * analysis.doubt:.2g} % either way."
        )
    agreed = "a flat one"
    if prior.sd is not None:
        agreed = f"a normal one around {signed(prior.mean)}, sd {signed(prior.sd)[1:]}"
    names = ["prior", "lift", "P(lift > 0)", "P(lift > smallest)"]
    rows = [(name, _interval(view), share(view.above_zero), share(view.above_minimum)) for name, view in views.items()]
    frame = pl.DataFrame(rows, schema=names, orient="row")
    return Section(
        "How much the prior matters",
        (f"The prior agreed before launch is {agreed}. {doubt}",),
        charts=(Chart("Posterior under other priors", forest({name: view.interval for name, view in views.items()})),),
        tables=(Table("In figures", frame, dict.fromkeys(names[1:], "count"), wide=True),),
    )


def _users_section(analysis: Analysis) -> Section:
    steps = _steps(analysis)
    shown = large_enough(steps)
    description = "; ".join(f"{name}: {users:,}" for name, users in shown.iter_rows())
    bars = charts.bars(shown, "step", "users", description=f"Users: {description}.")
    hidden = f"Steps of fewer than {SMALLEST_CELL} users are not drawn." if len(shown) < len(steps) else ""
    total, planned = sum(arm.users for arm in analysis.arms), analysis.design.arms
    rows = [
        (arm.name, arm.users, percent(planned[arm.name], 2), percent(arm.users / total, 2)) for arm in analysis.arms
    ]
    frame = pl.DataFrame(rows, schema=["arm", "users", "planned", "found"], orient="row")
    ratio = suppress(frame, keep=("arm",), partition=True)
    note = (
        f"Chance alone sets shares so far off in {share(analysis.sample_ratio)} of tests. Below 0.1 %, nothing is "
        "decided."
    )
    return Section(
        "Who was counted",
        (
            "All assigned users count, also those whom the campaign never reached: leaving them out would compare "
            "people who can be reached with people who cannot.",
            *_remarks(analysis),
        ),
        charts=(Chart("From rows to arms", bars, hidden),),
        tables=(Table("Sample ratio", ratio, {"planned": "count", "found": "count"}, note),),
    )


def _steps(analysis: Analysis) -> pl.DataFrame:
    """What became of the rows: step, users."""
    compared = [(arm.name, arm.users) for arm in _compared(analysis)]
    others = [(f"{arm.name}, not compared", arm.users) for arm in analysis.arms if arm not in _compared(analysis)]
    rows, crossed = (analysis.flow.rows, analysis.flow.crossovers) if analysis.flow else (0, 0)
    rows = 0 if 0 < crossed < SMALLEST_CELL else rows  # or few could be worked out from all and the arms
    steps = [("rows in the table", rows), ("in several arms, left out", crossed), *others, *compared]
    return pl.DataFrame([step for step in steps if step[1]], schema=["step", "users"], orient="row")


def _remarks(analysis: Analysis) -> list[str]:
    if analysis.flow is None:
        return []

    def few(users: int) -> str:
        return f"{users:,}" if users >= SMALLEST_CELL else TOO_FEW

    texts = [f"{name} is missing for {few(users)} users." for name, users in analysis.flow.missing.items()]
    if analysis.flow.capped:
        texts.append(
            f"{few(analysis.flow.capped)} outcomes are above {_cap(analysis, analysis.flow)} and count as that."
        )
    return [" ".join(texts)] if texts else []


def _cap(analysis: Analysis, flow: Flow) -> str:
    """Words for what amounts were capped at: of few users, a quantile is nearly the amount of one of them."""
    outcome = analysis.design.outcome
    if outcome.winsorise is None:
        return number(outcome.cap or 0)
    quantile = f"the {outcome.winsorise:g} quantile of both arms"
    return f"{quantile}, {number(flow.cap)}," if flow.cap and flow.capped >= SMALLEST_CELL else quantile


def _covariate_section(analysis: Analysis) -> Section:
    rows = [(row.name, row.treatment, row.control, row.difference, row.slope) for row in analysis.balance]
    names = ["covariate", analysis.design.treatment, analysis.design.control, "apart, in sd", "slope"]
    note = (
        f"Chance alone sets the arms so far apart in {share(analysis.imbalance)} of tests. "
        "Slope: how much outcome goes with one unit."
    )
    times = 1 / (1 - min(analysis.variance_removed, 0.999))
    text = (
        f"What was known before the campaign explains {percent(analysis.variance_removed)} of the variance of the "
        f"difference. The same precision without it would take {times:.2f} times the users."
    )
    table = Table("Before the campaign", pl.DataFrame(rows, schema=names, orient="row"), note=note)
    return Section("Covariates", (text,), tables=(table,))


def _segment_section(analysis: Analysis) -> Section:
    rows = [
        (
            row.name,
            row.users,
            _interval(row.alone),
            _interval(row.pooled),
            share(row.pooled.above_zero) if row.pooled else "–",
        )
        for row in analysis.segments
    ]
    names = ["segment", "users", "alone", "pooled", "P(lift > 0)"]
    frame = suppress(pl.DataFrame(rows, schema=names, orient="row"), keep=("segment",), partition=True)
    public = set(frame.filter(~pl.col("users").is_in([TOO_FEW, WITHHELD]))["segment"])
    lifts = {row.name: row.pooled.interval for row in analysis.segments if row.pooled and row.name in public}
    text = "Among many segments, one always looks best by chance. Pooled with the others, it does so less."
    if analysis.segments_alike is not None:
        alike = share(analysis.segments_alike)
        text += f" Had all segments one lift, {alike} of tests would still show such differences."
    note = "Shrunk to the common mean, the more the fewer conversions a segment has."
    return Section(
        f"By {analysis.design.segment}",
        (text,),
        charts=(Chart("Segments, pooled", forest(lifts), note),) if lifts else (),
        tables=(Table("Lift by segment", frame, dict.fromkeys(names[2:], "count"), FEW_NOTE, wide=True),),
    )


def _policy_section(analysis: Analysis) -> Section:
    differ, *single, agree = analysis.groups
    groups = [differ, agree] if min(group.users for group in single) < SMALLEST_CELL else analysis.groups
    rows = [(row.name, row.users, percent(row.share), _interval(row.lift), _worth(row)) for row in groups]
    names = ["users for whom", "users", "share", "lift among them", "worth to everybody"]
    frame = suppress(pl.DataFrame(rows, schema=names, orient="row"), keep=("users for whom",), partition=True)
    text = (
        "Both targeting rules were logged for everybody. Where they agree, both arms were treated alike, and those "
        f"users add only noise; the effect of {analysis.design.treatment} comes from the users on whom they differ. "
        "“Worth to everybody” is that effect spread over all users, in percent of the control: the lift above "
        "again, with the noise of the others left out."
    )
    table = Table("Whom the rules choose", frame, dict.fromkeys(names[2:], "count"), FEW_NOTE, wide=True)
    return Section("Rule against rule", (text,), tables=(table,))


def _limit(outcome: OutcomeSpec) -> str:
    if outcome.winsorise is not None:
        return f", winsorised at the {outcome.winsorise:g} quantile of both arms"
    return f", capped at {number(outcome.cap)}" if outcome.cap else ""


def _agreed_section(analysis: Analysis) -> Section:
    design = analysis.design
    agreed = {
        "arms": ", ".join(f"{name} {percent(part, 0)}" for name, part in design.arms.items()),
        "comparison": f"{design.treatment} against {design.control}",
        "outcome": f"{design.outcome.column} ({design.outcome.kind}{_limit(design.outcome)})",
        "window": f"{design.start} to {design.end}",
        "covariates": ", ".join(design.covariates) or "none",
        "ship when": f"P(lift > 0) is at least {share(design.threshold, 0)}",
        "smallest lift worth having": signed(design.minimum_effect),
        "salt": design.salt or "assigned elsewhere",
    }
    frame = pl.DataFrame(list(agreed.items()), schema=["what", "agreed"], orient="row")
    planned = power.by_lift(design.minimum_effect, design.outlook, design.rule)
    planned = planned.with_columns(lift=pl.col("lift").map_elements(signed, return_dtype=pl.String))
    note = (
        f"To find that lift in {share(design.power, 0)} of tests, over all arms. This test turned out to find "
        f"{signed(analysis.detectable)}."
    )
    needed = Table("Users needed", planned, {"lift": "count", "users": "count"}, note)
    return Section("Agreed before launch", tables=(Table("The design", frame), needed))


_BELIEF_SECTION = Section(
    "When not to believe this",
    (
        "When the arms differ in anything but the campaign: another time of sending, another offer, another way of "
        "counting. No figure on this page can see that.",
        "When outcomes were looked at before the window ended, or the window, outcome or covariates were changed "
        "afterwards.",
        "When users influence each other: a lift among friends of the treated counts for the control.",
        "When one figure is picked out of many: the comparison agreed on decides, segments are for ideas.",
    ),
)


def _interval(lift: LiftSummary | None) -> str:
    return signed_interval(*lift.interval) if lift else "–"


def _worth(group: PolicyGroup) -> str:
    if group.worth is None or group.worth_low is None or group.worth_high is None:
        return "–"
    return signed_interval(group.worth, group.worth_low, group.worth_high)
