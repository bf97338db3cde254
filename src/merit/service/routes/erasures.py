"""Routes about erasures: users are hidden before the answer comes, purged as a job, with a certificate at the end."""

from __future__ import annotations

from typing import Annotated

from fastapi import Path
from fastapi.responses import Response

from merit.service import campaign_schemas as schemas
from merit.service.dependencies import Caller, Idempotency, TheService, owner_of
from merit.service.schemas import LONGEST_ID

Number = Annotated[str, Path(max_length=LONGEST_ID, pattern="^[0-9a-zA-Z]+$", description="the id of an erasure")]


def erase(
    service: TheService,
    caller: Caller,
    request: schemas.ErasureRequest,
    response: Response,
    idempotency: Idempotency = None,
) -> schemas.ErasureResponse:
    """Hide these users from the next request on, and start a job that purges every file of them."""
    job = service.erasures.submit(caller.id, request.users, request.reason, idempotency)
    response.headers["Location"] = f"/v1/erasures/{job.id}"
    return schemas.ErasureResponse(**job.model_dump(), certificate=service.erasures.certificate(job))


def erasure(service: TheService, caller: Caller, number: Number) -> schemas.ErasureResponse:
    """The state of an erasure, and its certificate once it is done."""
    job = service.erasures.get(number, owner_of(caller))
    return schemas.ErasureResponse(**job.model_dump(), certificate=service.erasures.certificate(job))
