"""Who may ask for what: every route and method, from the schema; and a route that nobody put into the table."""

from __future__ import annotations

import json
import logging
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from anyio import CapacityLimiter, to_thread
from starlette.testclient import TestClient
from starlette.types import ASGIApp

import merit.service
from merit.core.errors import DamagedArtifact
from merit.service import app, keys
from merit.service.auth import AuthMiddleware, RateLimiter
from merit.service.middleware import HEADERS, RequestMiddleware, log
from merit.service.routes import ROUTES, SCOPE_OF
from merit.service.service import Service, opened

METHODS = ("get", "post", "put", "patch", "delete", "options", "head")
OPEN = {"/health", "/ready"}


def operations(ask: Any) -> list[tuple[str, str, str]]:
    """method, path with its parts filled in, scope: as the schema tells."""
    told = ask("read").get("/v1/openapi.json").json()
    return [
        (method, path.replace("{user_id}", "u1").replace("{number}", "1"), operation["x-scope"])
        for path, methods in told["paths"].items()
        for method, operation in methods.items()
    ]


def test_the_schema_knows_every_route_of_the_table(ask: Any) -> None:
    assert len(operations(ask)) == len(ROUTES) == len(SCOPE_OF)
    assert {path for method, path, scope in operations(ask) if scope == "public"} == OPEN


def test_without_a_key_every_method_of_every_route_is_refused(ask: Any, stranger: TestClient) -> None:
    paths = {path for _, path, scope in operations(ask) if scope != "public"}
    for path in paths:
        for method in METHODS:
            answer = stranger.request(method, path)
            assert answer.status_code == 401, (method, path)
            assert answer.headers["www-authenticate"].startswith("Bearer")


@pytest.mark.parametrize("header", ["Bearer", "Bearer x", "Basic abc", "Bearer merit_000000000000_abc", "merit_a_b"])
def test_a_wrong_key_is_no_key(stranger: TestClient, header: str) -> None:
    answer = stranger.get("/v1/model", headers={"Authorization": header})
    assert answer.status_code == 401 and answer.headers["content-type"] == "application/problem+json"


def test_with_every_other_scope_every_route_is_refused(ask: Any) -> None:
    for method, path, scope in operations(ask):
        if scope != "public":
            others = tuple(each for each in keys.SCOPES if each != scope)
            answer = ask(*others).request(method, path)
            assert answer.status_code == 403 and scope in answer.json()["remedy"], (method, path)


def test_with_its_scope_alone_every_route_lets_pass(ask: Any) -> None:
    for method, path, scope in operations(ask):
        if scope not in ("public", "admin"):
            assert ask(scope).request(method, path).status_code not in (401, 403), (method, path)


def test_other_methods_are_refused_and_the_right_ones_named(ask: Any) -> None:
    answer = ask("read").delete("/v1/score")
    assert answer.status_code == 405 and answer.headers["allow"] == "POST"


@pytest.mark.parametrize("path", ["/v1/new", "/new"])
def test_a_new_route_is_closed_until_it_is_in_the_table(service: Service, secret: Any, path: str) -> None:
    api = app.routed(service)
    api.add_api_route(path, lambda: {"open": True})
    api.router.routes.insert(0, api.router.routes.pop())  # before the pages, as a new route would be
    auth = AuthMiddleware(api, api, SCOPE_OF, service.keys, RateLimiter(100, 100))
    client = TestClient(RequestMiddleware(auth, service.metrics))
    assert client.get(path).status_code == 401
    known = {"Authorization": f"Bearer {secret(*keys.SCOPES)}"}
    assert client.get(path, headers=known).status_code == 403
    assert "open" not in client.get(path, headers=known).text


def test_unknown_addresses_under_v1_tell_strangers_nothing(stranger: TestClient, ask: Any) -> None:
    assert stranger.get("/v1/whatever").status_code == 401
    assert ask("read").get("/v1/whatever").status_code == 404


