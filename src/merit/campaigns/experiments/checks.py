"""Findings that a reader must know before the figures, and the decision by the rule agreed before launch.

A finding that blocks says that the comparison itself is broken: then no probability is worth acting on, however high.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import date
from typing import Literal

import numpy as np
from scipy.special import chdtrc

from merit.campaigns.experiments.assign import sample_ratio
from merit.campaigns.experiments.design import ExperimentDesign
from merit.campaigns.experiments.lift import Comparison, Lift, conversions
from merit.campaigns.experiments.power import detectable
from merit.campaigns.experiments.statistics import Flow, Moments, Reals, standardised
from merit.core.config import Frozen
from merit.report.page import SMALLEST_CELL, share, signed

Verdict = Literal["ship", "keep", "blocked"]
RATIO_BLOCKS, RATIO_WARNS = 0.001, 0.01
UNLIKELY = 0.001  # p-value of all other checks: they are many, and a false alarm wears out
FEWEST = 25  # conversions of an arm: coverage is measured down to here (benchmarks.lift), and promised no further
HEAVIEST = 0.25  # of an arm's variance by one user: above it, intervals are too short (python -m benchmarks.coverage)
LOST = 0.001  # share of assigned users that an export may lose, to accounts deleted since
EARLY = 0.001  # share of users exposed before they were assigned that clocks may explain
TOO_GOOD = 0.9  # share of the variance that no covariate from before a campaign explains


@dataclass(frozen=True)
class AnalysisContext:
    """What is known of an analysis besides its outcomes."""

    until: date | None = None
    """The last day whose outcomes are counted."""
    frozen_on: date | None = None
    """When the design was written down."""
    assigned: int | None = None
    """How many users were assigned in all."""


class ExperimentFinding(Frozen):
    """Something a reader must know; a single one of the level "block" keeps any decision from being made."""

    level: Literal["block", "warn"]
    what: str
    message: str


class Balance(Frozen):
    """A covariate in both arms. It was measured before the campaign, so only chance may set them apart."""

    name: str
    treatment: float
    control: float
    difference: float
    """In standard deviations."""
    slope: float


def findings(
    design: ExperimentDesign,
    arms: dict[str, int],
    treatment: Moments,
    control: Moments,
    comparison: Comparison,
    flow: Flow | None,
    context: AnalysisContext,
) -> list[ExperimentFinding]:
    """All findings, those that block first."""
    results = [
        *_sample_ratio(design, arms),
        *_conversions(design, treatment, control),
        *_heavy(design, treatment, control),
        *(_rows(design, flow) if flow else [_finding(False, "rows", _UNCHECKED)]),
        *_lost_users(arms, flow, context.assigned),
        *_window(design, context),
        *_balance(treatment, control),
        *_precision(design, comparison),
    ]
    return sorted(results, key=lambda finding: finding.level != "block")


def decide(design: ExperimentDesign, lift: Lift, findings: Sequence[ExperimentFinding]) -> tuple[Verdict, str]:
    """The verdict, and a sentence that gives the reason to a manager."""
    blocking = [finding.message for finding in findings if finding.level == "block"]
    if blocking:
        return "blocked", f"No decision can be made. {blocking[0]}"
    low, high = lift.interval()
    effect = f"“{design.outcome.column}” by {signed(lift.value)} (95 % interval {signed(low)} to {signed(high)})"
    chance, agreed = share(lift.above()), share(design.threshold, 0)
    odds = f"The probability that it helps is {chance}; {agreed} was agreed before launch."
    if lift.above() >= design.threshold:
        return "ship", f"Ship {design.treatment}: against {design.control} it changes {effect}. {odds}"
    outlook = "is unlikely: more users will not help."
    if high >= design.minimum_effect:
        outlook = "cannot be ruled out; only a larger test would tell."
    minimum = f"A lift of {signed(design.minimum_effect)}, the smallest worth having,"
    return "keep", f"Stay with {design.control}: {design.treatment} changes {effect}. {odds} {minimum} {outlook}"


def imbalance(treatment: Moments, control: Moments) -> float:
    """The p-value of arms at least this different before the campaign, if chance alone made them (Hotelling's test)."""
    if len(treatment.mean) == 1:
        return 1.0
    apart = (treatment.mean - control.mean)[1:]
    noise = (treatment.covariance / treatment.users + control.covariance / control.users)[1:, 1:]
    unit, scale = standardised(noise)
    standard = apart / scale
    rank = int(np.linalg.matrix_rank(unit, tol=1e-10 * len(scale), hermitian=True))
    misfit = float(standard @ np.linalg.pinv(unit, rcond=1e-10, hermitian=True) @ standard)
    return float(chdtrc(rank, misfit)) if rank else 1.0


def balances(names: tuple[str, ...], treatment: Moments, control: Moments, slopes: Reals) -> tuple[Balance, ...]:
    """The covariates in both arms, without the outcome."""
    spread = np.sqrt((np.diag(treatment.covariance) + np.diag(control.covariance)) / 2)
    apart = np.divide(treatment.mean - control.mean, spread, out=np.zeros_like(spread), where=spread > 0)
    columns = (treatment.mean[1:], control.mean[1:], apart[1:], slopes)
    rows = zip(names[1:], *(column.tolist() for column in columns), strict=True)
    return tuple(Balance(name=name, treatment=a, control=b, difference=d, slope=e) for name, a, b, d, e in rows)


_UNCHECKED = (
    "Only statistics were given: users counted twice, users in both arms or in the wrong arm, and single amounts that "
    "outweigh all others cannot be seen. "
    "Analyse the table of users where you can."
)


def _finding(blocks: bool, what: str, text: str, remedy: str = "") -> ExperimentFinding:
    """A finding; `remedy` is added to one that blocks."""
    return ExperimentFinding(level="block" if blocks else "warn", what=what, message=text + remedy if blocks else text)


def _sample_ratio(design: ExperimentDesign, arms: dict[str, int]) -> Iterator[ExperimentFinding]:
    p = sample_ratio(arms, design.arms)
    if p >= RATIO_WARNS:
        return
    total = sum(arms.values())
    shares = ", ".join(f"{name} {100 * arms.get(name, 0) / total:.2f} %" for name in design.arms)
    planned = ", ".join(f"{100 * part:g} %" for part in design.arms.values())
    text = (
        f"The arms hold {shares} of the users instead of {planned}; the probability of that by chance is {p_value(p)}. "
        "Users were lost or added in one arm: find out where, in the assignment, the delivery or the log."
    )
    yield _finding(p < RATIO_BLOCKS, "sample ratio", text)


def _conversions(design: ExperimentDesign, treatment: Moments, control: Moments) -> Iterator[ExperimentFinding]:
    counts = {design.treatment: conversions(treatment), design.control: conversions(control)}
    name = min(counts, key=counts.__getitem__)
    if counts[name] < FEWEST:
        text = (
            f"{name} has {counts[name]:.0f} conversions (or amounts worth as many equal ones); below {FEWEST}, "
            "intervals promise nothing. Run longer, or take an outcome that happens more often."
        )
        yield _finding(True, "few conversions", text)


def _heavy(design: ExperimentDesign, treatment: Moments, control: Moments) -> Iterator[ExperimentFinding]:
    """Amounts of which one outweighs the others: the mean has not met its tail yet, and the interval is too short."""
    arms = {design.treatment: treatment, design.control: control}
    heavy = [name for name, arm in arms.items() if (arm.heaviest or 0.0) > HEAVIEST]
    if design.outcome.kind == "amount" and heavy:
        text = (
            f"In {' and '.join(heavy)} one user makes up more than {share(HEAVIEST, 0)} of the variance of "
            f"'{design.outcome.column}': do not trust the interval, which holds the lift less often than it says, and "
            "no decision that one order makes. Agree on outcome.winsorise = 0.995 (or outcome.cap) next time."
        )
        yield _finding(False, "heavy amounts", text)


def _rows(design: ExperimentDesign, flow: Flow) -> Iterator[ExperimentFinding]:
    if flow.crossovers:
        users = flow.rows - flow.crossovers
        text = f"{user_count(flow.crossovers, users)} are in more than one arm and were left out of all."
        remedy = " So many say that the assignment was not kept; find out why before anything else."
        yield _finding(flow.crossovers > design.max_crossovers * users, "crossovers", text, remedy)
    if flow.misplaced:
        text = (
            f"Of {flow.checked:,} users checked, {user_count(flow.misplaced, flow.checked)} are in another arm than "
            "the design's salt puts them."
        )
        remedy = " The assignment was not the agreed one: use the one `merit experiment assign` writes."
        yield _finding(flow.misplaced > design.max_crossovers * flow.checked, "assignment", text, remedy)
    if flow.early:
        text = f"{user_count(flow.early, flow.rows)} were exposed before they were assigned."
        remedy = " Their arm may follow from what happened to them. Assign first, then expose."
        yield _finding(flow.early > EARLY * flow.rows, "exposure", text, remedy)
    for name, count in flow.missing.items():
        if count > flow.rows / 2:
            text = f"{name} is missing for {share(count / flow.rows)} of users and explains little for the others."
            yield _finding(False, "covariates", text)


def _lost_users(arms: dict[str, int], flow: Flow | None, assigned: int | None) -> Iterator[ExperimentFinding]:
    """Users who were assigned and are not in the table, or the other way round."""
    counted = sum(arms.values()) + (flow.crossovers if flow else 0)
    if assigned is None or counted == assigned:
        return
    if counted > assigned:
        text = f"There are {counted:,} users, but {assigned:,} were assigned. Leave out those who never were."
        yield _finding(True, "users", text)
        return
    text = (
        f"{user_count(assigned - counted, assigned)} of those assigned are missing. Every assigned user counts, also "
        "those who did nothing: with only buyers in the table, a lift means nothing."
    )
    yield _finding(assigned - counted > LOST * assigned, "users", text)


def _window(design: ExperimentDesign, context: AnalysisContext) -> Iterator[ExperimentFinding]:
    if context.until is None:
        text = f"It is not known up to which day outcomes were counted; agreed was {design.end}."
        yield _finding(False, "window", text)
    elif context.until != design.end:
        early = (
            "A test that is looked at early, and ended when it looks good, ships far more useless campaigns than "
            "agreed. Wait."
        )
        late = "Count the agreed days only: who may choose the end may choose the result."
        text = f"Outcomes are counted up to {context.until}, but {design.end} was agreed. "
        yield _finding(True, "window", text, early if context.until < design.end else late)
    if context.frozen_on is not None and context.frozen_on > design.start:
        text = (
            f"The design was frozen on {context.frozen_on}, the campaign began on {design.start}: nobody can know that "
            "nothing in it was chosen in sight of the result."
        )
        yield _finding(False, "design", text)


def _balance(treatment: Moments, control: Moments) -> Iterator[ExperimentFinding]:
    p = imbalance(treatment, control)
    if p < UNLIKELY:
        text = (
            f"The arms differ in their covariates; the probability of that by chance is {p_value(p)}. Either users "
            "were not assigned at random, or a covariate was measured after the campaign began: take that one out."
        )
        yield _finding(False, "covariates", text)


def _precision(design: ExperimentDesign, comparison: Comparison) -> Iterator[ExperimentFinding]:
    """Too much explained by covariates, or too small a test for the lift it was planned for."""
    if comparison.variance_removed > TOO_GOOD:
        text = (
            f"The covariates explain {share(comparison.variance_removed)} of the outcome: more than what is known "
            "before a campaign does. Check that none of them was measured during it."
        )
        yield _finding(False, "covariates", text)
    smallest = detectable(comparison.lift.sd, design.rule)
    if smallest > 1.05 * design.minimum_effect:  # a forecast that was off by less was a good one
        text = (
            f"This test finds lifts of {signed(smallest)} with {share(design.power, 0)} power; "
            f"{signed(design.minimum_effect)} was planned. There were fewer users than planned, or more noise."
        )
        yield _finding(False, "precision", text)


def user_count(users: int, total: int) -> str:
    """12, 5000 → "fewer than 50 users"; 120, 5000 → "120 users (2.40 %)"."""
    few = users < SMALLEST_CELL
    return f"fewer than {SMALLEST_CELL} users" if few else f"{users:,} users ({share(users / total, 2)})"


def p_value(probability: float) -> str:
    """0.0123 → 0.012. Below one in a million the figure says nothing more."""
    return f"{probability:.2g}" if probability >= 1e-6 else "below one in a million"
