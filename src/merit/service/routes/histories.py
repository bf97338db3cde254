"""Routes about users who are not stored: their histories come with the request, and nothing of them is kept."""

from __future__ import annotations

from typing import Any

from merit.service import histories
from merit.service.dependencies import TheModel
from merit.service.history_schemas import (
    HistoriesRequest,
    HistoryInterestsRequest,
    HistoryInterestsResponse,
    HistoryScoresRequest,
    HistoryScoresResponse,
)


def history_interests(served: TheModel, request: HistoryInterestsRequest) -> HistoryInterestsResponse:
    """The most likely interests of users by the histories that are sent, stored users or not."""
    sent = _sent(request) | {"k": min(request.k, served.model.live)}
    if not served.model.needs_torch:
        rows = histories.interests_of(served.model, **sent)
    else:
        rows = served.explainer.ask("interests_of", **sent)
    return HistoryInterestsResponse(model=served.version, items=rows)


def history_scores(served: TheModel, request: HistoryScoresRequest) -> HistoryScoresResponse:
    """The probability of every pair of these histories and interests."""
    sent = _sent(request) | {"interests": request.interests}
    if not served.model.needs_torch:
        with served.reading(request.interests) as model:
            rows = histories.scores_of(model, **sent)
    else:
        rows = served.explainer.ask("scores_of", **sent)
    return HistoryScoresResponse(model=served.version, items=rows)


def _sent(request: HistoriesRequest) -> dict[str, Any]:
    events = [
        (history.user_id, event.item_id, event.title, event.at)
        for history in request.histories
        for event in history.events
    ]
    return {"users": [history.user_id for history in request.histories], "events": events}
