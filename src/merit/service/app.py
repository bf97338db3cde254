"""The routes, the pages and the middleware as one ASGI application."""

from __future__ import annotations

from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import HTMLResponse, JSONResponse, Response
from starlette.exceptions import HTTPException
from starlette.types import ASGIApp

from merit import __version__
from merit.core.errors import MeritError
from merit.service import openapi, problems
from merit.service.auth import AuthMiddleware
from merit.service.middleware import RequestMiddleware
from merit.service.pages import Pages
from merit.service.problems import ID, Refusal
from merit.service.request_limits import RequestLimits
from merit.service.routes import ROUTES, SCOPE_OF
from merit.service.schemas import Fault
from merit.service.service import Service

OPENAPI, DOCS = "/v1/openapi.json", "/v1/docs"


def make(service: Service) -> ASGIApp:
    """The application over an open service."""
    api = routed(service)
    scopes = SCOPE_OF | {("GET", OPENAPI): "public", ("GET", DOCS): "public"}
    limited = RequestLimits(api, service.limits)
    guarded = AuthMiddleware(limited, api, scopes, service.keys, service.limiter, service.people)
    return RequestMiddleware(guarded, service.metrics)


def routed(service: Service) -> FastAPI:
    """The routes alone, without the middleware that guards them; the pages are the last one."""
    api = FastAPI(
        title="merit",
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
            route.handler,
            methods=[route.method],
            status_code=route.status,
            operation_id=route.handler.__name__,
        )
    document = openapi.complete(api.openapi())
    page = openapi.page(document)
    api.add_api_route(OPENAPI, lambda: JSONResponse(document), include_in_schema=False)
    api.add_api_route(DOCS, lambda: HTMLResponse(page), include_in_schema=False)
    for kind in (Refusal, MeritError, RequestValidationError, HTTPException, Exception):
        api.add_exception_handler(kind, _problem)
    api.mount("/", Pages(service.vega), name="studio")
    return api


async def _problem(request: Request, error: Exception) -> Response:
    return problems.response(_refusal(request.app.state.service, error), request.scope[ID])


def _refusal(service: Service, error: Exception) -> Refusal:
    match error:
        case Refusal():
            return error
        case MeritError():
            return problems.refusal(error, service.redact(error))
        case RequestValidationError():
            return _invalid(error)
        case HTTPException():
            status = 422 if error.status_code == 400 else error.status_code  # FastAPI's of a body it cannot parse
            return Refusal(status, str(error.detail), f"{error.detail}.", "See /v1/docs.", error.headers)
    return problems.UNEXPECTED


def _invalid(error: RequestValidationError) -> Refusal:
    """All faults at once, without the values: they may be a user's, or not even JSON."""
    faults = [
        Fault(where=".".join(map(str, fault["loc"]))[:200], what=str(fault["msg"])[:300])
        for fault in error.errors()[:50]
    ]
    first = f"{faults[0].where}: {faults[0].what}" if faults else "the request"
    message = f"{len(error.errors())} values do not fit: {first}."
    return Refusal(422, "The request does not fit", message, "See /v1/docs for what is expected.", errors=faults)
