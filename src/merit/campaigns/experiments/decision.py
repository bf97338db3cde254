"""The rule that was agreed before launch, applied, and the sentence that tells the result."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

from merit.campaigns.experiments.checks import ExperimentFinding
from merit.campaigns.experiments.design import ExperimentDesign
from merit.campaigns.experiments.lift import Lift
from merit.campaigns.words import share, signed

Verdict = Literal["ship", "keep", "blocked"]


def decide(design: ExperimentDesign, lift: Lift, found: Sequence[ExperimentFinding]) -> tuple[Verdict, str]:
    """What to do, and why, for a manager."""
    blocks = [finding.told for finding in found if finding.level == "block"]
    if blocks:
        return "blocked", f"No decision can be made. {blocks[0]}"
    low, high = lift.interval()
    chance, agreed = share(lift.above()), share(design.threshold, 0)
    odds = f"The probability that it helps is {chance}; {agreed} was agreed before launch."
    between = f"95 % interval {signed(low)} to {signed(high)}"
    minimum = f"A lift of {signed(design.minimum_effect)}, the smallest worth having,"
    if lift.above() >= design.threshold:
        return "ship", (
            f"Ship {design.treatment}: against {design.control} it changes “{design.outcome.column}” by "
            f"{signed(lift.value)} ({between}). {odds}"
        )
    if high < design.minimum_effect:
        hope = f"{minimum} is unlikely: more users will not help."
    else:
        hope = f"{minimum} cannot be ruled out; only a larger test would tell."
    return "keep", (
        f"Stay with {design.control}: {design.treatment} changes “{design.outcome.column}” by {signed(lift.value)} "
        f"({between}). {odds} {hope}"
    )
