"""Requests and responses about users, interests and the model, as types; and the bounds of requests.

The client uses them too, so nothing here needs the server. Those about audiences, erasures and experiments are in
`campaign_schemas`.
"""

from __future__ import annotations

from typing import Annotated, Generic, TypeVar

from pydantic import BaseModel, ConfigDict, Field

from merit.core.config import Frozen
from merit.core.types import Status
from merit.retrieval.query import LONGEST
from merit.service.keys import Scope

MOST_K = 1_000  # interests of a user, over all pages: a page costs as much as all before it
MOST_PAIRS = 10_000  # scored in one request
MOST_INTERESTS = 100  # different ones in one request: each phrase that is no label goes through the encoder
LONGEST_ID = 200  # characters of a user id, a name or an idempotency key
UserId = Annotated[str, Field(min_length=1, max_length=LONGEST_ID)]
Text = Annotated[str, Field(min_length=1, max_length=LONGEST)]
Row = TypeVar("Row")


class ResponseModel(BaseModel):
    """A response, or a part of one."""

    model_config = ConfigDict(use_attribute_docstrings=True)


class UserResponse(ResponseModel):
    """A response about one user; `model` is the version that answered."""

    user_id: str
    model: str


class PageResponse(ResponseModel, Generic[Row]):
    """A page of a list."""

    items: list[Row]
    next: str | None
    """The cursor of the next page; null on the last."""


# --- users and interests ---------------------------------------------------------------------------------------------


class InterestRow(ResponseModel):
    """An interest and its probability, from 0 to 1; rank 1 is the best, and a label may have no vertical."""

    rank: int
    interest: str
    probability: float
    vertical: str | None


class InterestPage(PageResponse[InterestRow], UserResponse):
    """Interests of a user, best first; over all pages there are at most 1,000."""


class Region(ResponseModel):
    """A cluster of similar labels, as far as a user is interested in it."""

    cluster: int | None
    """Null for labels that were added since the space was clustered."""
    name: str
    """Its most likely interest."""
    expected: float
    """The expected number of its interests that the user has, among those that were ranked."""
    interests: list[InterestRow]


class RegionsResponse(UserResponse):
    """The regions of a user's most likely interests, the one with the most expected interests first."""

    effective: float
    """The effective number of regions: as many as there would be if all were equally strong."""
    items: list[Region]


class HistoryRow(ResponseModel):
    """An event of a user."""

    item_id: str
    title: str | None
    interests: list[str]
    """The live labels of the item."""
    at: str | None
    """Null where the run's examples are not beside the model: then only the order is known."""
    event: str | None


class HistoryPage(PageResponse[HistoryRow], UserResponse):
    """Events of a user, the newest first; `total` is the number of events that the model has read, over all pages."""

    total: int


class VerticalRow(ResponseModel):
    """A vertical and the sum of the user's probabilities, weighted by each label's share of the vertical."""

    vertical: str
    expected: float
    """The expected number of interests of this vertical."""


class VerticalsResponse(UserResponse):
    """All verticals of the model for one user, the one with the most expected interests first."""

    items: list[VerticalRow]


class ScoreRequest(Frozen):
    """Each user is scored for each interest, a label or any phrase: at most 10,000 pairs together."""

    users: list[UserId] = Field(min_length=1, max_length=MOST_PAIRS)
    interests: list[Text] = Field(min_length=1, max_length=MOST_INTERESTS)


class ScorePair(Frozen):
    """A user, with the id as in the interactions, and an interest: a label or any phrase."""

    user_id: UserId
    interest: Text


class ScorePairsRequest(Frozen):
    """Pairs to score; at most 100 different interests among them."""

    pairs: list[ScorePair] = Field(min_length=1, max_length=MOST_PAIRS)


class ScoreRow(ResponseModel):
    """A user, an interest, and the probability of the pair, from 0 to 1."""

    user_id: str
    interest: str
    probability: float


class ScoresResponse(ResponseModel):
    """A row for each pair, in the order of the request; `score` gives all interests of the first user first."""

    model: str
    items: list[ScoreRow]


class InterestRequest(Frozen):
    """A label or any phrase; blocked interests, and paraphrases of them, are refused with 403."""

    text: Text


class InterestResponse(ResponseModel):
    """How the model understands a phrase."""

    text: str
    label: int | None
    """Its number in the label space; null for a phrase that is no label."""
    nearest: str
    similarity: float
    products: int
    """Items with most words of a phrase in their titles; 0 for a label."""
    far: bool
    warning: str | None
    """Set when the model has seen nothing similar."""


