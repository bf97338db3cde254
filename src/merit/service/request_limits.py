"""How large a request may be and how long its answer may take to begin; and strict JSON.

A body is read only where the route expects one, which is after authentication. A large one is parsed in a thread.

Strict JSON has no NaN, no infinities, no number beyond 64 bits, no lone surrogate and no duplicate key, so that every
value can be computed with, stored and sent again.
"""

from __future__ import annotations

import asyncio
import json
import math
from typing import Any

from pydantic import Field
from pydantic_core import from_json
from starlette.concurrency import run_in_threadpool
from starlette.datastructures import Headers
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from merit.core.config import Frozen
from merit.core.errors import DataError
from merit.service import problems
from merit.service.problems import BODY, Refusal

LARGEST = 2**63 - 1
SMALL = 2**16  # bytes of a body that is parsed at once: a thread would take longer
MOST_VALUES = 250_000  # of a JSON body, far above any that fits a route: ten megabytes of [] take seconds to parse
DIGITS = 25  # of an integer as text: parsing it takes time that grows with the square of its length


class Limits(Frozen):
    """What `merit serve --set rate=500` may change; a value out of bounds keeps the service from starting."""

    body: int = Field(10 * 2**20, ge=1_024)
    """Bytes of a request."""
    seconds: float = Field(30.0, gt=0)
    """Until an answer begins."""
    rate: float = Field(50.0, gt=0)
    """Requests a second of a key, and of an address that shows none."""
    burst: int = Field(200, ge=1)
    """Requests that a key, or an address that shows none, may send at once."""
    waiting: int = Field(50, ge=1)
    """Jobs of a key that wait or run."""


class RequestLimits:
    """Between authentication and the routes: refuses with 413, 408 and 503, and with 422 a body that is not JSON."""

    def __init__(self, app: ASGIApp, limits: Limits) -> None:
        self.app, self.limits = app, limits

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Read and check the whole body before a route that expects one sees any of it; others get an empty one."""
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        try:
            body = b""
            if scope[BODY]:
                body = await asyncio.wait_for(self._body(scope, receive), self.limits.seconds)
                await _check(body, Headers(scope=scope).get("content-type", ""))
        except DataError as error:
            raise problems.refusal(error, str(error)) from None
        except TimeoutError:
            raise Refusal(408, "Too slow", "The request did not arrive in time.", "Send it again, faster.") from None
        messages: list[Message] = [{"type": "http.request", "body": body, "more_body": False}]

        async def replay() -> Message:
            return messages.pop() if messages else await receive()

        await self._in_time(scope, replay, send)

    async def _body(self, scope: Scope, receive: Receive) -> bytes:
        length = Headers(scope=scope).get("content-length", "0")
        large = Refusal(
            413,
            "Too large",
            f"A request may have {self.limits.body:,} bytes.",
            "Split it, or send statistics instead of a table.",
        )
        if length.isdigit() and int(length[:20]) > self.limits.body:
            raise large
        body, more = bytearray(), True
        while more:
            message = await receive()
            body += message.get("body", b"")
            if len(body) > self.limits.body:
                raise large
            more = message.get("more_body", False)
        return bytes(body)

    async def _in_time(self, scope: Scope, receive: Receive, send: Send) -> None:
        """A thread cannot be stopped: after the limit the caller gets a 503, and the result of the work is dropped."""
        begun, over = asyncio.Event(), False

        async def send_in_time(message: Message) -> None:
            if not over:
                begun.set()
                await send(message)

        work = asyncio.ensure_future(self.app(scope, receive, send_in_time))
        first = asyncio.ensure_future(begun.wait())
        try:
            await asyncio.wait({work, first}, timeout=self.limits.seconds, return_when=asyncio.FIRST_COMPLETED)
        finally:
            first.cancel()
        if work.done() or begun.is_set():
            await work
            return
        over = True
        work.add_done_callback(lambda done: done.cancelled() or done.exception())
        raise Refusal(
            503,
            "It takes too long",
            f"No answer within {self.limits.seconds:g} s.",
            "Ask for less, or later; build large audiences as jobs.",
            {"Retry-After": str(max(1, round(self.limits.seconds)))},
        )


async def _check(body: bytes, content_type: str) -> None:
    """Refuse a body that is neither strict JSON nor a form with files: parsers of other kinds have their own limits."""
    kind = content_type.partition(";")[0].strip().lower()
    if kind.endswith("json"):
        await run_in_threadpool(parse_json, body) if len(body) > SMALL else parse_json(body)
    elif body and kind != "multipart/form-data":
        raise DataError("The body is neither JSON nor a form with files. Send it as application/json.")


def parse_json(raw: bytes | str) -> Any:
    """The values of a strict JSON text in UTF-8; a DataError says what is wrong with any other."""
    text = raw.encode("utf-8", "surrogatepass") if isinstance(raw, str) else raw
    if sum(map(text.count, (b",", b"[", b"{"))) > MOST_VALUES:
        raise DataError(f"The body has more than {MOST_VALUES:,} values. Split the request.")
    try:
        from_json(raw, allow_inf_nan=False)  # refuses what is no JSON, no UTF-8, no whole character, or too deep
    except ValueError as error:
        raise DataError(f"The body is not JSON in UTF-8: {error}. Correct it there.") from None
    return json.loads(raw, parse_int=_integer, parse_float=_float, object_pairs_hook=_object)


def _integer(digits: str) -> int:
    if len(digits) > DIGITS or abs(number := int(digits)) > LARGEST:
        raise DataError(f"An integer is beyond 64 bits ({digits[:12]}…). Send a smaller one.")
    return number


def _float(digits: str) -> float:
    if not math.isfinite(number := float(digits)):
        raise DataError(f"{digits[:20]} is too large for a number. Send a smaller one.")
    return number


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    values: dict[str, Any] = {}
    for name, value in pairs:
        if name in values:
            raise DataError(f"The key {name[:60]!r} occurs twice. Keep one of the two.")
        values[name] = value
    return values
