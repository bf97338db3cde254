"""What a stranger may cost: a body that nobody asked for is not read, and an address without a key has its share."""

from __future__ import annotations

import asyncio
import threading
import time
from typing import Any

import pytest
from fastapi import FastAPI
from starlette.testclient import TestClient
from starlette.types import ASGIApp, Message

from merit.core.errors import DataError
from merit.service import app, request_limits
from merit.service.auth import MOST_BUCKETS, AuthMiddleware, RateLimiter
from merit.service.middleware import RequestMiddleware
from merit.service.request_limits import SMALL, parse_json
from merit.service.routes import SCOPE_OF
from merit.service.service import Service

JSON = {"Content-Type": "application/json"}


def test_a_key_that_comes_twice_is_found_in_linear_time() -> None:
    names = ",".join(f'"{number}": 0' for number in range(40_000))
    began = time.perf_counter()
    with pytest.raises(DataError, match="'39999' occurs twice"):
        parse_json(f'{{{names}, "39999": 0}}')
    assert time.perf_counter() - began < 2  # counted in quadratic time, it was 20 s


@pytest.mark.parametrize("text", [b"[" + b"[]," * 300_000 + b"0]", b"{" + b'"a":{},' * 300_000 + b'"b":0}'])
def test_a_body_of_very_many_values_is_refused_before_it_is_parsed(text: bytes) -> None:
    began = time.perf_counter()
    with pytest.raises(DataError, match="250,000 values"):
        parse_json(text)
    assert time.perf_counter() - began < 0.1


async def _status(guarded: ASGIApp, method: str, path: str, secret: str | None) -> int:
    """The status of a request whose body never comes."""
    statuses: list[int] = []
    headers = [(b"content-type", b"application/json"), (b"content-length", b"100")]
    headers += [(b"authorization", f"Bearer {secret}".encode())] if secret else []

    async def receive() -> Message:
        return await asyncio.Event().wait()  # type: ignore[return-value]

    async def send(message: Message) -> None:
        if message["type"] == "http.response.start":
            statuses.append(message["status"])

    scope = {"type": "http", "method": method, "path": path, "raw_path": path.encode(), "query_string": b""}
    scope |= {"headers": headers, "client": ("10.0.0.1", 1), "server": ("service", 80), "scheme": "http"}
    scope |= {"http_version": "1.1", "root_path": "", "asgi": {"version": "3.0"}}
    await asyncio.wait_for(guarded(scope, receive, send), 10)
    return statuses[0]


@pytest.mark.parametrize(
    ("method", "path", "with_key", "status"),
    [
        ("POST", "/", False, 405),
        ("GET", "/app.js", False, 200),
        ("GET", "/health", False, 200),
        ("POST", "/v1/interest", False, 401),
        ("GET", "/v1/model", True, 200),
    ],
)
def test_nobody_waits_for_a_body_that_is_not_expected(
    method: str, path: str, with_key: bool, status: int, guarded: ASGIApp, secret: Any
) -> None:
    key = secret("read") if with_key else None
    assert asyncio.run(_status(guarded, method, path, key)) == status


def test_a_large_body_is_parsed_beside_the_event_loop(ask: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    threads: list[str] = []

    def watched(raw: bytes) -> Any:
        threads.append(threading.current_thread().name)
        return parse_json(raw)

    monkeypatch.setattr(request_limits, "parse_json", watched)
    with ask("read") as client:
        for size in (10, SMALL + 1):
            assert client.post("/v1/interest", content=b'"' + b"x" * size + b'"', headers=JSON).status_code == 422
    assert len(set(threads)) == 2


def test_a_form_without_files_is_refused_before_it_is_parsed(ask: Any) -> None:
    began = time.perf_counter()
    kind = {"Content-Type": "application/x-www-form-urlencoded"}
    answer = ask("read").post("/v1/experiments/analyze-table", content=b"&" * 5_000_000, headers=kind)
    assert answer.status_code == 422 and "neither JSON nor a form with files" in answer.json()["detail"]
    assert time.perf_counter() - began < 1


@pytest.fixture(scope="module")
def api(service: Service) -> FastAPI:
    return app.routed(service)


def limited(api: FastAPI, address: str, limiter: RateLimiter) -> TestClient:
    service: Service = api.state.service
    auth = AuthMiddleware(api, api, SCOPE_OF, service.keys, limiter)
    return TestClient(RequestMiddleware(auth, service.metrics), client=(address, 1))


@pytest.mark.parametrize("path", ["/", "/v1/docs", "/v1/model", "/v1/nowhere"])
def test_an_address_without_a_key_has_its_share(path: str, api: FastAPI, secret: Any) -> None:
    limiter = RateLimiter(0.01, 2)
    first, other = (limited(api, address, limiter) for address in ("10.0.0.1", "10.0.0.2"))
    answers = [first.get(path) for _ in range(4)]
    assert [answer.status_code == 429 for answer in answers] == [False, False, True, True]
    assert "this address" in answers[-1].json()["detail"] and answers[-1].headers["retry-after"]
    assert other.get(path).status_code != 429
    assert first.get("/health").status_code == 200  # whoever watches is answered
    assert first.get("/v1/model", headers={"Authorization": f"Bearer {secret('read')}"}).status_code == 200


def test_a_network_of_ipv6_is_one_address_and_names_are_forgotten(api: FastAPI) -> None:
    limiter = RateLimiter(0.01, 2)
    statuses = [limited(api, f"2001:db8::{number}", limiter).get("/").status_code for number in range(1, 4)]
    assert statuses == [200, 200, 429]
    for number in range(MOST_BUCKETS):
        limiter.wait(str(number))
    assert len(limiter._buckets) == MOST_BUCKETS