def test_a_key_is_revoked_while_the_service_runs(service: Service, state: Any, stranger: TestClient) -> None:
    key, secret = keys.create(state / keys.FILE, "short-lived", ["read"])
    headers = {"Authorization": f"Bearer {secret}"}
    assert stranger.get("/v1/model", headers=headers).status_code == 200
    keys.revoke(state / keys.FILE, key.id)
    assert stranger.get("/v1/model", headers=headers).status_code == 401


@pytest.mark.parametrize("content", [b"{", b"[]", b"\xff", b"[" * 100_000, b'{"keys": [{}]}', None])
def test_damaged_keys_are_one_message_at_the_start_and_503_later(
    content: bytes | None, made: Path, tmp_path: Path
) -> None:
    file = tmp_path / keys.FILE
    _, secret = keys.create(file, "mine", ["read"])
    whole, headers = file.read_bytes(), {"Authorization": f"Bearer {secret}"}
    with opened(made, tmp_path, verify=False) as running:
        client = TestClient(app.make(running))
        assert client.get("/v1/model", headers=headers).status_code == 200
        file.unlink()
        if content is None:
            file.mkdir()
        else:
            file.write_bytes(content)
        answer = client.get("/v1/model", headers=headers)
        assert answer.status_code == 503 and answer.headers["retry-after"] == "30" and str(file) not in answer.text
        assert client.get("/health").status_code == 200
        if content is None:
            return
        file.write_bytes(whole)
        assert client.get("/v1/model", headers=headers).status_code == 200
    file.write_bytes(content)
    with pytest.raises(DamagedArtifact, match="Remove it, and make new keys"), opened(made, tmp_path, verify=False):
        pass


def test_who_asks_too_often_is_told_how_long_to_wait(service: Service, secret: Any) -> None:
    api = app.routed(service)
    now = [0.0]
    limiter = RateLimiter(rate=0.5, burst=2, clock=lambda: now[0])
    auth = AuthMiddleware(api, api, SCOPE_OF, service.keys, limiter)
    client = TestClient(RequestMiddleware(auth, service.metrics))
    one, two = ({"Authorization": f"Bearer {secret(scope)}"} for scope in ("read", "audience"))
    assert [client.get("/v1/model", headers=one).status_code for _ in range(3)] == [200, 200, 429]
    answer = client.get("/v1/model", headers=one)
    assert answer.headers["retry-after"] == "2"
    assert client.get("/v1/audience/jobs", headers=two).status_code == 200  # another key, another bucket
    now[0] += 2
    assert client.get("/v1/model", headers=one).status_code == 200


def test_guessing_is_slowed_down(service: Service) -> None:
    api = app.routed(service)
    auth = AuthMiddleware(api, api, SCOPE_OF, service.keys, RateLimiter(0.01, 3))
    client = TestClient(RequestMiddleware(auth, service.metrics))
    guesses = [client.get("/v1/model", headers={"Authorization": f"Bearer merit_a_{n}"}).status_code for n in range(5)]
    assert guesses == [401, 401, 401, 429, 429]


# --- what is told besides --------------------------------------------------------------------------------------------


def test_every_answer_has_strict_headers_and_a_number(ask: Any, stranger: TestClient) -> None:
    answers = [stranger.get("/"), stranger.get("/vega.js"), stranger.get("/v1/model"), ask("read").get("/v1/model")]
    answers += [stranger.get("/nowhere"), stranger.get("/v1/docs")]
    for answer in answers:
        assert answer.headers["content-security-policy"] == HEADERS["Content-Security-Policy"]
        assert answer.headers["x-content-type-options"] == "nosniff" and answer.headers["x-request-id"]
    assert "unsafe" not in HEADERS["Content-Security-Policy"] and "*" not in HEADERS["Content-Security-Policy"]
    assert answers[0].headers["cache-control"] == "no-cache"
    assert "max-age" in answers[1].headers["cache-control"]
    assert answers[3].headers["cache-control"] == "no-store"


