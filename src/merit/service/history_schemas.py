"""Requests and responses about histories that are sent with the request, as types. Nothing of them is kept."""

from __future__ import annotations

from typing import Annotated, Literal, Self

from pydantic import Field, model_validator

from merit.core.config import Frozen
from merit.service.schemas import LONGEST_ID, MOST_INTERESTS, MOST_K, InterestRow, ResponseModel, Text, UserId

MOST_HISTORIES = 100  # of a request
MOST_EVENTS = 20_000  # of all histories of a request
MOST_TITLES = 500  # to be read: each is looked up in all titles of the model
LONGEST_TITLE = 500

RestsOn = Literal["history", "titles", "popularity"]


class SentEvent(Frozen):
    """An item by its id as in the model's data, or by its title where the model may not know the id."""

    item_id: Annotated[str, Field(min_length=1, max_length=LONGEST_ID)] | None = None
    title: Annotated[str, Field(max_length=LONGEST_TITLE)] | None = None
    at: Annotated[str, Field(max_length=40)] | None = None
    """ISO 8601, in UTC where no zone is written. Without it: as late as the newest event or the end of the data."""


class SentHistory(Frozen):
    """The events of one user, in any order; none is a history, too. The id only names the row of the answer."""

    user_id: UserId
    events: list[SentEvent] = Field(max_length=MOST_EVENTS)


class HistoriesRequest(Frozen):
    """Up to 100 users with 20,000 events and 500 titles together."""

    histories: list[SentHistory] = Field(min_length=1, max_length=MOST_HISTORIES)

    @model_validator(mode="after")
    def _bounded(self) -> Self:
        if len({history.user_id for history in self.histories}) < len(self.histories):
            raise ValueError("two histories have one user_id: send each user once")
        if sum(len(history.events) for history in self.histories) > MOST_EVENTS:
            raise ValueError(f"at most {MOST_EVENTS:,} events are read at once: split the request")
        if len({event.title for history in self.histories for event in history.events}) > MOST_TITLES + 1:
            raise ValueError(f"at most {MOST_TITLES} different titles are read at once: split the request")
        return self


class HistoryInterestsRequest(HistoriesRequest):
    """The same, and the number of interests of each user."""

    k: int = Field(10, ge=1, le=MOST_K)


class HistoryScoresRequest(HistoriesRequest):
    """The same, and the interests to score: labels or any phrases."""

    interests: list[Text] = Field(min_length=1, max_length=MOST_INTERESTS)


class HistoryInterests(ResponseModel):
    """The most likely interests of a history, best first."""

    user_id: str
    rests_on: RestsOn
    """history: items that the model knows; titles: only titles could be read; popularity: nothing was known."""
    events: int
    """That were sent."""
    known: int
    """Events whose item the model knows."""
    read: int
    """Events whose item it does not know, and whose title names labels."""
    interests: list[InterestRow]


class HistoryInterestsResponse(ResponseModel):
    """A row for each history, in the order of the request."""

    model: str
    items: list[HistoryInterests]


class HistoryScore(ResponseModel):
    """A history, an interest, the probability of the pair, and what it rests on."""

    user_id: str
    interest: str
    probability: float
    rests_on: RestsOn


class HistoryScoresResponse(ResponseModel):
    """A row for each pair, all interests of the first history first."""

    model: str
    items: list[HistoryScore]
