"""Connections that do little, over real sockets: each comes to an end, and none shuts others out."""

from __future__ import annotations

import asyncio
import socket
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from threading import Thread

import pytest
import uvicorn
from starlette.testclient import TestClient
from starlette.types import Message, Receive, Scope, Send

from merit.service import middleware
from merit.service.connections import TimedConnection
from merit.service.middleware import Metrics, RequestMiddleware
from merit.service.problems import BODY, Refusal
from merit.service.request_limits import Limits, RequestLimits
from merit.service.server import configured

PATIENCE = 20.0  # seconds until a test gives up
ANSWER = 50 * 2**20  # bytes, more than what sockets hold
Server = Callable[..., tuple[uvicorn.Server, int]]


async def application(scope: Scope, receive: Receive, send: Send) -> None:
    """Answers at once and reads no body."""
    await send({"type": "http.response.start", "status": 200, "headers": [(b"content-length", b"%d" % ANSWER)]})
    await send({"type": "http.response.body", "body": b"x" * (ANSWER if scope["path"] == "/large" else 2)})


async def small(scope: Scope, receive: Receive, send: Send) -> None:
    await send({"type": "http.response.start", "status": 200, "headers": [(b"content-length", b"2")]})
    await send({"type": "http.response.body", "body": b"ok"})


@pytest.fixture
def serve() -> Iterator[Server]:
    running: list[tuple[uvicorn.Server, Thread]] = []

    def start(application: object = small, **limits: float) -> tuple[uvicorn.Server, int]:
        kind = type("Quick", (TimedConnection,), limits)
        server = uvicorn.Server(configured(application, kind))  # type: ignore[arg-type]
        place = socket.socket()
        place.bind(("127.0.0.1", 0))
        thread = Thread(target=server.run, kwargs={"sockets": [place]}, daemon=True)
        thread.start()
        running.append((server, thread))
        _until(lambda: server.started)
        return server, place.getsockname()[1]

    yield start
    for server, thread in running:
        server.should_exit = server.force_exit = True
        thread.join(PATIENCE)


def connect(port: int, host: str = "127.0.0.1") -> socket.socket:
    return socket.create_connection(("127.0.0.1", port), PATIENCE, (host, 0))


def ends(line: socket.socket, drip: bytes = b"") -> bool:
    """Whether the other side closes the line, while this one sends a byte now and then."""
    line.settimeout(0.02)
    end = time.monotonic() + PATIENCE
    while time.monotonic() < end:
        try:
            if not line.recv(1 << 16):
                return True
        except TimeoutError:
            with suppress(ConnectionError):
                line.sendall(drip)
        except ConnectionError:
            return True
    return False


REQUEST = b"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 100000\r\n\r\n"


@pytest.mark.parametrize(
    ("first", "drip"),
    [(b"", b""), (b"GET / HTTP/1.1\r\n", b"A: b\r\n"), (REQUEST, b"x"), (REQUEST[:-2], b"")],
    ids=["silent", "headers in drops", "a body in drops after its answer", "headers without an end"],
)
def test_what_does_not_end_is_ended(first: bytes, drip: bytes, serve: Server) -> None:
    _, port = serve(seconds=0.2)
    with connect(port) as line:
        line.sendall(first)
        assert ends(line, drip)


def test_an_answer_that_nobody_takes_is_given_up(serve: Server) -> None:
    server, port = serve(application, unread_seconds=0.2)
    with connect(port) as line:
        line.sendall(b"GET /large HTTP/1.1\r\nHost: a\r\n\r\n")
        _until(lambda: bool(server.server_state.connections))
        _until(lambda: not server.server_state.connections)


def test_many_that_do_nothing_do_not_shut_others_out(serve: Server) -> None:
    _, port = serve(most=5, seconds=600.0)
    with connect(port, "127.0.0.2") as other:
        idle = [connect(port) for _ in range(30)]
        for line in (other, connect(port, "127.0.0.3")):
            line.sendall(b"GET / HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n")
            assert line.recv(100).startswith(b"HTTP/1.1 200")
        assert sum(ends(line) for line in idle[:10]) == 10  # the oldest of the address that had most
        for line in idle:
            line.close()


def test_a_request_of_two_lengths_and_one_too_many_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    client = TestClient(RequestMiddleware(small, Metrics(lambda: dict.fromkeys(middleware.STATES, 0))))
    both = {"Content-Length": "5", "Transfer-Encoding": "chunked"}
    answer = client.post("/", content=b"0\r\n\r\n", headers=both)
    assert answer.status_code == 400 and answer.headers["connection"] == "close"
    assert client.post("/", content=b"0").status_code == client.post("/", content=iter([b"0"])).status_code == 200
    monkeypatch.setattr(middleware, "MOST_REQUESTS", 0)
    answer = client.get("/")
    assert answer.status_code == 503 and answer.headers["retry-after"] == "1"


def test_a_body_that_does_not_end_is_refused() -> None:
    async def receive() -> Message:
        await asyncio.sleep(0.01)
        return {"type": "http.request", "body": b"x", "more_body": True}

    async def send(message: Message) -> None:
        raise AssertionError("nothing is answered before")

    limits = RequestLimits(small, Limits(seconds=0.1))
    call = limits({"type": "http", "headers": [], BODY: True}, receive, send)
    with ThreadPoolExecutor(1) as pool, pytest.raises(Refusal) as refused:  # a browser may hold the loop of this thread
        pool.submit(asyncio.run, call).result()
    assert refused.value.status == 408


def _until(true: Callable[[], bool]) -> None:
    end = time.monotonic() + PATIENCE
    while not true():
        assert time.monotonic() < end, "it never came"
        time.sleep(0.01)
