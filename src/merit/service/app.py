"""The routes, the pages and what stands around them, as one ASGI application."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import HTMLResponse, JSONResponse, Response
from starlette.exceptions import HTTPException
from starlette.types import ASGIApp

from merit import __version__
from merit.core.errors import MeritError
from merit.service import openapi, problems
from merit.service.auth import Gate
from merit.service.jobs import TooMany
from merit.service.middleware import ID, Envelope
from merit.service.pages import Pages
from merit.service.problems import Refusal
from merit.service.request_limits import Bounds
from merit.service.routes.table import ROUTES, SCOPE_OF
from merit.service.schemas import Fault
from merit.service.service import Service

TITLE = "merit"
OPENAPI, DOCS = "/v1/openapi.json", "/v1/docs"


def make(service: Service) -> ASGIApp:
    """The application over an open service."""
    api = routed(service)
    pages = api.router.routes[-1]
    public = {("GET", place): "public" for place in (OPENAPI, DOCS)}
    gate = Gate(Bounds(api, service.limits), api.router.routes, pages, SCOPE_OF | public, service.keys, service.buckets)
    return Envelope(gate, service.metrics)


def routed(service: Service) -> FastAPI:
    """The routes alone, without anything that guards them."""
    api = FastAPI(
        title=TITLE,
        version=__version__,
        description="Propensities over text interests, ranked both ways: interests for a user, users for an interest.",
        openapi_url=None,
        docs_url=None,
        redoc_url=None,
    )
    api.state.service = service
    for route in ROUTES:
        api.add_api_route(
            route.path,
            route.answer,
            methods=[route.method],
            status_code=route.status,
            operation_id=route.answer.__name__,
            response_class=Response if route.file else JSONResponse,
            response_model_exclude_none=False,
        )
    told = openapi.complete(api.openapi())
    api.add_api_route(OPENAPI, lambda: JSONResponse(told), include_in_schema=False)
    page = openapi.page(told)
    api.add_api_route(DOCS, lambda: HTMLResponse(page), include_in_schema=False)
    for kind, answer in HANDLERS.items():
        api.add_exception_handler(kind, answer)
    api.mount("/", Pages(Path(__file__).parent / "studio", service.bundle), name="studio")
    return api


async def _refused(request: Request, error: Exception) -> Response:
    assert isinstance(error, Refusal)
    return problems.response(error, request.scope[ID])


async def _merit_error(request: Request, error: Exception) -> Response:
    assert isinstance(error, MeritError)
    told = request.app.state.service.told(error)
    if isinstance(error, TooMany):
        return problems.response(
            Refusal(429, "Too many jobs", told, "Wait for one, or cancel it.", {"Retry-After": "10"}), request.scope[ID]
        )
    return problems.response(problems.refusal(error, told), request.scope[ID])


async def _misfit(request: Request, error: Exception) -> Response:
    """All faults at once, without what was sent: that may be a person's, or no JSON."""
    assert isinstance(error, RequestValidationError)
    faults = [
        Fault(where=".".join(str(part) for part in each["loc"])[:200], what=str(each["msg"])[:300])
        for each in error.errors()[:50]
    ]
    told = (
        f"{len(error.errors())} values do not fit: {faults[0].where}: {faults[0].what}."
        if faults
        else "It does not fit."
    )
    refused = Refusal(422, "The request does not fit", told, "See /v1/docs for what is expected.", errors=faults)
    return problems.response(refused, request.scope[ID])


async def _http(request: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException)
    status = 422 if error.status_code == 400 else error.status_code  # FastAPI's word for a body it cannot parse
    refused = Refusal(status, str(error.detail), f"{error.detail}.", "See /v1/docs.", error.headers)
    return problems.response(refused, request.scope[ID])


async def _unexpected(request: Request, error: Exception) -> Response:
    return problems.response(problems.UNEXPECTED, request.scope[ID])


HANDLERS: dict[type[Exception], Any] = {
    Refusal: _refused,
    MeritError: _merit_error,
    RequestValidationError: _misfit,
    HTTPException: _http,
    Exception: _unexpected,
}
