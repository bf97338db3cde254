"""A campaign's whole analysis: from moments and the agreed design to figures, findings and a decision.

analysis = analyse(design, tabulate(design, Path("outcomes.parquet")), AnalysisContext(until=date(2026, 3, 8)))
analysis.sentence
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import date
from math import isinf

from merit.campaigns.experiments import checks
from merit.campaigns.experiments.assign import sample_ratio
from merit.campaigns.experiments.checks import FEWEST, AnalysisContext, Balance, ExperimentFinding, Verdict
from merit.campaigns.experiments.design import ExperimentDesign
from merit.campaigns.experiments.lift import Comparison, Lift, compare, conversions, doubt_needed, update
from merit.campaigns.experiments.pooling import Mixture, pool
from merit.campaigns.experiments.power import FLAT, Prior, detectable
from merit.campaigns.experiments.statistics import CHOSEN, CellMoments, Flow, Moments, Outcomes, merge
from merit.core.config import Frozen
from merit.core.errors import DataError
from merit.report.page import summary_html


class LiftSummary(Frozen):
    """A lift, its 95 % interval, and the probabilities that it is above zero and above the smallest worth having."""

    lift: float
    low: float
    high: float
    above_zero: float
    above_minimum: float

    @property
    def interval(self) -> tuple[float, float, float]:
        """The lift and both ends of its 95 % interval."""
        return self.lift, self.low, self.high


class Arm(Frozen):
    """What was seen in one arm, without covariates or prior; the mean is in units of the outcome."""

    name: str
    users: int
    mean: float
    conversions: float


class Segment(Frozen):
    """Users of treatment and control with one value of the design's segment column."""

    name: str
    users: int
    alone: LiftSummary | None
    """From its own users. None: too few conversions."""
    pooled: LiftSummary | None
    """Pooled with the other segments: what to believe of one that was not picked beforehand."""


class PolicyGroup(Frozen):
    """Users by what two targeting rules say of them."""

    name: str
    users: int
    share: float
    lift: LiftSummary | None = None
    worth: float | None = None
    """What this group adds to the lift over all users."""
    worth_low: float | None = None
    worth_high: float | None = None


class Analysis(Frozen):
    """Kept as lift.json, which pages and pooling read; lifts are fractions, 0.01 is one percent."""

    design: ExperimentDesign
    until: date | None
    verdict: Verdict
    sentence: str
    findings: tuple[ExperimentFinding, ...]
    arms: tuple[Arm, ...]
    effect: float
    """The estimate of log(1 + lift) under a flat prior, and its standard deviation: what pooling needs."""
    effect_sd: float
    estimate: LiftSummary
    plain: LiftSummary
    """Without covariates."""
    posterior: LiftSummary
    posterior_effect: float
    posterior_sd: float
    loss_of_shipping: float
    loss_of_keeping: float
    adjusted_mean: float
    difference: float
    difference_low: float
    difference_high: float
    variance_removed: float
    balance: tuple[Balance, ...]
    imbalance: float
    sample_ratio: float
    detectable: float
    sensitivity: dict[str, LiftSummary]
    """The posterior under the agreed prior and under others."""
    doubt: float | None
    """The sd of the widest prior around no effect that keeps the treatment from shipping. None: it does not anyway."""
    segments: tuple[Segment, ...]
    segments_alike: float | None
    groups: tuple[PolicyGroup, ...]
    flow: Flow | None

    def _repr_html_(self) -> str:
        from merit.campaigns.experiments.report import lift_page  # it imports this module

        return summary_html(lift_page(self))


def analyse(design: ExperimentDesign, outcomes: Outcomes, context: AnalysisContext) -> Analysis:
    """The analysis of treatment against control."""
    treatment, control = (_arm(outcomes.cells, name) for name in (design.treatment, design.control))
    users = {name: sum(cell.moments.users for cell in outcomes.cells if cell.arm == name) for name in design.arms}
    comparison = compare(treatment, control)
    posterior = update(comparison.lift, design.prior)
    groups = _groups(design, outcomes.cells, float(control.mean[0]))
    findings = checks.findings(design, users, treatment, control, comparison, outcomes.flow, context)
    findings += _placebo(groups)
    verdict, sentence = checks.decide(design, posterior, findings)
    segments, alike = _segments(design, outcomes.cells)
    low, high = comparison.difference.interval()
    doubt = doubt_needed(comparison.lift, design.threshold)
    return Analysis(
        design=design,
        until=context.until,
        verdict=verdict,
        sentence=sentence,
        findings=tuple(findings),
        arms=tuple(
            Arm(name=name, users=arm.users, mean=float(arm.mean[0]), conversions=conversions(arm))
            for name in design.arms
            if users[name] and (arm := _arm(outcomes.cells, name))
        ),
        effect=comparison.lift.mean,
        effect_sd=comparison.lift.sd,
        estimate=_summary(comparison.lift, design),
        plain=_summary(comparison.plain_lift, design),
        posterior=_summary(posterior, design),
        posterior_effect=posterior.mean,
        posterior_sd=posterior.sd,
        loss_of_shipping=posterior.loss_of_shipping,
        loss_of_keeping=posterior.loss_of_keeping,
        adjusted_mean=comparison.adjusted_mean,
        difference=comparison.difference.value,
        difference_low=low,
        difference_high=high,
        variance_removed=comparison.variance_removed,
        balance=checks.balances(outcomes.names, treatment, control, comparison.slopes),
        imbalance=checks.imbalance(treatment, control),
        sample_ratio=sample_ratio(users, design.arms),
        detectable=detectable(comparison.lift.sd, design.rule),
        sensitivity={name: _summary(update(comparison.lift, prior), design) for name, prior in priors(design).items()},
        doubt=None if isinf(doubt) else doubt,
        segments=segments,
        segments_alike=alike,
        groups=groups,
        flow=outcomes.flow,
    )