class ExplainRequest(Frozen):
    """A user and an interest, a label or any phrase; `k` is the number of items returned."""

    user_id: UserId
    interest: Text
    k: int = Field(10, ge=1, le=MOST_K)


class ExplanationRow(ResponseModel):
    """An item of the user's history; all its `times` in the history are left out together."""

    item_id: str
    title: str | None
    times: int
    effect: float
    """What the item adds, in log-odds."""
    probability: float
    """The probability without it."""


class ExplanationResponse(UserResponse):
    """The items with the largest effect on the probability first; a negative effect lowers it."""

    interest: str
    items: list[ExplanationRow]


# --- labels and the model --------------------------------------------------------------------------------------------


class LabelRow(ResponseModel):
    """A label of the space; text, vertical and cluster of a blocked one are null."""

    number: int
    text: str | None
    vertical: str | None
    status: Status
    since: int
    """The version of the label space in which it appeared."""
    cluster: int | None


class LabelPage(PageResponse[LabelRow]):
    """The labels that match; `total` counts them over all pages."""

    total: int


class ClusterRow(ResponseModel):
    """A cluster of labels and its position on the map, whose wider side reaches from -1 to 1."""

    cluster: int
    labels: int
    """Live ones."""
    vertical: str | None
    """Of most of its labels."""
    name: str
    """The most frequent label of that vertical in it."""
    x: float
    y: float


class LabelMapResponse(ResponseModel):
    """Clusters of live labels on a plane: similar ones lie beside each other. Larger distances mean nothing."""

    model: str
    clusters: int
    """In all; the items are the largest of them."""
    labels: int
    items: list[ClusterRow]


class ModelResponse(ResponseModel):
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


class KeyResponse(ResponseModel):
    """The key of this request, without its secret."""

    id: str
    name: str
    scopes: list[Scope]


class CardResponse(ResponseModel):
    """The model card."""

    markdown: str


class Figure(ResponseModel):
    """One metric of one method with a 95 % interval, and its gain over the method that all are compared with."""

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


class CalibrationBin(ResponseModel):
    """Pairs of a user and an interest with a predicted probability between `low` and `high`."""

    low: float
    high: float
    pairs: int
    promised: float
    """The mean predicted probability."""
    true: float
    """The share that came true."""


class CalibrationMetrics(ResponseModel):
    """How well probabilities are calibrated, on test users, by a curve fitted on others."""

    error: float
    """The expected calibration error: the mean distance of prediction and truth, over pairs."""
    error_likely: float
    """Among pairs with a probability of at least 1 %."""
    brier: float
    prevalence: float
    """The share of all pairs that came true."""
    pairs: int
    bins: list[CalibrationBin]
    """Those of at least 50 pairs."""


class VerticalCalibration(CalibrationMetrics):
    """The calibration of one vertical of at least 50 pairs."""

    vertical: str


class CalibrationResponse(CalibrationMetrics):
    """The calibration of the model, overall and by vertical."""

    verticals: list[VerticalCalibration]


class ResultsResponse(ResponseModel):
    """Figures of at least 50 users, and the calibration of probabilities."""

    figures: list[Figure]
    """Interests for a user."""
    audiences: list[Figure]
    """Users for an interest; empty where the run did not rank them."""
    calibration: CalibrationResponse


class HealthResponse(ResponseModel):
    """The status is always "ok"; `merit` is the version of the service."""

    status: str
    merit: str


class ReadyResponse(ResponseModel):
    """The model that is open: `name` is that of its folder, and the status is always "ready"."""

    status: str
    name: str
    version: str
    label_version: int


class ReloadResponse(ResponseModel):
    """The versions of the model before and now; they are equal where the folder held nothing new."""

    changed: bool
    before: str
    now: str


# --- errors ----------------------------------------------------------------------------------------------------------


class Fault(ResponseModel):
    """A value that does not fit: where it is, such as `body.k`, and what is wrong, without the value itself."""

    where: str
    what: str


class Problem(ResponseModel):
    """An error as in RFC 9457: what is wrong, how to fix it, and the id of the request in the log."""

    type: str = "about:blank"
    title: str
    status: int
    detail: str
    remedy: str
    request_id: str
    errors: list[Fault] | None = None
    """Of a request that does not fit the schema: all faults at once."""
