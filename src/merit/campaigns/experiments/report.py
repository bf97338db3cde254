"""The lift report: what a campaign brought, how sure that is, and whether to believe it.

html = page.render(lift_page(analysis, page.provenance(design.manifest)))
"""

from __future__ import annotations

import polars as pl

from merit.campaigns.experiments import power
from merit.campaigns.experiments.analysis import Analysis, Arm, LiftSummary, PolicyGroup, priors
from merit.campaigns.experiments.charts import ForestRow, densities, density, forest
from merit.campaigns.experiments.lift import Lift, update
from merit.campaigns.words import share, signed
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
    suppress,
)

VERDICTS = {"ship": "Ship", "keep": "Do not ship", "blocked": "No decision"}
LEVELS = {"block": "blocks the decision", "warn": "to keep in mind"}
PER = 100_000  # users, for losses that people can picture


def lift_page(told: Analysis, provenance: Provenance | None = None) -> Page:
    """The whole analysis, the decision first."""
    if min(arm.users for arm in _compared(told)) < SMALLEST_CELL:
        text = f"An arm of this campaign has fewer than {SMALLEST_CELL} users. No figure is shown."
        return Page(told.design.name, "Too few users.", (Section("Too few users", (text,)),), (), provenance)
    sections = (
        *([_finding_section(told)] if told.findings else []),
        _decision_section(told),
        _measured_section(told),
        _prior_section(told),
        _users_section(told),
        *([_covariate_section(told)] if told.balance else []),
        *([_segment_section(told)] if told.segments else []),
        *([_policy_section(told)] if told.groups else []),
        _agreed_section(told),
        _belief_section(),
    )
    return Page(told.design.name, told.sentence, sections, _tiles(told), provenance)


def _compared(told: Analysis) -> list[Arm]:
    return [arm for arm in told.arms if arm.name in (told.design.treatment, told.design.control)]


def _tiles(told: Analysis) -> tuple[Tile, ...]:
    """A broken comparison has no headline figure: someone would quote it."""
    found, agreed = told.posterior, share(told.design.threshold, 0)
    users = Tile("Users compared", count(sum(arm.users for arm in _compared(told))))
    if told.verdict == "blocked":
        return (Tile("Decision", VERDICTS[told.verdict]), users)
    return (
        Tile("Decision", VERDICTS[told.verdict]),
        Tile("Lift", signed(found.lift), f"{signed(found.low)} to {signed(found.high)}"),
        Tile("P(lift > 0)", share(found.above_zero), f"{agreed} agreed"),
        users,
        Tile("Variance removed", percent(told.variance_removed), "by covariates"),
    )


def _finding_section(told: Analysis) -> Section:
    findings = pl.DataFrame(
        [(each.what, LEVELS[each.level], each.told) for each in told.findings],
        schema=["check", "weight", "what was found"],
        orient="row",
    )
    useless = "The figures below are there to find the fault. They are no evidence for or against the campaign."
    return Section(
        "What to know first",
        (useless,) if told.verdict == "blocked" else (),
        tables=(Table("Findings", findings, wide=True),),
    )


def _decision_section(told: Analysis) -> Section:
    area = f"The blue area is the probability that {told.design.treatment} helps. The bar is the 95 % interval."
    ways = [("without covariates", told.plain)]
    ways += [("with covariates", told.estimate)] if told.design.covariates else []
    ways += [] if told.design.prior.sd is None else [("with the agreed prior", told.posterior)]
    return Section(
        "The figures" if told.verdict == "blocked" else "Decision",
        () if told.findings else ("Sample ratio, crossovers, window, balance and precision raised no objection.",),
        charts=(
            Chart("What the lift may be", density(Lift(told.posterior_effect, told.posterior_sd)), area),
            Chart("Step by step", forest([_bar(*way) for way in ways]), "The last one counts."),
        ),
        tables=(_losses(told),),
    )


def _losses(told: Analysis) -> Table:
    control = next(arm.mean for arm in told.arms if arm.name == told.design.control)
    choices = {
        f"ship {told.design.treatment}": told.loss_of_shipping,
        f"stay with {told.design.control}": told.loss_of_keeping,
    }
    frame = pl.DataFrame(
        [(choice, share(loss, 3), number(loss * control * PER)) for choice, loss in choices.items()],
        schema=["if we", "we lose on average", f"per {PER:,} users"],
        orient="row",
    )
    return Table("Expected loss", frame, dict.fromkeys(frame.columns[1:], "count"), _LOSS_NOTE)


