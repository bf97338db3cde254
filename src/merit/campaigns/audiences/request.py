"""The request for an audience: with the model and the tables it names, all that is needed to build it again.

docs/audiences.md shows one.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import date
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import Field, field_validator, model_validator

from merit.campaigns.audiences.eligibility import Rule
from merit.campaigns.experiments.design import Share
from merit.core import config
from merit.core.config import Frozen
from merit.core.errors import ConfigError

MOST_INTERESTS = 100
LARGEST_FILE = 1 << 20  # bytes: lists of users belong into tables
MOST_MONEY = 1e12  # a sum over users must stay a number, in any currency
Money = Annotated[float, Field(gt=0, le=MOST_MONEY, allow_inf_nan=False)]


class RequestedInterest(Frozen):
    """One interest: a label, or any phrase."""

    text: str = Field(min_length=1)
    weight: float = Field(1.0, ge=1e-6, le=1e6, allow_inf_nan=False)
    """For combine = "weighted"."""


class Lookalike(Frozen):
    """Users like those of a list."""

    table: Path
    """The seeds: a table of users, at least 100 of them known to the model."""
    user: str = Field("user_id", min_length=1)
    about: str = Field(min_length=10)
    """What the seeds have in common, in words. It is kept, and judged by the policy: a list can hide what an interest
    could not."""
    with_seeds: bool = False
    """Whether the seeds may be in the audience themselves."""


class CountSize(Frozen):
    """A fixed number of users."""

    by: Literal["count"]
    users: int = Field(ge=1)


class PercentileSize(Frozen):
    """The best few percent of the eligible users."""

    by: Literal["percentile"]
    percent: float = Field(gt=0, le=100)


class ProbabilitySize(Frozen):
    """All users between two probabilities; `at_most` leaves out those who would buy anyhow."""

    by: Literal["probability"]
    at_least: float = Field(gt=0, lt=1)
    at_most: float = Field(1.0, gt=0, le=1)

    @model_validator(mode="after")
    def _check_range(self) -> ProbabilitySize:
        if self.at_least > self.at_most:
            raise ValueError("at_least is above at_most, so that nobody is left")
        return self


class BudgetSize(Frozen):
    """As many as can be contacted for the money. Holdout and control cost nothing."""

    by: Literal["budget"]
    budget: Money


class ValueSize(Frozen):
    """All users who are expected to bring more than the contact costs."""

    by: Literal["value"]


Size = Annotated[CountSize | PercentileSize | ProbabilitySize | BudgetSize | ValueSize, Field(discriminator="by")]


class Economics(Frozen):
    """Money, all in one currency: needed for a size by budget or value, and for a forecast in money."""

    cost_per_contact: float = Field(ge=0, le=MOST_MONEY, allow_inf_nan=False)
    value_per_conversion: Money | None = None
    caused: float = Field(1.0, gt=0, le=1)
    """Share of the conversions that the contact brings. 1 counts those who would have bought anyhow; an experiment
    measures it (docs/experiments.md)."""


class ArmShare(Frozen):
    """A share of the users, drawn by the hash of their id."""

    share: Share
    salt: str = Field(min_length=8)


class AudienceRequest(Frozen):
    """An audience before it is built; parts that contradict each other are refused before users are scored."""

    name: str = Field(min_length=1, max_length=200)
    interests: tuple[RequestedInterest, ...] = Field((), max_length=MOST_INTERESTS)
    combine: Literal["any", "all", "weighted"] = "any"
    """any: at least one of the interests. all: every one. weighted: an offer about one of them, drawn by weight."""
    lookalike: Lookalike | None = None
    """Instead of interests."""
    size: Size
    as_of: date | None = None
    """The day the rules look back from. Written down, and never "today": so the audience can be built again."""
    rules: tuple[Rule, ...] = ()
    """In the order of the waterfall."""
    economics: Economics | None = None
    holdout: ArmShare | None = None
    """Users whom no campaign addresses: give every campaign the same salt, and they stay the same users."""
    control: ArmShare | None = None
    """Users left out of this campaign alone: a new salt for each."""

    @field_validator("interests", mode="before")
    @classmethod
    def _plain_texts(cls, values: Any) -> Any:
        if isinstance(values, list | tuple):
            return [{"text": value} if isinstance(value, str) else value for value in values]
        return values

    @model_validator(mode="after")
    def _check_parts(self) -> AudienceRequest:
        if bool(self.interests) == (self.lookalike is not None):
            raise ValueError("an audience needs interests or a lookalike: one of the two")
        texts = [interest.text.casefold().strip() for interest in self.interests]
        if len(set(texts)) < len(texts):
            raise ValueError("an interest is named twice; name it once, with a larger weight if that is meant")
        if self.combine != "weighted" and any(interest.weight != 1 for interest in self.interests):
            raise ValueError("weights count only with combine = 'weighted'")
        if self.lookalike and self.size.by in ("probability", "value"):
            raise ValueError("a lookalike has no probabilities; size it by count, percentile or budget")
        if self.size.by == "budget" and not (self.economics and self.economics.cost_per_contact > 0):
            raise ValueError("a budget needs economics.cost_per_contact above zero")
        if self.size.by == "value" and not (self.economics and self.economics.value_per_conversion):
            raise ValueError("a size by value needs economics.value_per_conversion and cost_per_contact")
        if self.as_of is None and any(getattr(rule, "days", None) for rule in self.rules):
            raise ValueError("a rule looks back some days: say from which day with as_of = 2027-03-01")
        if self.holdout and self.control and self.holdout.salt == self.control.salt:
            raise ValueError("holdout and control have one salt, so that one would lie inside the other; use two")
        return self


def read(path: Path | None, overrides: Sequence[str] = (), interests: Sequence[str] = ()) -> AudienceRequest:
    """A request from a file, from interests on the command line, or from both."""
    if path and path.is_file() and path.stat().st_size > LARGEST_FILE:
        raise ConfigError(f"{path} is larger than a mebibyte. Put lists of users into a table and name that.")
    remedy = "docs/audiences.md shows a request to start from."
    values = config.read(path, remedy) if path else {"name": " + ".join(interests)[:200] or "Audience"}
    if interests:
        values = values | {"interests": list(interests)}
    return config.build(AudienceRequest, values, overrides, origin=str(path or "the request"))
