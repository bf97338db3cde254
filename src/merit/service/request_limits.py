"""How large a request may be and how long an answer may take to begin; and JSON bodies that mean one thing only."""

from __future__ import annotations

import asyncio

from starlette.datastructures import Headers
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from merit.core.errors import DataError
from merit.service import json_body, problems
from merit.service.limits import Limits
from merit.service.middleware import ID
from merit.service.problems import Refusal


class Bounds:
    """Between the gate and the routes: answers 413, 408 and 503 itself, and 422 to a body that is no plain JSON."""

    def __init__(self, app: ASGIApp, limits: Limits) -> None:
        self.app, self.limits = app, limits

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Read the whole body and look through it before a route sees any of it; what is no HTTP passes untouched."""
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        try:
            body = await asyncio.wait_for(self._body(scope, receive), self.limits.seconds)
            if body and "json" in Headers(scope=scope).get("content-type", "").lower():
                json_body.parsed(body)
        except DataError as error:
            refused: Refusal | None = problems.refusal(error, str(error))
        except TimeoutError:
            refused = Refusal(408, "Too slow", "The request did not arrive in time.", "Send it again, faster.")
        except Refusal as error:
            refused = error
        else:
            refused = await self._in_time(scope, _again(body, receive), send)
        if refused:
            await problems.response(refused, scope[ID])(scope, receive, send)

    async def _body(self, scope: Scope, receive: Receive) -> bytes:
        told = Headers(scope=scope).get("content-length", "0")
        large = Refusal(
            413,
            "Too large",
            f"A request may have {self.limits.body:,} bytes.",
            "Ask in parts, or send statistics instead of a table.",
        )
        if told.isdigit() and int(told[:20]) > self.limits.body:
            raise large
        parts, size, more = [], 0, True
        while more:
            message = await receive()
            part = message.get("body", b"")
            size += len(part)
            if size > self.limits.body:
                raise large
            parts.append(part)
            more = message.get("more_body", False)
        return b"".join(parts)

    async def _in_time(self, scope: Scope, receive: Receive, send: Send) -> Refusal | None:
        """A thread cannot be stopped: when time is up the caller is told so, and the work ends unheard."""
        begun, over = asyncio.Event(), False

        async def tell(message: Message) -> None:
            if not over:
                begun.set()
                await send(message)

        work = asyncio.ensure_future(self.app(scope, receive, tell))
        first = asyncio.ensure_future(begun.wait())
        try:
            await asyncio.wait({work, first}, timeout=self.limits.seconds, return_when=asyncio.FIRST_COMPLETED)
        finally:
            first.cancel()
        if work.done() or begun.is_set():
            await work
            return None
        over = True
        work.add_done_callback(lambda done: done.cancelled() or done.exception())
        return Refusal(
            503,
            "It takes too long",
            f"No answer within {self.limits.seconds:g} s.",
            "Ask for less, or later; build large audiences as jobs.",
            {"Retry-After": str(max(1, round(self.limits.seconds)))},
        )


def _again(body: bytes, receive: Receive) -> Receive:
    """The body once more, then whatever comes."""
    told = False

    async def replay() -> Message:
        nonlocal told
        if told:
            return await receive()
        told = True
        return {"type": "http.request", "body": body, "more_body": False}

    return replay
