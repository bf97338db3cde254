"""A proxy says who somebody is; nobody else can."""

from __future__ import annotations

import json
import socket
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from threading import Thread
from typing import Any
from urllib.error import HTTPError
from urllib.request import Request, urlopen

import pytest
import uvicorn
from starlette.testclient import TestClient

from merit.core import config
from merit.core.errors import ConfigError
from merit.service import app, keys
from merit.service.middleware import log
from merit.service.people import People, TrustedProxy
from merit.service.server import over
from merit.service.service import Service

PROXY = "10.0.0.5"
ANA = {"X-Forwarded-Email": "ana@example.org", "X-Forwarded-Groups": "staff, marketing"}
SETTINGS = {
    "addresses": [PROXY, "fd00::/64"],
    "scopes": {"marketing": ["audience", "read"], "*": [], "ops": ["admin"]},
    "people": {"root@example.org": ["read", "admin"]},
}


@pytest.fixture
def through(service: Service, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., TestClient]:
    """A client whose connection comes from an address."""
    monkeypatch.setattr(service, "people", People(config.build(TrustedProxy, SETTINGS), tmp_path))
    guarded = app.make(service)
    return lambda address=PROXY, **headers: TestClient(guarded, client=(address, 5000), headers=headers)


def test_a_person_gets_the_scopes_of_their_groups(through: Any) -> None:
    known = through().get("/v1/key", headers=ANA).json()
    assert known["scopes"] == ["read", "audience"] and known["name"] == "ana@example.org"
    assert known["id"].startswith("person-") and "ana" not in known["id"]
    assert through().get("/v1/key", headers=ANA).json()["id"] == known["id"]  # her jobs stay hers
    refused = through().post("/v1/admin/reload", headers=ANA)
    assert refused.status_code == 403 and "'admin' is needed" in refused.text
    root = {"X-Forwarded-Email": "root@example.org"}
    assert through("::ffff:10.0.0.5").get("/v1/key", headers=root).json()["scopes"] == ["read", "admin"]
    assert through("fd00::7").get("/v1/key", headers=ANA).status_code == 200
    nobody = through().get("/v1/key", headers=ANA | {"X-Forwarded-Groups": "staff"})
    assert nobody.status_code == 403 and "none of your groups" in nobody.text
    named_as_a_group = {"X-Forwarded-Email": "ops", "X-Forwarded-Groups": ""}
    assert through().get("/v1/key", headers=named_as_a_group).status_code == 403


@pytest.mark.parametrize("address", ["10.0.0.6", "127.0.0.1", "fd01::7", "testclient"])
def test_headers_from_elsewhere_are_not_believed(through: Any, address: str) -> None:
    forged = ANA | {"X-Forwarded-For": PROXY, "X-Real-Ip": PROXY, "Forwarded": f"for={PROXY}"}
    refused = through(address).get("/v1/key", headers=forged)
    assert refused.status_code == 401 and "No API key was sent" in refused.text


def test_the_address_is_that_of_the_connection_and_of_no_header(service: Service, through: Any) -> None:
    """As uvicorn runs it: it would believe `X-Forwarded-For` from this machine."""
    server, place = uvicorn.Server(over(service)), socket.create_server(("127.0.0.1", 0))
    thread = Thread(target=server.run, kwargs={"sockets": [place]}, daemon=True)
    thread.start()
    try:
        request = Request(f"http://127.0.0.1:{place.getsockname()[1]}/v1/key", headers=ANA | {"X-Forwarded-For": PROXY})
        with pytest.raises(HTTPError, match="401"):
            urlopen(request, timeout=30)
    finally:
        server.should_exit = True
        thread.join()


def test_without_the_setting_nobody_is_believed(service: Service) -> None:
    assert service.people is None
    client = TestClient(app.make(service), client=(PROXY, 5000))
    assert client.get("/v1/key", headers=ANA).status_code == 401


def test_two_names_or_none_are_refused(through: Any) -> None:
    twice = [*ANA.items(), ("X-Forwarded-Email", "root@example.org")]
    assert through().get("/v1/key", headers=twice).status_code == 401
    for name in ("", " ", "\x00a", "a" * 300):
        assert through().get("/v1/key", headers=ANA | {"X-Forwarded-Email": name}).status_code == 401


def test_a_key_goes_before_a_person_and_a_token_of_the_proxy_is_none(through: Any, secret: Any) -> None:
    key = {"Authorization": f"Bearer {secret('read')}"}
    assert through().get("/v1/key", headers=ANA | key).json()["scopes"] == ["read"]
    assert through().get("/v1/key", headers=ANA | {"Authorization": "Bearer eyJhbGciOi.x.y"}).status_code == 200
    assert through().get("/v1/key", headers=ANA | {"Authorization": "Bearer merit_x_y"}).status_code == 401


def test_another_site_cannot_use_somebody_who_is_signed_in(through: Any) -> None:
    root = {"X-Forwarded-Email": "root@example.org"}
    for site, status in (("cross-site", 403), ("same-site", 403), ("same-origin", 200)):
        assert through().post("/v1/admin/reload", headers=root | {"Sec-Fetch-Site": site}).status_code == status


def test_the_log_has_no_name(through: Any, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(log, "propagate", True)
    with caplog.at_level("INFO", logger=log.name):
        through().get("/v1/key", headers=ANA)
    fields = [getattr(record, "fields", {}) for record in caplog.records]
    assert any(str(line.get("key")).startswith("person-") for line in fields) and "ana@" not in json.dumps(fields)


def test_settings_that_do_not_fit_are_refused() -> None:
    for wrong in ({"addresses": []}, {"addresses": ["proxy.example"]}, {"scopes": {"a": ["write"]}}):
        with pytest.raises(ConfigError):
            config.build(TrustedProxy, SETTINGS | wrong)


def test_an_expired_key_is_told_so(service: Service, monkeypatch: pytest.MonkeyPatch) -> None:
    key, secret = keys.create(service.state / keys.FILE, "short", ["read"], days=1)
    client = TestClient(app.make(service), headers={"Authorization": f"Bearer {secret}"})
    assert client.get("/v1/key").status_code == 200
    later = (datetime.now(UTC) + timedelta(days=2)).isoformat(timespec="seconds")
    monkeypatch.setattr(keys, "now", lambda: later)
    refused = client.get("/v1/key")
    assert refused.status_code == 401 and refused.headers["www-authenticate"].startswith("Bearer")
    assert "expired at" in refused.json()["detail"] and f"merit keys rotate {key.id}" in refused.json()["remedy"]
