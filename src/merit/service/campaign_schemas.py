"""Requests and responses about audiences, erasures and experiments, as types."""

from __future__ import annotations

from datetime import date
from math import inf
from typing import Annotated, Literal, get_args

from pydantic import BeforeValidator, Field

from merit.campaigns.audiences.audience import ResolvedInterest
from merit.campaigns.audiences.diagnosis import Diagnosis, ResolvedWindow
from merit.campaigns.audiences.forecast import Forecast, SizeForecast
from merit.campaigns.audiences.request import AudienceRequest, unset
from merit.campaigns.experiments.design import ExperimentDesign
from merit.campaigns.experiments.statistics import Statistics
from merit.core.config import Frozen
from merit.privacy.erasure.certificate import Certificate
from merit.service.schemas import LONGEST_ID, PageResponse, ResponseModel, UserId

State = Literal["PENDING", "RUNNING", "DONE", "FAILED"]
STATES: tuple[State, ...] = get_args(State)
MOST_ERASED = 1_000  # users in one request
# a few users against a strong prior would need an infinite lift, which JSON does not have
Lift = Annotated[float | None, BeforeValidator(lambda lift: None if lift == inf else lift)]


class WaterfallRow(ResponseModel):
    """A step from all users to the audience; rules that remove fewer than 50 users are merged with their neighbours."""

    step: str
    removed: str
    """A count as text: "<50" where it is too small to be shown."""
    left: str


class HistogramBin(ResponseModel):
    """Users with a probability from `low` to `high`; bins are merged until each holds 50 users."""

    low: float
    high: float
    users: int


class OverIndexedRow(ResponseModel):
    """An interest that at least 50 members had more often than all users: `index` is `share` over `base`."""

    interest: str
    share: float
    base: float
    index: float


class PreviewResponse(ResponseModel):
    """An audience without its users; nothing about fewer than 50 of them, and noise of a few users in every figure."""

    name: str
    sentence: str
    model: str
    members: int
    lowest: float | None
    """The lower end of the bin in which the audience ends; null for a lookalike."""
    eligible: int
    interests: list[ResolvedInterest]
    waterfall: list[WaterfallRow]
    forecast: Forecast | None
    """Null for a lookalike: likeness is no probability."""
    sizes: list[SizeForecast]
    eligible_histogram: list[HistogramBin]
    member_histogram: list[HistogramBin]
    over_indexed: list[OverIndexedRow]
    separation: float | None
    window: ResolvedWindow | None = Field(None, exclude_if=unset)
    """Left out without `within`: then a probability is that of the next purchase."""
    diagnosis: Diagnosis | None = Field(None, exclude_if=unset)
    """Which question the order of users answers, and how many members bought before; left out without `within`."""
    notes: list[str]


class MemberInterest(ResponseModel):
    """An interest of the request, and its probability for this member."""

    interest: str
    probability: float


class MemberRow(ResponseModel):
    """A member of the audience, rank 1 the best; without interests in a lookalike, which has none."""

    user_id: str
    rank: int
    score: float
    interests: list[MemberInterest]


class SampleResponse(ResponseModel):
    """Some of the contacted users, evenly over the ranks: the first, the last and some between."""

    model: str
    contacted: int
    items: list[MemberRow]


class TableRow(ResponseModel):
    """A readable table of the service: its columns, and never a row."""

    name: str
    """As a rule names it."""
    columns: list[str]


class TablesResponse(ResponseModel):
    """The tables that rules and analyses may name, at most 200 of them."""

    offered: bool
    """Whether the service has a folder of tables at all."""
    items: list[TableRow]


class ProgressResponse(ResponseModel):
    """The progress of a job; times are in UTC."""

    id: str
    state: State = "PENDING"
    reason: str | None = None
    """Why it failed."""
    created: str
    started: str | None = None
    ended: str | None = None


class JobResponse(ProgressResponse):
    """A job and its request; `members`, as in a preview, and `hash` of the audience are null until it is DONE."""

    request: AudienceRequest
    members: int | None = None
    hash: str | None = None
    """The same for the same model, tables and request."""


class JobPage(PageResponse[JobResponse]):
    """Jobs of the key, or of all keys for an admin, the newest first."""


# --- erasures --------------------------------------------------------------------------------------------------------


class ErasureRequest(Frozen):
    """Users to erase, with ids as in the interactions: at most 1,000 at once."""

    users: list[UserId] = Field(min_length=1, max_length=MOST_ERASED)
    reason: str = Field("", max_length=500)
    """Kept in the certificate: do not name a user in it."""


class ErasureResponse(ProgressResponse):
    """The progress of an erasure; its certificate is null until it is DONE."""

    users: int
    """In the request."""
    certificate: Certificate | None


# --- experiments -----------------------------------------------------------------------------------------------------


class PowerByLift(ResponseModel):
    """Users over all arms, and days, that it takes to detect a lift; days are null without users a day."""

    lift: float
    users: int
    days: int | None


class PowerByWeek(ResponseModel):
    """The smallest lift that is detected after so many whole weeks, and the users over all arms by then."""

    weeks: int
    users: int
    lift: Lift
    """Detected with the agreed power; null where no lift would be."""


class ExpectedPower(ResponseModel):
    """What the users of the agreed window can show."""

    users: int
    lift: Lift
    """The smallest that is detected with the agreed power."""
    chance: float
    """The probability to ship if the lift is the smallest worth having."""
    luck: float
    """The probability to ship if there is no lift at all."""


class DesignResponse(ResponseModel):
    """The file of a design, the users it needs and its power; the service stores nothing of it."""

    file: str
    """design.json, as `merit experiment design` writes it: keep it, an analysis needs it."""
    sha256: str
    """Of the file: proves later that nothing in it was changed."""
    frozen: date
    end: date
    """The last day whose outcomes count."""
    users_needed: int
    expected: ExpectedPower | None
    """Null where the outlook has no number of users."""
    by_lift: list[PowerByLift]
    by_week: list[PowerByWeek]


class _Analysis(Frozen):
    design: ExperimentDesign
    until: date | None = None
    """The last day counted."""
    assigned: int | None = Field(None, ge=1, le=10**12)
    """The number of users that were assigned in all."""


class AnalysisRequest(_Analysis):
    """The agreed design and sufficient statistics of the outcomes: no user is sent."""

    statistics: Statistics


class NamedAnalysisRequest(_Analysis):
    """The agreed design and a table of the service; refused with 403 where a compared arm has fewer than 50 users."""

    table: Annotated[str, Field(min_length=1, max_length=LONGEST_ID)]
    """As /v1/tables names it: a row per assigned user."""
