"""Around every request: an id, a line in the log, metrics, headers, and a problem in place of an error.

The log and the metrics name a route by its template and the caller by the id of the key. They hold no user, no text of
a request, no query and no address.
"""

from __future__ import annotations

import logging
import re
import secrets
import sys
import traceback
from collections.abc import Callable
from functools import partial
from time import perf_counter

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, ProcessCollector, generate_latest
from starlette.datastructures import Headers, MutableHeaders
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from merit.core import console
from merit.service import problems
from merit.service.campaign_schemas import STATES
from merit.service.problems import ID, KEY, ROUTE, Refusal

SECONDS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30)
MOST_REQUESTS = 1_000  # answered at a time
METHODS = ("GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS")
REQUEST_ID = re.compile(r"[A-Za-z0-9._-]{1,64}")
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


class Metrics:
    """Prometheus metrics in a registry of their own, so that two services in a process count apart."""

    def __init__(self, jobs: Callable[[], dict[str, int]]) -> None:
        """`jobs` counts the jobs in each state, at each reading."""
        self._registry = CollectorRegistry()
        ProcessCollector(registry=self._registry)
        by_state = Gauge("merit_jobs", "Jobs by state", ["state"], registry=self._registry)
        for state in STATES:
            by_state.labels(state).set_function(partial(lambda state: jobs()[state], state))
        self.requests = Counter(
            "merit_requests", "Requests answered", ["method", "route", "status"], registry=self._registry
        )
        self.seconds = Histogram(
            "merit_request_seconds", "Until the end of the answer", ["route"], buckets=SECONDS, registry=self._registry
        )
        self.reloads = Counter("merit_reloads", "Reloads of the model", ["result"], registry=self._registry)

    def text(self) -> bytes:
        """In Prometheus' text format, with CPU, memory and open files of the process."""
        return generate_latest(self._registry)


class RequestMiddleware:
    """The outermost layer: it answers with the problem of a `Refusal` that an inner one raises, and logs it as well."""

    def __init__(self, app: ASGIApp, metrics: Metrics) -> None:
        self.app, self.metrics = app, metrics
        self._open = 0

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """The caller's X-Request-Id is kept if it is short and plain; web sockets are not answered at all."""
        if scope["type"] != "http":
            if scope["type"] == "lifespan":
                await self.app(scope, receive, send)
            return
        request_id = Headers(scope=scope).get("x-request-id", "")
        scope[ID] = request_id if REQUEST_ID.fullmatch(request_id) else secrets.token_hex(8)
        start, status = perf_counter(), 0

        async def send_with_headers(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
                headers = MutableHeaders(scope=message)
                headers["X-Request-Id"] = scope[ID]
                for name, value in HEADERS.items():
                    headers.setdefault(name, value)
            await send(message)

        self._open += 1
        try:
            self._require_plain(scope)
            await self.app(scope, receive, send_with_headers)
        except Exception as error:
            refused = error if isinstance(error, Refusal) else problems.UNEXPECTED
            if refused is problems.UNEXPECTED:
                # where it happened; the message is left out, as it may hold parts of the request
                frames = [
                    f"{frame.filename}:{frame.lineno}" for frame in traceback.extract_tb(error.__traceback__)[-8:]
                ]
                fields = {"request_id": scope[ID], "error": type(error).__name__, "at": frames}
                log.error("unexpected", extra={"fields": fields})
            if not status:
                await problems.response(refused, scope[ID])(scope, receive, send_with_headers)
        finally:
            self._open -= 1
            self._count(scope, status, perf_counter() - start)

    def _require_plain(self, scope: Scope) -> None:
        if self._open > MOST_REQUESTS:
            detail = f"{MOST_REQUESTS:,} requests are being answered already."
            raise Refusal(503, "Busy", detail, "Send it again soon.", {"Retry-After": "1"})
        if {"content-length", "transfer-encoding"} <= {*Headers(scope=scope)}:
            detail = "Content-Length and Transfer-Encoding say two lengths, and a proxy may believe the other one."
            raise Refusal(400, "Two lengths", detail, "Send one of the two headers.", {"Connection": "close"})

    def _count(self, scope: Scope, status: int, seconds: float) -> None:
        route, key = scope.get(ROUTE, "(none)"), scope.get(KEY)
        method = scope["method"] if scope["method"] in METHODS else "other"
        self.metrics.requests.labels(method, route, str(status)).inc()
        self.metrics.seconds.labels(route).observe(seconds)
        fields = {"request_id": scope[ID], "method": method, "route": route, "status": status}
        fields |= {"ms": round(1000 * seconds, 1), "key": key.id if key else None}
        log.info("request", extra={"fields": fields})


def set_up_logging() -> None:
    """Write the access log as JSON lines to stdout, and keep requested phrases out of all other messages."""
    log.handlers.clear()
    lines = logging.StreamHandler(sys.stdout)
    lines.setFormatter(console.JsonLines())
    log.addHandler(lines)
    log.setLevel(logging.INFO)
    log.propagate = False
    console.log.addFilter(lambda record: "interest" not in getattr(record, "fields", {}))
