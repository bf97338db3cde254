"""The request for an audience: with the model and the tables it names, all that is needed to build it again.

docs/audiences.md shows one.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import date
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import ConfigDict, Field, field_validator, model_validator

from merit.campaigns.audiences.eligibility import Rule
from merit.campaigns.experiments.design import Share
from merit.core import config
from merit.core.config import Frozen
from merit.core.errors import ConfigError

MOST_INTERESTS = 100
LARGEST_FILE = 1 << 20  # bytes: lists of users belong into tables
LONGEST_WINDOW = 365  # days; a model says how many it has learnt
MOST_MONEY = 1e12  # a sum over users must stay a number, in any currency
Money = Annotated[float, Field(gt=0, le=MOST_MONEY, allow_inf_nan=False)]


def unset(value: Any) -> bool:
    """Left out where it is not used: an audience without windows is what it was before there were any."""
    return value is None or value == ()


class RequestedInterest(Frozen):
    """One interest: a label, or any phrase."""

    text: str = Field(min_length=1)
    weight: float = Field(1.0, ge=1e-6, le=1e6, allow_inf_nan=False)
    """For combine = "weighted"."""


class Within(Frozen):
    """The days within which at least one purchase counts: the campaign's."""

    model_config = ConfigDict(validate_by_name=True, validate_by_alias=True, serialize_by_alias=True)

    days: int = Field(ge=1, le=LONGEST_WINDOW)
    start: date | None = Field(None, alias="from")
    """The first of them, such as 2027-03-01; by default the first after the model's data."""

    @field_validator("start", mode="before")
    @classmethod
    def _read_date(cls, value: Any) -> Any:
        if isinstance(value, str):
            try:
                return date.fromisoformat(value.strip())
            except ValueError:
                raise ValueError(f"'{value[:40]}' is not a date; write it as 2027-03-01 (year, month, day)") from None
        return value


class ProductList(Frozen):
    """Products by their ids, in a table."""

    table: Path
    item: str = Field("item_id", min_length=1)
    """Its column of ids, as in the model's items."""


class ProductRule(Frozen):
    """Products by what they are; one that meets every part of the rule."""

    vertical: tuple[str, ...] = ()
    """One of these verticals."""
    tag: tuple[str, ...] = ()
    """One of these tags: a brand or a category, where the source made tags of them."""
    title: str = ""
    """These words in the title."""

    @model_validator(mode="after")
    def _check_parts(self) -> ProductRule:
        if not (self.vertical or self.tag or self.title.strip()):
            raise ValueError("a rule of products names a vertical, a tag or words of titles")
        return self


Products = ProductList | ProductRule


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


class PastTest(Frozen):
    """Who was contacted at random in a past campaign, who was left out, and who bought."""

    table: Path
    """A row for each user: the arm of an audience or experiment, and whether the user bought."""
    start: date
    """The first day of that campaign: what users did from then on is not looked at."""
    user: str = Field("user_id", min_length=1)
    arm: str = Field("arm", min_length=1)
    treated: str = "treatment"
    control: str = "control"
    outcome: str = Field("outcome", min_length=1)
    """Above zero, or true, where the user bought."""


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
    products: tuple[Products, ...] = Field((), max_length=MOST_INTERESTS, exclude_if=unset)
    """Lists of products, or rules about them, beside interests or instead of them; they need `within`."""
    within: Within | None = Field(None, exclude_if=unset)
    """Score by the chance of a purchase in these days, instead of by the next purchase whenever it comes."""
    new_to: Literal["products", "category"] | None = Field(None, exclude_if=unset)
    """Only users who never bought one of the products, or nothing of their categories: the finest label of each."""
    uplift: PastTest | None = Field(None, exclude_if=unset)
    """Rank by what a contact adds, learnt from a past test, instead of by who buys."""
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

    @field_validator("products", mode="before")
    @classmethod
    def _plain_tables(cls, values: Any) -> Any:
        several = values if isinstance(values, list | tuple) else [values]
        return [{"table": value} if isinstance(value, str) else value for value in several if value is not None]

    @model_validator(mode="after")
    def _check_parts(self) -> AudienceRequest:
        if bool(self.interests or self.products) == (self.lookalike is not None):
            raise ValueError("an audience needs interests or a lookalike: one of the two")
        if self.products and not self.within:
            raise ValueError("products are bought within a window: say which with within = { days = 28 }")
        if self.within and self.lookalike:
            raise ValueError("a lookalike has no probabilities, within a window neither; leave within out")
        if (self.new_to or self.uplift) and not self.within:
            raise ValueError("new_to and uplift are about a window: say which with within = { days = 28 }")
        texts = [interest.text.casefold().strip() for interest in self.interests]
        if len(set(texts)) < len(texts):
            raise ValueError("an interest is named twice; name it once, with a larger weight if that is meant")
        if self.combine != "weighted" and any(interest.weight != 1 for interest in self.interests):
            raise ValueError("weights count only with combine = 'weighted'")
        if self.lookalike and self.size.by in ("probability", "value"):
            raise ValueError("a lookalike has no probabilities; size it by count, percentile or budget")
        if self.uplift and self.size.by in ("probability", "value"):
            raise ValueError("users are ranked by what a contact adds; size by count, percentile or budget")
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
