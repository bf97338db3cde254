"""What goes over the wire: questions and answers as types. The client reads them too, so no server is needed here."""

from __future__ import annotations

from datetime import date
from typing import Annotated

from pydantic import BaseModel, ConfigDict, Field

from merit.campaigns.audiences.audience import ResolvedInterest
from merit.campaigns.audiences.forecast import SizeForecast
from merit.campaigns.audiences.request import AudienceRequest
from merit.campaigns.experiments.design import ExperimentDesign
from merit.campaigns.experiments.statistics import Statistics
from merit.core.types import Status
from merit.privacy.erasure.certificate import Certificate
from merit.retrieval.query import LONGEST
from merit.service.jobs import State
from merit.service.keys import Scope
from merit.service.limits import LONGEST_ID, MOST_ERASED, MOST_INTERESTS, MOST_K, MOST_PAIRS

UserId = Annotated[str, Field(min_length=1, max_length=LONGEST_ID)]
Text = Annotated[str, Field(min_length=1, max_length=LONGEST)]


class Asked(BaseModel):
    """A question: an unknown key is an error, so that nothing can be set that was not meant to be."""

    model_config = ConfigDict(extra="forbid", use_attribute_docstrings=True)


class Told(BaseModel):
    """An answer: the client passes over keys it does not know, so that a newer service may tell more."""

    model_config = ConfigDict(use_attribute_docstrings=True)


# --- interests -------------------------------------------------------------------------------------------------------


class InterestRow(Told):
    """An interest and how likely it is, from 0 to 1; rank 1 is the best, and a label may have no vertical."""

    rank: int
    interest: str
    probability: float
    vertical: str | None


class InterestPage(Told):
    """Interests of a user, best first; over all pages there are at most 1,000."""

    user_id: str
    model: str
    """The version that answered."""
    items: list[InterestRow]
    next: str | None
    """The cursor of the next page; null on the last."""


class Region(Told):
    """A cluster of labels that mean something alike, as far as a user is interested in it."""

    cluster: int | None
    """Null for labels that were added since the space was clustered."""
    name: str
    """The most likely interest of it."""
    expected: float
    """How many of its interests the user is expected to have, of those that were looked at."""
    interests: list[InterestRow]


class Regions(Told):
    """The regions of a user's most likely interests, the one with the most expected interests first."""

    user_id: str
    model: str
    effective: float
    """Over how many regions the interests spread: as many as there would be if all were equally strong."""
    items: list[Region]


class HistoryRow(Told):
    """One event of a user; an item that comes three times has three rows."""

    item_id: str
    title: str | None
    interests: list[str]
    """Live labels that the item carries."""
    at: str | None
    """Null where the run's examples are not beside the model: then only the order is known."""
    event: str | None


class HistoryPage(Told):
    """Events of a user, the newest first; `total` is how many the model has read, over all pages."""

    user_id: str
    model: str
    total: int
    items: list[HistoryRow]
    next: str | None


class VerticalRow(Told):
    """A vertical and the user's probabilities added up, each by the share of the label that is of this vertical."""

    vertical: str
    expected: float
    """Interests of this vertical that the user is expected to have."""


class Verticals(Told):
    """Every vertical of the model for one user, the one with the most expected interests first."""

    user_id: str
    model: str
    items: list[VerticalRow]


class ScoreAsked(Asked):
    """Each user is scored for each interest, a label or any phrase: at most 10,000 pairs together."""

    users: list[UserId] = Field(min_length=1, max_length=MOST_PAIRS)
    interests: list[Text] = Field(min_length=1, max_length=MOST_INTERESTS)


class Pair(Asked):
    """A user, with the id as in the interactions, and an interest: a label or any phrase."""

    user_id: UserId
    interest: Text


class PairsAsked(Asked):
    """Pairs to be scored; at most 100 different interests among them."""

    pairs: list[Pair] = Field(min_length=1, max_length=MOST_PAIRS)


class ScoreRow(Told):
    """A user, an interest, and the probability of the pair, from 0 to 1."""

    user_id: str
    interest: str
    probability: float


class Scores(Told):
    """A row for each pair, in the order asked for; of users and interests, all interests of the first user first."""

    model: str
    items: list[ScoreRow]


class InterestAsked(Asked):
    """A label or any phrase; blocked interests, and paraphrases of them, are refused with 403."""

    text: Text


class Meaning(Told):
    """What a phrase means to the model."""

    text: str
    label: int | None
    """Its number in the label space; null for a phrase that is no label."""
    nearest: str
    similarity: float
    products: int
    """That have most of a phrase in their titles; 0 for a label."""
    far: bool
    warning: str | None
    """Told when the model has seen nothing like it."""


class ExplainAsked(Asked):
    """A user and an interest, a label or any phrase; `k` is how many items of the history are told."""

    user_id: UserId
    interest: Text
    k: int = Field(10, ge=1, le=MOST_K)