def priors(design: ExperimentDesign) -> dict[str, Prior]:
    """The agreed prior, and others that a reader may hold."""
    effect = design.minimum_effect
    others = {
        "flat": FLAT,
        f"open: lifts within ±{100 * 2 * effect:g} %": Prior(sd=effect),
        f"sceptical: lifts within ±{100 * effect:g} %": Prior(sd=effect / 2),
    }
    return others if design.prior == FLAT else {"agreed": design.prior, **others}


def _arm(cells: Sequence[CellMoments], name: str) -> Moments:
    parts = [cell.moments for cell in cells if cell.arm == name]
    if not parts:
        raise DataError(f"No user is in the arm '{name}'. The outcomes of all assigned users are needed.")
    return merge(parts)


def _summary(lift: Lift | Mixture, design: ExperimentDesign) -> LiftSummary:
    low, high = lift.interval()
    minimum = lift.above(design.minimum_effect)
    return LiftSummary(lift=lift.value, low=low, high=high, above_zero=lift.above(), above_minimum=minimum)


def _comparison(design: ExperimentDesign, cells: Sequence[CellMoments]) -> Comparison | None:
    """Both arms of a part of the users; None where one of them has too few conversions."""
    names = (design.treatment, design.control)
    parts = [[cell.moments for cell in cells if cell.arm == name] for name in names]
    if not all(parts):
        return None
    treatment, control = (merge(part) for part in parts)
    enough = min(conversions(treatment), conversions(control)) >= FEWEST
    varied = min(treatment.scatter[0, 0], control.scatter[0, 0]) > 0
    return compare(treatment, control) if enough and varied else None


def _users(design: ExperimentDesign, cells: Sequence[CellMoments]) -> int:
    return sum(cell.moments.users for cell in cells if cell.arm in (design.treatment, design.control))


def _segments(design: ExperimentDesign, cells: Sequence[CellMoments]) -> tuple[tuple[Segment, ...], float | None]:
    """Every segment alone and pooled with the others, and the p-value of their differences."""
    names = sorted({cell.segment for cell in cells if cell.segment is not None})
    parts = {name: [cell for cell in cells if cell.segment == name] for name in names}
    alone = {name: both.lift for name, part in parts.items() if (both := _comparison(design, part))}
    pooled = pool(list(alone.values())) if len(alone) > 1 else None
    shrunk = dict(zip(alone, pooled.shrunk, strict=True)) if pooled else {}
    rows = tuple(
        Segment(
            name=name,
            users=_users(design, part),
            alone=_summary(alone[name], design) if name in alone else None,
            pooled=_summary(shrunk[name], design) if name in shrunk else None,
        )
        for name, part in parts.items()
    )
    return rows, pooled.alike if pooled else None


def _groups(design: ExperimentDesign, cells: Sequence[CellMoments], control_mean: float) -> tuple[PolicyGroup, ...]:
    if design.policies is None:
        return ()
    only, other, both, neither = CHOSEN
    kinds = {
        "the rules differ": {only, other},
        f"chosen by {design.treatment} only": {only},
        f"chosen by {design.control} only": {other},
        "the rules agree": {both, neither},
    }
    total, groups = _users(design, cells), []
    for name, kind in kinds.items():
        part = [cell for cell in cells if cell.chosen in kind]
        users, figures = _users(design, part), {}
        if comparison := _comparison(design, part):
            scale, difference = users / total / control_mean, comparison.difference
            worth, low, high = (scale * value for value in (difference.value, *difference.interval()))
            lift = _summary(comparison.lift, design)
            figures = {"lift": lift, "worth": worth, "worth_low": low, "worth_high": high}
        groups.append(PolicyGroup(name=name, users=users, share=users / total, **figures))
    return tuple(groups)


def _placebo(groups: Sequence[PolicyGroup]) -> list[ExperimentFinding]:
    """Where both rules agree, both arms got the same: a difference there is no effect of the campaign."""
    agree = groups[-1].lift if groups else None
    if agree is None or min(agree.above_zero, 1 - agree.above_zero) >= checks.UNLIKELY / 2:
        return []
    text = (
        "The arms differ among users whom both rules treat alike. Something other than the rules differs between the "
        "arms: find it before you credit the rules."
    )
    return [ExperimentFinding(level="warn", what="placebo", message=text)]
