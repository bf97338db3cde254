"""Around every request: a number, one line in the log, figures, headers, and a problem for what nobody expected.

The log names the route by its template and the caller by the id of the key. No user, no phrase, no query, no address.
"""

from __future__ import annotations

import logging
import re
import secrets
import sys
import traceback
from time import perf_counter

from starlette.datastructures import Headers, MutableHeaders
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from merit.core import console
from merit.service import problems
from merit.service.asking import KEY
from merit.service.metrics import Metrics

ID, ROUTE = "merit.request", "merit.route"  # in the scope of a request
UNKNOWN = "(none)"
GIVEN = re.compile(r"[A-Za-z0-9._-]{1,64}")
HEADERS = {
    "Content-Security-Policy": "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; "
    "font-src 'self'; connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'",
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Cache-Control": "no-store",
}
log = logging.getLogger("merit.access")


class Envelope:
    """The outermost layer: what the gate refuses is numbered, counted and logged as well."""

    def __init__(self, app: ASGIApp, metrics: Metrics) -> None:
        self.app, self.metrics = app, metrics

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """The caller's X-Request-Id is kept if it is a short plain word; otherwise one is drawn."""
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        given = Headers(scope=scope).get("x-request-id", "")
        scope[ID] = given if GIVEN.fullmatch(given) else secrets.token_hex(8)
        began, status = perf_counter(), 0

        async def tell(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
                headers = MutableHeaders(scope=message)
                headers["X-Request-Id"] = scope[ID]
                for name, value in HEADERS.items():
                    headers.setdefault(name, value)
            await send(message)

        try:
            await self.app(scope, receive, tell)
        except Exception as error:
            _tell_of(error, scope[ID])
            if not status:
                await problems.response(problems.UNEXPECTED, scope[ID])(scope, receive, tell)
        finally:
            self._count(scope, status, perf_counter() - began)

    def _count(self, scope: Scope, status: int, seconds: float) -> None:
        route, key = scope.get(ROUTE, UNKNOWN), scope.get(KEY)
        method = scope["method"] if scope["method"] in METHODS else "other"
        self.metrics.requests.labels(method, route, str(status)).inc()
        self.metrics.seconds.labels(route).observe(seconds)
        fields = {"request_id": scope[ID], "method": method, "route": route, "status": status}
        fields |= {"ms": round(1000 * seconds, 1), "key": key.id if key else None}
        log.info("request", extra={"fields": fields})


METHODS = ("GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS")


def _tell_of(error: Exception, number: str) -> None:
    """Where it happened. Its message is left out: it may hold what was asked."""
    frames = [f"{frame.filename}:{frame.lineno}" for frame in traceback.extract_tb(error.__traceback__)[-8:]]
    fields = {"request_id": number, "error": type(error).__name__, "at": frames}
    log.error("unexpected", extra={"fields": fields})


def set_up_logging() -> None:
    """The access log as JSON lines on stdout; and no phrase that was asked for in any other message."""
    log.handlers.clear()
    lines = logging.StreamHandler(sys.stdout)
    lines.setFormatter(console.JsonLines())
    log.addHandler(lines)
    log.setLevel(logging.INFO)
    log.propagate = False
    console.log.addFilter(_impersonal)


def _impersonal(record: logging.LogRecord) -> bool:
    return "interest" not in getattr(record, "fields", {})