class EvidenceRow(Told):
    """An item of the user's history; all `times` that it is there are left out together."""

    item_id: str
    title: str | None
    times: int
    effect: float
    """What the item adds, in log-odds."""
    probability: float
    """What is left without it."""


class Explanation(Told):
    """The items that add most to the probability, the strongest first; a negative effect speaks against it."""

    user_id: str
    interest: str
    model: str
    items: list[EvidenceRow]


# --- labels and the model --------------------------------------------------------------------------------------------


class LabelRow(Told):
    """A label of the space; of a blocked one, neither text nor vertical nor cluster is told."""

    number: int
    text: str | None
    """Null for a blocked label: it is not named."""
    vertical: str | None
    status: Status
    since: int
    """The version of the label space in which it appeared."""
    cluster: int | None


class LabelPage(Told):
    """Labels that were searched for; `total` counts them over all pages."""

    total: int
    items: list[LabelRow]
    next: str | None


class ClusterPlace(Told):
    """A cluster of labels and where it lies on the map, whose wider side reaches from -1 to 1."""

    cluster: int
    labels: int
    """Live ones."""
    vertical: str | None
    """Of most of its labels."""
    name: str
    """The most frequent label of that vertical in it."""
    x: float
    y: float


class LabelMap(Told):
    """Clusters of live labels on a plane: those beside each other mean something alike. Distances say no more."""

    model: str
    clusters: int
    """In all; the items are the largest of them."""
    labels: int
    items: list[ClusterPlace]


class ModelFacts(Told):
    """The model being served: `merit` is the version that made it, `opened` when the service opened it."""

    name: str
    version: str
    hash: str
    made: str
    opened: str
    merit: str
    users: int
    labels: dict[Status, int]
    label_version: int
    verticals: list[str]


class KeyFacts(Told):
    """The key of this request; its secret is never told again."""

    id: str
    name: str
    scopes: list[Scope]


class Card(Told):
    """The model card as one text for people."""

    markdown: str


class Figure(Told):
    """One figure of one method with a 95 % interval, and its gain over the method that all are compared with."""

    method: str
    metric: str
    match: str | None
    budget: int | None
    part: str | None
    vertical: str | None
    rule: str | None
    average: str | None
    value: float | None
    low: float | None
    high: float | None
    users: int
    seeds: int
    gain: float | None
    gain_low: float | None
    gain_high: float | None


class Bin(Told):
    """Pairs of a user and an interest that were given a probability between `low` and `high`."""

    low: float
    high: float
    pairs: int
    promised: float
    """The mean probability given."""
    true: float
    """The share that came true."""


class VerticalCalibration(Told):
    """The figures of Calibration for one vertical of at least 50 pairs."""

    vertical: str
    error: float
    error_likely: float
    brier: float
    prevalence: float
    pairs: int
    bins: list[Bin]


class Calibration(Told):
    """Of test users, by a curve fitted on others."""

    error: float
    """The expected calibration error: the mean distance of promise and truth, over pairs."""
    error_likely: float
    """Among pairs given 1 % and more."""
    brier: float
    prevalence: float
    """The share of all pairs that came true."""
    pairs: int
    bins: list[Bin]
    """Those of at least 50 pairs."""
    verticals: list[VerticalCalibration]


class Results(Told):
    """Figures of at least 50 users, and whether probabilities keep their word."""

    figures: list[Figure]
    """Interests for a user."""
    audiences: list[Figure]
    """Users for an interest; empty where the run did not rank them."""
    calibration: Calibration


class Health(Told):
    """The status is always "ok"; `merit` is the version of the service."""

    status: str
    merit: str


class Ready(Told):
    """The model that is open: `name` is that of its folder, and the status is always "ready"."""

    status: str
    name: str
    version: str
    label_version: int


class Reloaded(Told):
    """The versions of the model before and now; they are the same where the folder held nothing new."""

    changed: bool
    before: str
    now: str


# --- audiences -------------------------------------------------------------------------------------------------------


class WaterfallRow(Told):
    """A step from all users to the audience; rules that take fewer than 50 users are told with their neighbours."""

    step: str
    removed: str
    """A count as text: "<50" where it is too small to be told."""
    left: str


class ForecastTold(Told):
    """Conversions of the contacted, with or without the contact: 95 of 100 times from `low` to `high`."""

    users: int | None = None
    """Contacted; null where that is too few to be told."""
    conversions: float
    low: float
    high: float
    least: float
    most: float
    doubt: float
    value: float | None = None
    value_low: float | None = None
    value_high: float | None = None
    cost: float | None = None


class Bar(Told):
    """Users by probability, from `low` to `high`; bins are joined until each holds 50 users."""

    low: float
    high: float
    users: int


class OverIndexed(Told):
    """An interest that at least 50 members had more often than everybody: `index` is `share` over `base`."""

    interest: str
    share: float
    base: float
    index: float


