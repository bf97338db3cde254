"""Routes about erasing users: hidden before the answer comes, purged as a job, certified at the end."""

from __future__ import annotations

from typing import Annotated

from fastapi import Path
from fastapi.responses import Response

from merit.serving import shapes
from merit.serving.asking import Caller, Idempotency, TheService
from merit.serving.audiences import owner_of
from merit.serving.erasing import Erasure
from merit.serving.limits import LONGEST_ID
from merit.serving.service import Service

Number = Annotated[str, Path(max_length=LONGEST_ID, pattern="^[0-9a-zA-Z]+$", description="the id of an erasure")]


def erase(
    service: TheService,
    caller: Caller,
    asked: shapes.ErasureAsked,
    response: Response,
    idempotency: Idempotency = None,
) -> shapes.ErasureTold:
    """Hide these users from the next request on, and start a job that purges every file of them."""
    made = service.erasures.submit(caller.id, asked.users, asked.reason, idempotency)
    response.headers["Location"] = f"/v1/erasures/{made.id}"
    return _shown(service, made)


def erasure(service: TheService, caller: Caller, number: Number) -> shapes.ErasureTold:
    """How an erasure stands, and its certificate once it is done."""
    return _shown(service, service.erasures.get(number, owner_of(caller)))


def _shown(service: Service, made: Erasure) -> shapes.ErasureTold:
    certificate = service.erasures.certificate(made.id) if made.state == "DONE" else None
    told = made.model_dump(include=set(shapes.ErasureTold.model_fields))
    return shapes.ErasureTold.model_validate(told | {"certificate": certificate})
