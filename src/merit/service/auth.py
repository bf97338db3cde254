"""Who may pass. The scope of a route comes from the table alone; without a line there, nobody passes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from starlette.datastructures import Headers
from starlette.routing import BaseRoute, Match
from starlette.types import ASGIApp, Receive, Scope, Send

from merit.service import problems
from merit.service.asking import KEY
from merit.service.buckets import Buckets
from merit.service.keys import Key, Keyring
from merit.service.middleware import ID, ROUTE
from merit.service.problems import Refusal

STRANGERS = "strangers"  # share one bucket: guessing keys is slow for all of them together


class Gate:
    """Asks for key, rate, method, address and scope, in this order, and leaves the key for the routes and the log."""

    def __init__(
        self,
        app: ASGIApp,
        routes: Sequence[BaseRoute],
        pages: BaseRoute,
        scopes: Mapping[tuple[str, str], str],
        keys: Keyring,
        buckets: Buckets,
    ) -> None:
        self.app, self.routes, self.pages, self.scopes = app, routes, pages, scopes
        self.keys, self.buckets = keys, buckets

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Whoever may not pass is answered here with a problem; web sockets are not answered at all."""
        if scope["type"] == "http":
            try:
                self._admit(scope)
            except Refusal as refused:
                await problems.response(refused, scope[ID])(scope, receive, send)
                return
        elif scope["type"] != "lifespan":
            return  # there are no web sockets here
        await self.app(scope, receive, send)

    def _admit(self, scope: Scope) -> None:
        route, methods = self._matched(scope)
        if route is self.pages and not scope["path"].startswith("/v1/"):
            scope[ROUTE] = "(pages)"
            return
        path = str(getattr(route, "path", "")) if route is not self.pages else ""
        scope[ROUTE] = path or "(none)"
        method = "GET" if scope["method"] == "HEAD" else scope["method"]
        wanted = self.scopes.get((method, path))
        if wanted == "public":
            return
        key = self._key(scope)
        scope[KEY] = key
        if wait := self.buckets.wait(key.id):
            raise _too_many(wait)
        if methods:
            raise Refusal(
                405,
                "No such method",
                "This address answers to other methods.",
                f"Use {', '.join(methods)}.",
                {"Allow": ", ".join(methods)},
            )
        if not path:
            raise Refusal(404, "Nothing here", "There is no such address.", "See /v1/docs for those there are.")
        if wanted is None:
            raise Refusal(403, "Closed", "This route declares no scope, so nobody may use it.", "Tell the operator.")
        if wanted not in key.scopes:
            raise Refusal(
                403,
                "Another scope is needed",
                f"This key may not do that: the scope '{wanted}' is needed.",
                f"Use a key with it: `merit keys create NAME --scope {wanted}`.",
            )

    def _matched(self, scope: Scope) -> tuple[BaseRoute | None, list[str]]:
        """The route of a request; or, where only its path fits, the methods it could have."""
        near: BaseRoute | None = None
        methods: set[str] = set()
        for route in self.routes:
            match, _ = route.matches(scope)
            if match == Match.FULL and (route is not self.pages or near is None):
                return route, []
            if match == Match.PARTIAL:
                near = near or route
                methods |= getattr(route, "methods", None) or set()
        return near, sorted(methods)

    def _key(self, scope: Scope) -> Key:
        kind, _, given = Headers(scope=scope).get("authorization", "").partition(" ")
        key = self.keys.find(given.strip()) if kind.lower() == "bearer" else None
        if key is None:
            if given and (wait := self.buckets.wait(STRANGERS)):
                raise _too_many(wait)
            raise Refusal(
                401,
                "Who are you?",
                "A valid API key is needed." if given else "No API key was sent.",
                "Send `Authorization: Bearer KEY`; make a key with `merit keys create`.",
                {"WWW-Authenticate": 'Bearer realm="merit"'},
            )
        return key


def _too_many(wait: int) -> Refusal:
    return Refusal(
        429, "Too many requests", "This key asks faster than it may.", f"Wait {wait} s.", {"Retry-After": str(wait)}
    )
