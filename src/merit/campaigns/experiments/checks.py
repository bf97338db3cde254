"""What a reader has to know before the figures, and what stands in the way of a decision.

A finding that blocks says that the comparison itself is broken: then no probability is worth acting on, however high.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import date
from typing import Literal

import numpy as np
from scipy.special import gammaincc

from merit.campaigns.experiments.assign import sample_ratio
from merit.campaigns.experiments.design import ExperimentDesign
from merit.campaigns.experiments.lift import Comparison, conversions
from merit.campaigns.experiments.moments import Moments, Reals
from merit.campaigns.experiments.outcomes import Flow
from merit.campaigns.experiments.power import detectable
from merit.campaigns.words import chance, people, share, signed
from merit.core.config import Frozen

Level = Literal["block", "warn"]
RATIO_BLOCKS, RATIO_WARNS = 0.001, 0.01
UNLIKELY = 0.001  # of chance alone, for all other checks: they are many, and a false alarm wears out
FEWEST = 25  # conversions of an arm: coverage is measured down to here (benchmarks.lift), and promised no further
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

    level: Level
    what: str
    told: str


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
    seen: Comparison,
    flow: Flow | None,
    known: AnalysisContext,
) -> list[ExperimentFinding]:
    """Everything found, what blocks first."""
    found = [
        *_ratio(design, arms),
        *_few(design, treatment, control),
        *(_rows(design, flow) if flow else [_warn("rows", _UNCHECKED)]),
        *_lost(arms, flow, known.assigned),
        *_window(design, known.until, known.frozen_on),
        *_balance(treatment, control),
        *_covariates(seen),
        *_precision(design, seen),
    ]
    return sorted(found, key=lambda finding: finding.level != "block")


def imbalance(treatment: Moments, control: Moments) -> float:
    """Probability of arms at least this different before the campaign, if chance alone made them (Hotelling's test)."""
    if len(treatment.mean) == 1:
        return 1.0
    apart = (treatment.mean - control.mean)[1:]
    noise = (treatment.covariance / treatment.users + control.covariance / control.users)[1:, 1:]
    scale = np.sqrt(np.diag(noise))
    scale[scale == 0] = 1.0
    unit, standard = noise / np.outer(scale, scale), apart / scale
    rank = int(np.linalg.matrix_rank(unit, tol=1e-10 * len(scale), hermitian=True))
    misfit = float(standard @ np.linalg.pinv(unit, rcond=1e-10, hermitian=True) @ standard)
    return float(gammaincc(rank / 2, misfit / 2)) if rank else 1.0


def balances(names: tuple[str, ...], treatment: Moments, control: Moments, slopes: Reals) -> tuple[Balance, ...]:
    """The covariates, without the outcome."""
    spread = np.sqrt((np.diag(treatment.covariance) + np.diag(control.covariance)) / 2)
    apart = np.divide(treatment.mean - control.mean, spread, out=np.zeros_like(spread), where=spread > 0)
    return tuple(
        Balance(
            name=name,
            treatment=float(treatment.mean[place]),
            control=float(control.mean[place]),
            difference=float(apart[place]),
            slope=float(slopes[place - 1]),
        )
        for place, name in enumerate(names)
        if place
    )


_UNCHECKED = (
    "Only statistics were given: users counted twice, users in both arms and users in the wrong arm cannot be seen. "
    "Analyse the table of users where you can."
)


def _block(what: str, told: str) -> ExperimentFinding:
    return ExperimentFinding(level="block", what=what, told=told)


def _warn(what: str, told: str) -> ExperimentFinding:
    return ExperimentFinding(level="warn", what=what, told=told)


def _ratio(design: ExperimentDesign, arms: dict[str, int]) -> list[ExperimentFinding]:
    luck = sample_ratio(arms, design.arms)
    if luck >= RATIO_WARNS:
        return []
    total = sum(arms.values())
    shares = ", ".join(f"{name} {100 * arms.get(name, 0) / total:.2f} %" for name in design.arms)
    planned = ", ".join(f"{100 * part:g} %" for part in design.arms.values())
    told = (
        f"The arms hold {shares} of the users instead of {planned}; the probability of that by chance is "
        f"{chance(luck)}. "
        "Users were lost or added in one arm: find out where, in the assignment, the delivery or the log."
    )
    return [_block("sample ratio", told) if luck < RATIO_BLOCKS else _warn("sample ratio", told)]


def _few(design: ExperimentDesign, treatment: Moments, control: Moments) -> list[ExperimentFinding]:
    counts = {design.treatment: conversions(treatment), design.control: conversions(control)}
    name = min(counts, key=lambda each: counts[each])
    if counts[name] >= FEWEST:
        return []
    told = (
        f"{name} has {counts[name]:.0f} conversions (or amounts worth as many equal ones); below {FEWEST}, "
        "intervals promise nothing. Run longer, or take an outcome that happens more often."
    )
    return [_block("few conversions", told)]


def _rows(design: ExperimentDesign, flow: Flow) -> list[ExperimentFinding]:
    found = []
    if flow.crossovers:
        everyone = flow.rows - flow.crossovers
        told = f"{people(flow.crossovers, everyone)} are in more than one arm and were left out of all."
        remedy = " So many say that the assignment was not kept; find out why before anything else."
        blocks = flow.crossovers > design.max_crossovers * everyone
        found.append(_block("crossovers", told + remedy) if blocks else _warn("crossovers", told))
    if flow.misplaced:
        told = (
            f"Of {flow.checked:,} users checked, {people(flow.misplaced, flow.checked)} are in another arm than the "
            "design's salt puts them."
        )
        remedy = " The assignment was not the agreed one: use the one `merit experiment assign` writes."
        blocks = flow.misplaced > design.max_crossovers * flow.checked
        found.append(_block("assignment", told + remedy) if blocks else _warn("assignment", told))
    if flow.early:
        told = f"{people(flow.early, flow.rows)} were exposed before they were assigned."
        remedy = " Their arm may follow from what happened to them. Assign first, then expose."
        found.append(_block("exposure", told + remedy) if flow.early > EARLY * flow.rows else _warn("exposure", told))
    for name, count in flow.missing.items():
        if count > flow.rows / 2:
            told = f"{name} is missing for {share(count / flow.rows)} of users and explains little for the others."
            found.append(_warn("covariates", told))
    return found


def _lost(arms: dict[str, int], flow: Flow | None, assigned: int | None) -> list[ExperimentFinding]:
    """Users who were assigned and are not in the table."""
    there = sum(arms.values()) + (flow.crossovers if flow else 0)
    if assigned is None or there == assigned:
        return []
    if there > assigned:
        told = f"There are {there:,} users, but {assigned:,} were assigned. Leave out those who never were."
        return [_block("users", told)]
    told = (
        f"{people(assigned - there, assigned)} of those assigned are missing. Every assigned user counts, also those "
        "who did nothing: with only buyers in the table, a lift means nothing."
    )
    return [_block("users", told) if assigned - there > LOST * assigned else _warn("users", told)]


def _window(design: ExperimentDesign, until: date | None, frozen_on: date | None) -> list[ExperimentFinding]:
    found = []
    if until is None:
        found.append(_warn("window", f"Nobody said up to which day outcomes were counted; agreed was {design.end}."))
    elif until < design.end:
        told = (
            f"Outcomes are counted up to {until}, but {design.end} was agreed. A test that is looked at early, and "
            "ended when it looks good, ships far more useless campaigns than agreed. Wait."
        )
        found.append(_block("window", told))
    elif until > design.end:
        told = (
            f"Outcomes are counted up to {until}, but {design.end} was agreed. Count the agreed days only: who may "
            "choose the end may choose the result."
        )
        found.append(_block("window", told))
    if frozen_on is not None and frozen_on > design.start:
        told = (
            f"The design was frozen on {frozen_on}, the campaign began on {design.start}: nobody can know that nothing "
            "in it was chosen in sight of the result."
        )
        found.append(_warn("design", told))
    return found


def _balance(treatment: Moments, control: Moments) -> list[ExperimentFinding]:
    luck = imbalance(treatment, control)
    if luck >= UNLIKELY:
        return []
    told = (
        f"The arms differ in their covariates; the probability of that by chance is {chance(luck)}. Either users were "
        "not assigned at random, or a covariate was measured after the campaign began: take that one out."
    )
    return [_warn("covariates", told)]


def _covariates(seen: Comparison) -> list[ExperimentFinding]:
    if seen.variance_removed <= TOO_GOOD:
        return []
    told = (
        f"The covariates explain {share(seen.variance_removed)} of the outcome: more than what is known before a "
        "campaign does. Check that none of them was measured during it."
    )
    return [_warn("covariates", told)]


def _precision(design: ExperimentDesign, seen: Comparison) -> list[ExperimentFinding]:
    found = detectable(seen.lift.sd, design.rule)
    if found <= 1.05 * design.minimum_effect:  # a forecast that was off by so little was a good one
        return []
    told = (
        f"This test finds lifts of {signed(found)} with {share(design.power, 0)} power; "
        f"{signed(design.minimum_effect)} was asked for. There were fewer users than planned, or more noise."
    )
    return [_warn("precision", told)]
