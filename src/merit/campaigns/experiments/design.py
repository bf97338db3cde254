"""The design of an experiment: all that is agreed before launch and that an analysis must not choose afterwards.

docs/experiments.md shows one as a TOML file.
"""

from __future__ import annotations

from collections import Counter
from datetime import date, timedelta
from typing import Annotated, Literal

from pydantic import Field, model_validator
from scipy.special import ndtri

from merit.campaigns.experiments.power import FLAT, DecisionRule, Outlook, Prior
from merit.core.config import Frozen

Column = Annotated[str, Field(min_length=1)]
Share = Annotated[float, Field(gt=0, lt=1)]


class OutcomeSpec(Frozen):
    """What is counted for each user in the window. Zero for those who did nothing."""

    column: Column = "outcome"
    kind: Literal["binary", "amount"] = "binary"
    """binary: 0 or 1. amount: any number, such as revenue."""
    cap: float | None = Field(None, gt=0)
    """Amounts above count as this much: one wholesaler would otherwise outweigh all others. Chosen before launch."""
    winsorise: float | None = Field(None, ge=0.9, lt=1, exclude_if=lambda value: value is None)
    """The same where nobody knows a cap beforehand: amounts above this quantile of both arms together count as it. Of
    four that were simulated, 0.995 is the highest whose intervals held in every world (benchmarks.coverage)."""

    @model_validator(mode="after")
    def _cap_fits(self) -> OutcomeSpec:
        if self.kind == "binary" and (self.cap is not None or self.winsorise is not None):
            raise ValueError("a binary outcome has nothing to cap; cap and winsorise are for kind = 'amount'")
        if self.cap is not None and self.winsorise is not None:
            raise ValueError("cap and winsorise are two ways to limit an amount; agree on one of them")
        return self


class Policies(Frozen):
    """Two targeting rules, logged for every user of both arms, whichever was applied: columns of yes or no."""

    treatment: Column
    control: Column


class ExperimentDesign(Frozen):
    """One comparison, with every choice that could otherwise be made in sight of the result."""

    name: str = Field(min_length=1)
    arms: dict[str, Share]
    """Name → share of users, in the order of the hash. Further arms (a holdout) are assigned and not compared."""
    control: str
    treatment: str
    salt: str | None = Field(None, min_length=8)
    """Of the assignment; new for each experiment. None: assigned elsewhere, and then nobody can check it."""
    start: date
    days: int = Field(ge=1)
    """The outcome window: from the start, so many days."""
    outcome: OutcomeSpec = OutcomeSpec()
    covariates: tuple[Column, ...] = ()
    """Columns known before the start."""
    minimum_effect: float = Field(gt=0, lt=1)
    """The smallest relative lift worth having: 0.01 is one percent."""
    threshold: float = Field(0.90, gt=0.5, lt=1)
    """Ship when P(lift > 0) is at least this. The paper's 0.90 ships one useless campaign in ten."""
    power: float = Field(0.8, gt=0.5, lt=1)
    prior: Prior = FLAT
    outlook: Outlook
    segment: Column | None = None
    """A column of groups known before the start, such as the user's vertical: do they differ in lift?"""
    policies: Policies | None = None
    user: Column = "user_id"
    arm: Column = "arm"
    assigned_at: Column | None = None
    exposed_at: Column | None = None
    """With both columns, nobody may have been exposed before being assigned."""
    max_crossovers: float = Field(0.01, ge=0, lt=1)
    """Share of users found in both arms, or in another arm than their hash says, from which no decision is made."""

    @model_validator(mode="after")
    def _check_parts(self) -> ExperimentDesign:
        if self.control == self.treatment:
            raise ValueError("control and treatment are the same arm")
        if missing := {self.control, self.treatment} - set(self.arms):
            raise ValueError(f"arms has no '{min(missing)}'; it names {', '.join(self.arms)}")
        if abs(sum(self.arms.values()) - 1) > 1e-9:
            raise ValueError(f"the shares of the arms add up to {sum(self.arms.values()):g}, not to 1")
        parts = [self.user, self.arm, self.outcome.column, *self.covariates, self.segment]
        parts += [self.assigned_at, self.exposed_at]
        parts += [self.policies.treatment, self.policies.control] if self.policies else []
        twice = [name for name, times in Counter(part for part in parts if part).items() if times > 1]
        if twice:
            raise ValueError(f"column '{twice[0]}' is named for two things; the outcome is no covariate of itself")
        if (self.assigned_at is None) != (self.exposed_at is None):
            raise ValueError("assigned_at and exposed_at are needed both, or neither")
        if self.prior.sd is not None and self.prior.mean >= float(ndtri(self.threshold)) * self.prior.sd:
            raise ValueError("the prior alone passes the threshold: it would ship without a test")
        if self.outcome.kind == "amount" and self.outlook.sd is None:
            raise ValueError("outlook.sd is needed for amounts: the standard deviation over users, zeros included")
        if self.outcome.kind == "binary" and (self.outlook.mean >= 1 or self.outlook.sd is not None):
            raise ValueError("for a binary outcome, outlook.mean is a rate below 1, and outlook.sd follows from it")
        return self

    @property
    def end(self) -> date:
        """The last day whose outcomes count."""
        return self.start + timedelta(days=self.days - 1)

    @property
    def rule(self) -> DecisionRule:
        """Shares, threshold, power and prior of the comparison, as `merit.campaigns.experiments.power` needs them."""
        return DecisionRule(
            treatment=self.arms[self.treatment],
            control=self.arms[self.control],
            threshold=self.threshold,
            power=self.power,
            prior=self.prior,
        )