class Preview(Told):
    """An audience without its people; nothing about fewer than 50 of them."""

    name: str
    sentence: str
    model: str
    members: int
    lowest: float
    """The lowest score that is in."""
    eligible: int
    interests: list[ResolvedInterest]
    waterfall: list[WaterfallRow]
    forecast: ForecastTold | None
    """Null for a lookalike: likeness is no probability."""
    sizes: list[SizeForecast]
    eligible_histogram: list[Bar]
    member_histogram: list[Bar]
    over_indexed: list[OverIndexed]
    separation: float | None
    notes: list[str]


class MemberInterest(Told):
    """An interest of the request, and how likely it is for this member."""

    interest: str
    probability: float


class MemberRow(Told):
    """A member of the audience, rank 1 the best; a lookalike asks for no interests, so that it tells none."""

    user_id: str
    rank: int
    score: float
    interests: list[MemberInterest]


class Sample(Told):
    """Some of those who would be contacted, evenly over the ranks: the best, the last and some between."""

    model: str
    contacted: int
    items: list[MemberRow]


class TableRow(Told):
    """A table of the service that can be read: its columns are told, and never a row."""

    name: str
    """As a rule names it."""
    columns: list[str]


class Tables(Told):
    """The tables that rules and analyses may name, at most 200 of them."""

    offered: bool
    """Whether the service has a folder of tables at all."""
    items: list[TableRow]


class ProgressTold(Told):
    """Of anything that goes on after its answer was sent; times are in UTC."""

    id: str
    state: State
    reason: str | None
    """Why it failed."""
    created: str
    started: str | None
    ended: str | None


class JobTold(ProgressTold):
    """A job and what it was asked for; `members` and `hash` of the audience are null until it is DONE."""

    request: AudienceRequest
    members: int | None
    hash: str | None


class JobPage(Told):
    """Jobs of the key, or of all keys for an admin, the newest first."""

    items: list[JobTold]
    next: str | None


# --- erasures --------------------------------------------------------------------------------------------------------


class ErasureAsked(Asked):
    """Users to be forgotten, with ids as in the interactions: at most 1,000 at once."""

    users: list[UserId] = Field(min_length=1, max_length=MOST_ERASED)
    reason: str = Field("", max_length=500)
    """Kept in the certificate: name nobody."""


class ErasureTold(ProgressTold):
    """How an erasure stands; its certificate is null until it is DONE."""

    users: int
    """That were asked for."""
    certificate: Certificate | None


# --- experiments -----------------------------------------------------------------------------------------------------


class PowerByLift(Told):
    """Users over all arms, and days, that a lift takes to be found; no days without users a day in the outlook."""

    lift: float
    users: int
    days: int | None


class PowerByWeek(Told):
    """The smallest lift that is found after so many whole weeks, and the users, over all arms, there are by then."""

    weeks: int
    users: int
    lift: float | None
    """Found with the agreed power; null where no lift would be."""


class Expected(Told):
    """What the users of the agreed window can show."""

    users: int
    lift: float | None
    """The smallest that is found with the agreed power."""
    chance: float
    """To ship if the lift is the smallest worth having."""
    luck: float
    """To ship if there is no lift at all."""


class DesignTold(Told):
    """The file of a design, the users it needs and what it can see; the service keeps nothing of it."""

    file: str
    """design.json, as `merit experiment design` writes it: keep it, an analysis asks for it."""
    sha256: str
    """Of the file: proves later that nothing in it was changed."""
    frozen: date
    end: date
    """The last day whose outcomes count."""
    users_needed: int
    expected: Expected | None
    """Null where the outlook does not say how many users there are."""
    by_lift: list[PowerByLift]
    by_week: list[PowerByWeek]


class _Analysed(Asked):
    design: ExperimentDesign
    until: date | None = None
    """The last day counted."""
    assigned: int | None = Field(None, ge=1, le=10**12)
    """How many users were assigned in all."""


class AnalysisAsked(_Analysed):
    """The agreed design and sufficient statistics of the outcomes: no user is sent."""

    statistics: Statistics


class NamedAnalysisAsked(_Analysed):
    """The agreed design and a table of the service; refused with 403 where a compared arm has fewer than 50 users."""

    table: Annotated[str, Field(min_length=1, max_length=LONGEST_ID)]
    """As /v1/tables names it: a row per assigned user."""


# --- errors ----------------------------------------------------------------------------------------------------------


class Fault(Told):
    """A value that does not fit: where it is, such as `body.k`, and what is wrong, without the value itself."""

    where: str
    what: str


class Problem(Told):
    """An error as in RFC 9457: what is wrong, what mends it, and the id by which the log knows the request."""

    type: str = "about:blank"
    title: str
    status: int
    detail: str
    remedy: str
    request_id: str
    errors: list[Fault] | None = None
    """Of a request that does not fit the schema: all faults at once."""
