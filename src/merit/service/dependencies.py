"""Parameters that routes share: the service, the model, the caller's key, and pages with cursors."""

from __future__ import annotations

import base64
import binascii
import json
from hashlib import sha256
from typing import Annotated

from fastapi import Depends, Header, Query, Request

from merit.core.errors import DataError
from merit.service.keys import ApiKey
from merit.service.problems import KEY, Refusal
from merit.service.schemas import LONGEST_ID
from merit.service.service import Service
from merit.service.store import Served

MOST_PAGE = 200  # rows of any page
WRONG_CURSOR = "This cursor does not belong to this list, or the list has changed. Begin again without a cursor."


async def _service(request: Request) -> Service:  # async: it does not block, and so needs no thread
    service: Service = request.app.state.service
    return service


def _served(request: Request) -> Served:
    served: Served = request.app.state.service.store.current
    return served


async def _caller(request: Request) -> ApiKey:
    key: ApiKey = request.scope[KEY]
    return key


TheService = Annotated[Service, Depends(_service)]
TheModel = Annotated[Served, Depends(_served)]
Caller = Annotated[ApiKey, Depends(_caller)]
Idempotency = Annotated[
    str | None,
    Header(
        alias="Idempotency-Key",
        min_length=1,
        max_length=LONGEST_ID,
        pattern=r"^[!-~]+$",
        description="the same key with the same request returns the first job and starts no second one",
    ),
]
Cursor = Annotated[str | None, Query(max_length=500, description="the `next` of the page before")]
Limit = Annotated[int, Query(ge=1, le=MOST_PAGE, description="rows of a page")]


def owner_of(caller: ApiKey) -> str | None:
    """Whose jobs a key may see; None for all."""
    return None if "admin" in caller.scopes else caller.id


def cursor_at(position: int | str, *about: object) -> str:
    """An opaque cursor; `about` names the list and the model, and reading it needs the same."""
    content = json.dumps([position, _digest(about)]).encode()
    return base64.urlsafe_b64encode(content).decode().rstrip("=")


def position_of(cursor: str, *about: object) -> int | str:
    """The position that `cursor_at` was given for the same list."""
    try:
        position, mark = json.loads(base64.urlsafe_b64decode(cursor.encode() + b"=" * (-len(cursor) % 4)))
    except (ValueError, TypeError, binascii.Error):
        raise DataError(WRONG_CURSOR) from None
    if mark != _digest(about) or isinstance(position, bool) or not isinstance(position, int | str):
        raise DataError(WRONG_CURSOR)
    return position


def page_of(cursor: str | None, limit: int, total: int, *about: object) -> tuple[slice, str | None]:
    """The rows of a page, of `total` in all, and the cursor of the next page; None on the last."""
    first = position_of(cursor, *about) if cursor else 0
    if not isinstance(first, int) or not 0 <= first <= total:
        raise DataError(WRONG_CURSOR)
    last = min(first + limit, total)
    return slice(first, last), cursor_at(last, *about) if last < total else None


def _digest(about: tuple[object, ...]) -> str:
    return sha256(json.dumps([str(part) for part in about]).encode()).hexdigest()[:12]


def require_user(served: Served, user: str) -> None:
    """Refuse with 404 unless the model has this user; an erased user is as unknown as one who never existed."""
    if not served.model.has_user(user):
        raise Refusal(
            404,
            "Unknown user",
            "The model does not know this user.",
            "Use the id as in the interactions, of a user with enough history at the end of the model's data.",
        )
