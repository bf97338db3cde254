"""Routes about erasing users: hidden before the answer comes, purged as a job, certified at the end."""

from __future__ import annotations

from typing import Annotated

from fastapi import Path
from fastapi.responses import Response

from merit.service import schemas
from merit.service.asking import Caller, Idempotency, TheService
from merit.service.erasing import Erasure
from merit.service.limits import LONGEST_ID
from merit.service.routes.audiences import owner_of
from merit.service.service import Service

Number = Annotated[str, Path(max_length=LONGEST_ID, pattern="^[0-9a-zA-Z]+$", description="the id of an erasure")]


def erase(
    service: TheService,
    caller: Caller,
    asked: schemas.ErasureAsked,
    response: Response,
    idempotency: Idempotency = None,
) -> schemas.ErasureTold:
    """Hide these users from the next request on, and start a job that purges every file of them."""
    made = service.erasures.submit(caller.id, asked.users, asked.reason, idempotency)
    response.headers["Location"] = f"/v1/erasures/{made.id}"
    return _shown(service, made)


def erasure(service: TheService, caller: Caller, number: Number) -> schemas.ErasureTold:
    """How an erasure stands, and its certificate once it is done."""
    return _shown(service, service.erasures.get(number, owner_of(caller)))


def _shown(service: Service, made: Erasure) -> schemas.ErasureTold:
    certificate = service.erasures.certificate(made.id) if made.state == "DONE" else None
    told = made.model_dump(include=set(schemas.ErasureTold.model_fields))
    return schemas.ErasureTold.model_validate(told | {"certificate": certificate})
