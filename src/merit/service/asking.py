"""What every route may ask for: the service, and the key of whoever calls."""

from __future__ import annotations

from typing import Annotated

from fastapi import Depends, Header, Query, Request

from merit.core.errors import DataError
from merit.service import cursors
from merit.service.keys import Key
from merit.service.limits import LONGEST_ID, MOST_PAGE
from merit.service.problems import Refusal
from merit.service.service import Service
from merit.service.store import Served

KEY = "merit.key"  # where the gate leaves the caller's key in the scope of a request


async def _service(request: Request) -> Service:  # async: what waits for nothing needs no thread
    service: Service = request.app.state.service
    return service


def _served(request: Request) -> Served:
    current: Served = request.app.state.service.store.current
    return current


async def _caller(request: Request) -> Key:
    key: Key = request.scope[KEY]
    return key


TheService = Annotated[Service, Depends(_service)]
TheModel = Annotated[Served, Depends(_served)]
Caller = Annotated[Key, Depends(_caller)]
Idempotency = Annotated[
    str | None,
    Header(
        alias="Idempotency-Key",
        min_length=1,
        max_length=LONGEST_ID,
        pattern=r"^[!-~]+$",
        description="the same key with the same request is the same job again, and not a second one",
    ),
]
Cursor = Annotated[str | None, Query(max_length=500, description="of the next page, as the page before told it")]
Limit = Annotated[int, Query(ge=1, le=MOST_PAGE, description="rows of a page")]


def offset_of(cursor: str | None, most: int, *about: object) -> int:
    """Where a page begins, by its cursor."""
    place = cursors.read(cursor, *about) if cursor else 0
    if not isinstance(place, int) or not 0 <= place <= most:
        raise DataError(cursors.WRONG)
    return place


def require_user(served: Served, user: str) -> None:
    """A 404 unless the model may tell of this user; routes ask it before anything is computed."""
    if not served.knows(user):
        raise unknown_user()


def unknown_user() -> Refusal:
    """One who was erased is as unknown as one who never was."""
    return Refusal(
        404,
        "Unknown user",
        "The model does not know this user.",
        "Ask for a user with enough history at the end of the model's data, with the id as it is there.",
    )
