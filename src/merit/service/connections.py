"""Connections that have to come to an end: headers, rests of bodies and answers each have a time.

When there are too many, one that does nothing makes room for the next: the oldest of the address that has most of them.
h11 bounds the size of headers, and is what uvicorn takes where nothing else is installed.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from typing import Any, cast

from uvicorn.protocols.http.h11_impl import H11Protocol


class TimedConnection(H11Protocol):
    """One connection; how long a body may take while it is waited for is a limit of requests."""

    most = 1_000
    """Connections that may be open before one makes room."""
    seconds = 10.0
    """Until the headers of a request are complete, or what is left of a body that nobody reads."""
    unread_seconds = 30.0
    """Until some of an answer is taken."""

    def __init__(self, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **options)
        self._deadline: asyncio.TimerHandle | None = None
        self._unread: asyncio.TimerHandle | None = None
        self._since = self.loop.time()

    @property
    def idle(self) -> bool:
        """Whether no request is being answered."""
        return self.cycle is None or self.cycle.response_complete

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Make room if there is none, and wait for the first request."""
        if len(self.connections) >= self.most:
            self._make_room()
        super().connection_made(transport)
        self._watch()

    def connection_lost(self, exc: Exception | None) -> None:
        """Nothing is waited for any more."""
        self._deadline = _cancelled(self._deadline)
        self._unread = _cancelled(self._unread)
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        """More bytes do not give more time: the deadline stays until a request is complete."""
        super().data_received(data)
        self._watch()

    def pause_writing(self) -> None:
        """The caller takes nothing of the answer."""
        super().pause_writing()
        self._unread = self.loop.call_later(self.unread_seconds, self.transport.abort)

    def resume_writing(self) -> None:
        """The caller took some of it."""
        super().resume_writing()
        self._unread = _cancelled(self._unread)

    def timeout_keep_alive_handler(self) -> None:
        """Close, without waiting for a caller who has not taken the last answer by now."""
        if self.transport.get_write_buffer_size():
            self.transport.abort()
        super().timeout_keep_alive_handler()

    def _watch(self) -> None:
        if not self.idle:
            self._deadline = _cancelled(self._deadline)
        elif self._deadline is None:
            self._deadline = self.loop.call_later(self.seconds, self.transport.abort)

    def _make_room(self) -> None:
        open_ones = cast("set[TimedConnection]", self.connections)
        idle = [connection for connection in open_ones if connection.idle]
        if idle:  # if not, the limit of requests refuses what comes
            crowd = Counter(connection._host for connection in idle)
            leaving = max(idle, key=lambda connection: (crowd[connection._host], -connection._since))
            open_ones.discard(leaving)
            leaving.transport.abort()

    @property
    def _host(self) -> str:
        return self.client[0] if self.client else ""


def _cancelled(timer: asyncio.TimerHandle | None) -> asyncio.TimerHandle | None:
    if timer:
        timer.cancel()
    return None