def test_pages_ask_nobody_else_and_hold_nothing_inline(stranger: TestClient) -> None:
    studio = Path(merit.service.__file__).parent / "studio"
    files = [f"/{file.relative_to(studio)}" for file in studio.rglob("*") if file.suffix in (".html", ".js", ".css")]
    assert "/app.js" in files
    for path in ("/", "/v1/docs", *files):
        answer = stranger.get(path)
        text = answer.text
        assert answer.headers["cache-control"] in ("no-cache", "no-store")
        assert "http://" not in text and "https://" not in text and "//cdn" not in text
        assert " style=" not in text and "onclick=" not in text and "<style" not in text
        assert "<script>" not in text and "innerHTML" not in text and "eval(" not in text


@pytest.mark.parametrize("path", ["/../keys.json", "/%2e%2e/app.py", "/..%2f..%2fapp.py", "/.env", "//etc/passwd"])
def test_pages_lead_nowhere_else(stranger: TestClient, path: str) -> None:
    answer = stranger.get(path)
    assert answer.status_code == 404 and answer.json()["request_id"]


def test_the_log_knows_routes_and_keys_and_no_people(
    ask: Any, model: Any, secret: Any, caplog: pytest.LogCaptureFixture
) -> None:
    user = model.users["user_id"][0]
    with caplog.at_level(logging.INFO, log.name):
        ask("read").get(f"/v1/users/{user}/interests?k=3")
        ask("read").post("/v1/interest", json={"text": "qqq zzz www"})
        ask("read").get("/v1/users/nobody-at-all/verticals")
        ask("read").get("/v1/labels?q=secretword")
    lines = [record.fields for record in caplog.records if record.name == log.name]  # type: ignore[attr-defined]
    assert [line["route"] for line in lines] == [
        "/v1/users/{user_id:path}/interests",
        "/v1/interest",
        "/v1/users/{user_id:path}/verticals",
        "/v1/labels",
    ]
    assert [line["status"] for line in lines] == [200, 200, 404, 200]
    told = json.dumps(lines)
    assert all(line["key"] == secret("read").split("_")[1] for line in lines)
    for word in (user, "qqq", "nobody-at-all", "secretword", secret("read")):
        assert word not in told


def test_a_given_request_id_is_kept_if_it_is_harmless(stranger: TestClient) -> None:
    assert stranger.get("/health", headers={"X-Request-Id": "abc-1"}).headers["x-request-id"] == "abc-1"
    assert stranger.get("/health", headers={"X-Request-Id": 'a"\tb'}).headers["x-request-id"] != 'a"\tb'


def test_metrics_name_routes_by_template(ask: Any, model: Any) -> None:
    user = model.users["user_id"][0]
    ask("read").get(f"/v1/users/{user}/interests")
    text = ask("read").get("/metrics").text
    assert 'route="/v1/users/{user_id:path}/interests",status="200"' in text and user not in text
    assert 'merit_jobs{state="RUNNING"}' in text


def test_what_nobody_expected_is_a_problem_without_a_trace(
    ask: Any, service: Service, monkeypatch: pytest.MonkeyPatch, model: Any
) -> None:
    def broken(*_: object, **__: object) -> None:
        raise RuntimeError("a secret of the inside")

    monkeypatch.setattr(service.store.current.model, "verticals", broken)
    answer = ask("read").get(f"/v1/users/{model.users['user_id'][0]}/verticals")
    assert answer.status_code == 500 and answer.headers["content-type"] == "application/problem+json"
    assert "secret" not in answer.text and "Traceback" not in answer.text and answer.json()["request_id"]


async def _limiter() -> CapacityLimiter:
    return to_thread.current_default_thread_limiter()


def test_health_is_told_while_all_threads_are_busy(guarded: ASGIApp) -> None:
    with TestClient(guarded) as client, ThreadPoolExecutor(1) as pool:
        assert client.portal
        limiter = client.portal.call(_limiter)
        busy = [object() for _ in range(int(limiter.total_tokens))]
        for each in busy:
            client.portal.call(limiter.acquire_on_behalf_of_nowait, each)
        try:
            assert pool.submit(client.get, "/health").result(timeout=60).status_code == 200
        finally:
            for each in busy:
                client.portal.call(limiter.release_on_behalf_of, each)