def _measured_section(told: Analysis) -> Section:
    design, control = told.design, next(arm for arm in told.arms if arm.name == told.design.control)
    adjusted = {design.treatment: told.adjusted_mean, design.control: control.mean}
    rate = "rate" if design.outcome.kind == "binary" else "mean"
    rows = [(arm.name, arm.users, arm.conversions, arm.mean, adjusted.get(arm.name)) for arm in told.arms]
    names = ["arm", "users", "conversions", rate, f"{rate}, adjusted"]
    arms = suppress(pl.DataFrame(rows, schema=names, orient="row"), keep=("arm",))
    arms = arms.with_columns(pl.col(names[3:]).map_elements(lambda mean: _amount(told, mean), return_dtype=pl.String))
    apart = (told.difference, told.difference_low, told.difference_high)
    difference, low, high = (_amount(told, each) for each in apart)
    minimum = f"The probability that the lift is above {signed(design.minimum_effect)}, the smallest worth having, is"
    return Section(
        "What was measured",
        (
            f"Outcome: {design.outcome.column}, from {design.start:%d %B %Y} to {design.end:%d %B %Y}, for every "
            f"assigned user, reached or not. The difference per user is {difference} ({low} to {high}).",
            f"{minimum} {share(told.posterior.above_minimum)}.",
        ),
        tables=(Table("Arms", arms, dict.fromkeys(names[2:], "count"), _ARM_NOTES[design.outcome.kind], wide=True),),
    )


_LOSS_NOTE = (
    "Averaged over what the lift may be, counting the cases in which the choice was wrong; in percent of control."
)
_ADJUSTED = "Adjusted: had the treatment's users been like the control's before the campaign."
_ARM_NOTES = {
    "binary": _ADJUSTED,
    "amount": f"{_ADJUSTED} Conversions: how many equal amounts the outcomes are worth, (Σy)² / Σy².",
}


def _prior_section(told: Analysis) -> Section:
    views = [(view.prior, view.reading) for view in told.sensitivity]
    seen = Lift(told.effect, told.effect_sd)
    posteriors = {name: update(seen, prior) for name, prior in priors(told.design).items()}
    if told.doubt is None:
        doubt = "Under no prior around zero would the treatment ship."
    else:
        doubt = (
            "To overturn the decision, one would have had to expect, before the campaign, that 95 of 100 campaigns "
            f"lift by less than {100 * 1.96 * told.doubt:.2g} % either way."
        )
    prior = told.design.prior
    agreed = (
        "a flat one" if prior.sd is None else f"a normal one around {signed(prior.mean)}, sd {signed(prior.sd)[1:]}"
    )
    return Section(
        "How much the prior matters",
        (f"The prior agreed before launch is {agreed}. {doubt}",),
        charts=(
            Chart("Posterior under other priors", forest([_bar(*view) for view in views])),
            Chart("The same as densities", densities(posteriors)),
        ),
        tables=(_readings("In figures", "prior", views),),
    )


def _users_section(told: Analysis) -> Section:
    steps = _steps(told)
    shown = large_enough(steps)
    says = "; ".join(f"{name}: {users:,}" for name, users in shown.iter_rows())
    hidden = f"Steps of fewer than {SMALLEST_CELL} users are not drawn." if len(shown) < len(steps) else ""
    drawn = Chart("From rows to arms", charts.bars(shown, "step", "users", says=f"Users: {says}."), hidden)
    total, planned = sum(arm.users for arm in told.arms), told.design.arms
    ratio = pl.DataFrame(
        [(arm.name, arm.users, percent(planned[arm.name], 2), percent(arm.users / total, 2)) for arm in told.arms],
        schema=["arm", "users", "planned", "found"],
        orient="row",
    )
    note = (
        f"Chance alone sets shares so far off in {share(told.sample_ratio)} of tests. Below 0.1 %, nothing is decided."
    )
    return Section(
        "Who was counted",
        (
            "All assigned users count, also those whom the campaign never reached: leaving them out would compare "
            "people who can be reached with people who cannot.",
            *_remarks(told),
        ),
        charts=(drawn,),
        tables=(
            Table(
                "Sample ratio",
                suppress(ratio, keep=("arm",), partition=True),
                {"planned": "count", "found": "count"},
                note,
            ),
        ),
    )


def _steps(told: Analysis) -> pl.DataFrame:
    """What became of the rows: step, users."""
    compared = [(arm.name, arm.users) for arm in _compared(told)]
    others = [(f"{arm.name}, not compared", arm.users) for arm in told.arms if arm not in _compared(told)]
    rows, crossed = (told.flow.rows, told.flow.crossovers) if told.flow else (0, 0)
    rows = 0 if 0 < crossed < SMALLEST_CELL else rows  # or few could be worked out from all and the arms
    steps = [("rows in the table", rows), ("in several arms, left out", crossed), *others, *compared]
    return pl.DataFrame([step for step in steps if step[1]], schema=["step", "users"], orient="row")


def _remarks(told: Analysis) -> list[str]:
    if told.flow is None:
        return []
    found = [f"{name} is missing for {_few(users)} users." for name, users in told.flow.missing.items()]
    if told.flow.capped:
        found += [
            f"{_few(told.flow.capped)} outcomes are above {number(told.design.outcome.cap or 0)} and count as that."
        ]
    return [" ".join(found)] if found else []


