"""Authentication and rate limits. The scope of a route comes from the table of routes alone; any other is refused."""

from __future__ import annotations

import math
from collections import OrderedDict
from collections.abc import Callable, Mapping
from ipaddress import ip_address, ip_network
from threading import Lock
from time import monotonic

from fastapi import FastAPI
from starlette.datastructures import Headers
from starlette.routing import Match
from starlette.types import ASGIApp, Receive, Scope, Send

from merit.core.errors import MeritError
from merit.service.keys import PREFIX, ApiKey, Keyring
from merit.service.people import People
from merit.service.problems import BODY, KEY, ROUTE, Refusal

UNLIMITED = ("/health", "/ready")  # whoever watches the service is answered while its address is being limited
REALM = {"WWW-Authenticate": 'Bearer realm="merit"'}
MOST_BUCKETS = 10_000  # kept by a limiter: addresses are many, and the ones unused for longest are forgotten


class RateLimiter:
    """A token bucket for each name, full at first; `rate` is in tokens a second."""

    def __init__(self, rate: float, burst: int, clock: Callable[[], float] = monotonic) -> None:
        self.rate, self.burst, self._clock = rate, burst, clock
        self._lock = Lock()
        self._buckets: OrderedDict[str, tuple[float, float]] = OrderedDict()  # tokens, and when they were counted

    def wait(self, name: str) -> int:
        """0 if a token was taken, otherwise the whole seconds until there is one."""
        with self._lock:
            now = self._clock()
            tokens, counted = self._buckets.get(name, (float(self.burst), now))
            tokens = min(self.burst, tokens + (now - counted) * self.rate)
            enough = tokens >= 1
            self._buckets[name] = (tokens - enough, now)
            self._buckets.move_to_end(name)
            if len(self._buckets) > MOST_BUCKETS:
                self._buckets.popitem(last=False)
            return 0 if enough else max(1, math.ceil((1 - tokens) / self.rate))

    def require(self, name: str, who: str) -> None:
        """Take a token, or refuse with 429; `who` is told so."""
        if wait := self.wait(name):
            retry = {"Retry-After": str(wait)}
            raise Refusal(429, "Too many requests", f"{who} sends requests too fast.", f"Wait {wait} s.", retry)

    def require_address(self, scope: Scope) -> None:
        """The same for the address of a request without a valid key; of IPv6, for the network of a customer."""
        host = (scope.get("client") or ("unknown", 0))[0]
        try:
            address = ip_address(host)
            if address.version == 6 and not address.ipv4_mapped:
                host = str(ip_network((int(address), 64), strict=False))
        except ValueError:
            pass  # a name, as a socket of this machine has
        self.require(f"address {host}", "Without a valid key, this address")


class AuthMiddleware:
    """Checks key, rate, method, path and scope, in this order, and leaves the key for the routes and the log."""

    def __init__(
        self,
        app: ASGIApp,
        api: FastAPI,
        scopes: Mapping[tuple[str, str], str],
        keys: Keyring,
        limiter: RateLimiter,
        people: People | None = None,
    ) -> None:
        """`app` gets the requests that pass; the last route of `api` are the pages, which need no key."""
        self.app, self.routes, self.scopes = app, api.router.routes, scopes
        self.keys, self.limiter, self.people = keys, limiter, people

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Raise a `Refusal` unless the request may pass."""
        if scope["type"] == "http":
            self._admit(scope)
        await self.app(scope, receive, send)

    def _admit(self, scope: Scope) -> None:
        matches = [(route.matches(scope)[0], route) for route in self.routes[:-1]]
        full = [route for match, route in matches if match == Match.FULL]
        near = full or [route for match, route in matches if match == Match.PARTIAL]  # the path fits, the method not
        path = str(getattr(near[0], "path", "")) if near else ""
        scope[BODY] = bool(full and getattr(full[0], "body_field", None))
        if not near and not scope["path"].startswith("/v1/"):
            scope[ROUTE] = "(pages)"
            self.limiter.require_address(scope)
            return
        scope[ROUTE] = path or "(none)"
        required = self.scopes.get(("GET" if scope["method"] == "HEAD" else scope["method"], path))
        if required == "public":
            if path not in UNLIMITED:
                self.limiter.require_address(scope)
            return
        key = scope[KEY] = self._key(scope)
        self.limiter.require(key.id, "This key")
        if near and not full:
            allowed = ", ".join(sorted({method for route in near for method in getattr(route, "methods", ())}))
            detail = "This address does not support the method."
            raise Refusal(405, "Method not allowed", detail, f"Use {allowed}.", {"Allow": allowed})
        if not near:
            raise Refusal(404, "Not found", "There is no such address.", "See /v1/docs for the routes.")
        if required is None:
            raise Refusal(403, "Closed", "This route declares no scope, so no key may use it.", "Tell the operator.")
        if required not in key.scopes:
            raise Refusal(
                403,
                "Another scope is needed",
                f"This key may not do that: the scope '{required}' is needed.",
                f"Use a key with it: `merit keys create NAME --scope {required}`.",
            )

    def _key(self, scope: Scope) -> ApiKey:
        kind, _, secret = Headers(scope=scope).get("authorization", "").partition(" ")
        if self.people and not secret.strip().startswith(PREFIX) and (person := self.people.identify(scope)):
            return person
        try:
            key = self.keys.find(secret.strip()) if kind.lower() == "bearer" else None
        except (MeritError, OSError):
            self.limiter.require_address(scope)
            detail = "The service cannot read its keys, so nobody can be let in."
            raise Refusal(503, "Keys unknown", detail, "Tell the operator.", {"Retry-After": "30"}) from None
        if key is None:
            self.limiter.require_address(scope)
            raise Refusal(
                401,
                "A key is needed",
                "A valid API key is needed." if secret else "No API key was sent.",
                "Send `Authorization: Bearer KEY`; make a key with `merit keys create`.",
                REALM,
            )
        if key.expired():
            self.limiter.require_address(scope)
            detail = f"This key, or this secret of it, expired at {key.expires}."
            remedy = f"Ask the operator for a new secret: `merit keys rotate {key.id}`."
            raise Refusal(401, "The key has expired", detail, remedy, REALM)
        return key
