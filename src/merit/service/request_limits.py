"""How large a request may be and how long its answer may take to begin; and strict JSON.

Strict JSON has no NaN, no infinities, no number beyond 64 bits, no half of a surrogate pair and no key twice: it can be
computed with, stored and sent again.
"""

from __future__ import annotations

import asyncio
import json
import math
from typing import Any

from starlette.datastructures import Headers
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from merit.core.errors import DataError
from merit.service import problems
from merit.service.limits import Limits
from merit.service.problems import ID, Refusal

LARGEST = 2**63 - 1
DIGITS = 25  # of an integer as text: parsing it takes time that grows with the square of its length


class RequestLimits:
    """Between authentication and the routes: answers 413, 408 and 503 itself, and 422 to a body that is not JSON."""

    def __init__(self, app: ASGIApp, limits: Limits) -> None:
        self.app, self.limits = app, limits

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Read and check the whole body before a route sees any of it; what is no HTTP passes untouched."""
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        try:
            body = await asyncio.wait_for(self._body(scope, receive), self.limits.seconds)
            if body and "json" in Headers(scope=scope).get("content-type", "").lower():
                parse_json(body)
        except DataError as error:
            refused: Refusal | None = problems.refusal(error, str(error))
        except TimeoutError:
            refused = Refusal(408, "Too slow", "The request did not arrive in time.", "Send it again, faster.")
        except Refusal as error:
            refused = error
        else:
            refused = await self._in_time(scope, _replay(body, receive), send)
        if refused:
            await problems.response(refused, scope[ID])(scope, receive, send)

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

    async def _in_time(self, scope: Scope, receive: Receive, send: Send) -> Refusal | None:
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


def _replay(body: bytes, receive: Receive) -> Receive:
    """The body once more, then the messages that follow."""
    messages: list[Message] = [{"type": "http.request", "body": body, "more_body": False}]

    async def replay() -> Message:
        return messages.pop() if messages else await receive()

    return replay


def parse_json(raw: bytes | str) -> Any:
    """The values of a strict JSON text in UTF-8; a DataError says what is wrong with any other."""
    try:
        text = raw.decode("utf-8") if isinstance(raw, bytes) else raw
        values = json.loads(
            text, parse_constant=_constant, parse_int=_integer, parse_float=_float, object_pairs_hook=_object
        )
        json.dumps(values, ensure_ascii=False).encode("utf-8")
    except UnicodeEncodeError:
        raise DataError(
            "A text holds half of a surrogate pair, which is no character. Send whole characters."
        ) from None
    except UnicodeDecodeError:
        raise DataError("The body is not UTF-8. Encode it as UTF-8.") from None
    except RecursionError:
        raise DataError("The JSON is nested too deeply. Flatten it.") from None
    except json.JSONDecodeError as error:
        raise DataError(f"The body is not JSON: {error}. Correct it there.") from None
    return values


def _constant(word: str) -> Any:
    raise DataError(f"{word} is not a finite number. Leave the value out, or send a finite one.")


def _integer(digits: str) -> int:
    if len(digits) > DIGITS or abs(number := int(digits)) > LARGEST:
        raise DataError(f"An integer is beyond 64 bits ({digits[:12]}…). Send a smaller one.")
    return number


def _float(digits: str) -> float:
    if not math.isfinite(number := float(digits)):
        raise DataError(f"{digits[:20]} is too large for a number. Send a smaller one.")
    return number


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    values = dict(pairs)
    if len(values) < len(pairs):
        names = [name for name, _ in pairs]
        twice = next(name for name in names if names.count(name) > 1)
        raise DataError(f"The key {twice!r} is set twice. Keep one of the two.")
    return values