def _covariate_section(told: Analysis) -> Section:
    rows = [(each.name, each.treatment, each.control, each.difference, each.slope) for each in told.balance]
    names = ["covariate", told.design.treatment, told.design.control, "apart, in sd", "slope"]
    note = (
        f"Chance alone sets the arms so far apart in {share(told.imbalance)} of tests. "
        "Slope: how much outcome goes with one unit."
    )
    return Section(
        "Covariates",
        (
            f"What was known before the campaign explains {percent(told.variance_removed)} of the variance of the "
            f"difference. The same precision without it would take {_times(told.variance_removed)} the users.",
        ),
        tables=(Table("Before the campaign", pl.DataFrame(rows, schema=names, orient="row"), note=note),),
    )


def _segment_section(told: Analysis) -> Section:
    rows = [
        (each.name, each.users, _cell(each.own), _cell(each.shared), _chance(each.shared)) for each in told.segments
    ]
    names = ["segment", "users", "by itself", "in the light of all", "P(lift > 0)"]
    frame = suppress(pl.DataFrame(rows, schema=names, orient="row"), keep=("segment",), partition=True)
    open_ = set(frame.filter(~pl.col("users").is_in([TOO_FEW, WITHHELD]))["segment"])
    drawn = [_bar(each.name, each.shared) for each in told.segments if each.shared and each.name in open_]
    alike = ""
    if told.segments_alike is not None:
        alike = f" Had all segments one lift, {share(told.segments_alike)} of tests would still show such differences."
    chart = Chart(
        "Segments in the light of all", forest(drawn), "Drawn to the common mean, the more the less is known."
    )
    return Section(
        f"By {told.design.segment}",
        (f"Of many segments one always looks best, by luck. In the light of all, it does so less.{alike}",),
        charts=(chart,) if drawn else (),
        tables=(Table("Lift by segment", frame, dict.fromkeys(names[2:], "count"), _FEW_NOTE, wide=True),),
    )


_FEW_NOTE = "–: too few conversions for an interval that holds, or too few users to be told."


def _policy_section(told: Analysis) -> Section:
    differ, *single, agree = told.groups
    shown = [differ, agree] if min(each.users for each in single) < SMALLEST_CELL else told.groups
    rows = [(each.name, each.users, percent(each.share), _cell(each.reading), _worth(each)) for each in shown]
    names = ["users for whom", "users", "share", "lift among them", "worth to everybody"]
    frame = suppress(pl.DataFrame(rows, schema=names, orient="row"), keep=("users for whom",), partition=True)
    return Section(
        "Rule against rule",
        (
            "Both targeting rules were logged for everybody. Where they agree, both arms were treated alike, and those "
            f"users add only noise; the effect of {told.design.treatment} comes from the users on whom they differ. "
            "“Worth to everybody” is that effect spread over all users, in percent of the control: the lift above "
            "again, with the noise of the others left out.",
        ),
        tables=(Table("Whom the rules choose", frame, dict.fromkeys(names[2:], "count"), _FEW_NOTE, wide=True),),
    )


def _agreed_section(told: Analysis) -> Section:
    design = told.design
    agreed = {
        "arms": ", ".join(f"{name} {percent(part, 0)}" for name, part in design.arms.items()),
        "comparison": f"{design.treatment} against {design.control}",
        "outcome": f"{design.outcome.column} ({design.outcome.kind})",
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
        f"{signed(told.detectable)}."
    )
    return Section(
        "Agreed before launch",
        tables=(
            Table("The design", frame),
            Table("Users needed", planned, {"lift": "count", "users": "count"}, note),
        ),
    )


def _belief_section() -> Section:
    return Section(
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


def _amount(told: Analysis, value: float) -> str:
    return percent(value, 3) if told.design.outcome.kind == "binary" else number(value)


def _bar(name: str, found: LiftSummary) -> ForestRow:
    return ForestRow(name, found.lift, found.low, found.high)


def _spanned(lift: float, low: float, high: float) -> str:
    return f"{signed(lift)} ({signed(low)} to {signed(high)})"


def _cell(found: LiftSummary | None) -> str:
    return _spanned(found.lift, found.low, found.high) if found else "–"


def _worth(group: PolicyGroup) -> str:
    known = (group.worth, group.worth_low, group.worth_high)
    return "–" if None in known else _spanned(*(value or 0.0 for value in known))


def _chance(found: LiftSummary | None) -> str:
    return share(found.above_zero) if found else "–"


def _readings(title: str, name: str, rows: list[tuple[str, LiftSummary]]) -> Table:
    cells = [(text, _cell(found), share(found.above_zero), share(found.above_minimum)) for text, found in rows]
    names = [name, "lift", "P(lift > 0)", "P(lift > smallest)"]
    return Table(title, pl.DataFrame(cells, schema=names, orient="row"), dict.fromkeys(names[1:], "count"), wide=True)


def _few(users: int) -> str:
    return f"{users:,}" if users >= SMALLEST_CELL else TOO_FEW


def _times(variance_removed: float) -> str:
    return f"{1 / (1 - min(variance_removed, 0.999)):.2f} times"
