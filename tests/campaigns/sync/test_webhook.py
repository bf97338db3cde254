"""A receiver on loopback that fails, hangs and answers twice gets every batch once."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import polars as pl
import pytest

from merit.campaigns.sync.destination import Webhook
from merit.campaigns.sync.rows import Outgoing, SyncCounts
from merit.campaigns.sync.sync import deliver
from merit.core.errors import ConfigError, DestinationError

SECRET = "hooks-s3cret-path"


@dataclass
class Receiver:
    """A mirror as docs/warehouse.md tells receivers to keep it, and what it was sent."""

    behaviours: list[str] = field(default_factory=list)
    """For the next requests; then all is well."""
    keys: list[str] = field(default_factory=list)
    bodies: dict[str, Any] = field(default_factory=dict)
    headers: list[dict[str, str]] = field(default_factory=list)
    rows: dict[tuple[str, str], tuple[str, str]] = field(default_factory=dict)
    url: str = ""

    def take(self, key: str, raw: bytes) -> None:
        self.keys.append(key)
        if key in self.bodies:
            assert self.bodies[key] == raw  # the same key, the same bytes
            return
        self.bodies[key], body = raw, json.loads(raw)
        for row in body["rows"]:
            self.rows[row["audience"], row["external_id"]] = (row["payload"], body["delivery"])
        if body["batch"] == body["batches"] and body["mode"] == "mirror":
            for name, (_, delivery) in list(self.rows.items()):
                if name[0] == body["audience"] and delivery != body["delivery"]:
                    del self.rows[name]

    def of(self, audience: str) -> set[str]:
        return {user for name, user in self.rows if name == audience}


def users(numbers: range) -> set[str]:
    return {f"u{number}" for number in numbers}


@pytest.fixture
def receiver(monkeypatch: pytest.MonkeyPatch) -> Iterator[Receiver]:
    state, lock = Receiver(), threading.Lock()

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_POST(self) -> None:
            raw = self.rfile.read(int(self.headers["Content-Length"]))
            with lock:
                behaviour = state.behaviours.pop(0) if state.behaviours else "well"
                state.headers.append(dict(self.headers) | {"path": self.path})
                if behaviour != "fail":
                    state.take(self.headers["Idempotency-Key"], raw)
            if behaviour == "hang":  # the batch is taken, and the answer comes too late
                time.sleep(0.6)
            if behaviour == "drop":
                self.connection.close()
                return
            status = {"fail": 503, "gone": 410}.get(behaviour, 200)
            answer = f"HTTP/1.1 {status} .\r\nContent-Length: 0\r\nRetry-After: 0\r\n\r\n".encode()
            self.wfile.write(answer * (2 if behaviour == "twice" else 1))

        def log_message(self, *_: object) -> None:
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        server.daemon_threads = True
        threading.Thread(target=server.serve_forever, daemon=True).start()
        state.url = f"http://127.0.0.1:{server.server_port}/{SECRET}?q={SECRET}"
        monkeypatch.setenv("CRM_URL", state.url)
        monkeypatch.setenv("CRM_TOKEN", "t0ken-s3cret")
        yield state
        server.shutdown()


def webhook(**more: Any) -> Webhook:
    values = {"kind": "webhook", "address": "CRM_URL", "token": "CRM_TOKEN", "batch": 10, "timeout": 0.3, "wait": 0.01}
    return Webhook.model_validate(values | more)


def send(to: Webhook, users: range, folder: Path, mode: Any = "mirror", payload: str = "{}") -> SyncCounts:
    rows = pl.DataFrame({"external_id": [f"u{number}" for number in users], "payload": [payload] * len(users)})
    return deliver(Outgoing("Spring", iter([rows]), folder / "spring"), to, mode, lambda counts: True)


def test_a_receiver_that_fails_hangs_and_answers_twice_gets_each_batch_once(receiver: Receiver, tmp_path: Path) -> None:
    receiver.behaviours = ["fail", "hang", "well", "twice", "drop", "fail", "fail", "twice", "hang"]
    assert send(webhook(), range(95), tmp_path) == SyncCounts(added=95, updated=0, removed=0, unchanged=0)
    assert len(receiver.bodies) == 10 and len(receiver.keys) > 10
    sent = [row["external_id"] for raw in receiver.bodies.values() for row in json.loads(raw)["rows"]]
    assert sorted(sent) == sorted(users(range(95)))  # each user in one batch
    assert [json.loads(raw)["batch"] for raw in receiver.bodies.values()] == list(range(1, 11))
    assert all(head["Authorization"] == "Bearer t0ken-s3cret" for head in receiver.headers)
    requests = len(receiver.keys)
    assert send(webhook(), range(95), tmp_path) == SyncCounts(added=0, updated=0, removed=0, unchanged=95)
    assert len(receiver.keys) == requests


def test_the_next_run_sends_what_was_not_acknowledged(receiver: Receiver, tmp_path: Path) -> None:
    receiver.behaviours = ["well", "well", "hang", "gone"]  # the third is taken, and nobody hears of it
    with pytest.raises(DestinationError, match=r"answered 410.*the rest is sent") as caught:
        send(webhook(attempts=3), range(50), tmp_path)
    assert SECRET not in str(caught.value) and "t0ken" not in str(caught.value)
    assert send(webhook(), range(50), tmp_path) == SyncCounts(added=30, updated=0, removed=0, unchanged=20)
    assert len(receiver.bodies) == 5 and len(receiver.rows) == 50
    record = next(tmp_path.glob(".spring.sync-*.json")).read_text()
    assert SECRET not in record and "t0ken" not in record and "u1" not in record


def test_a_mirror_forgets_leavers_without_their_names(receiver: Receiver, tmp_path: Path) -> None:
    send(webhook(), range(30), tmp_path)
    receiver.rows["Other", "u1"] = ("{}", "another")
    send(webhook(), range(5, 40), tmp_path)
    assert receiver.of("Spring") == users(range(5, 40))
    assert not any(b'"u3"' in raw for raw in list(receiver.bodies.values())[3:])
    send(webhook(), range(30), tmp_path)  # as at first, and yet another delivery: its keys are new
    assert len(receiver.rows) == 31 and len(receiver.bodies) == len(receiver.keys)
    send(webhook(), range(0), tmp_path)
    assert list(receiver.rows) == [("Other", "u1")]


def test_bad_addresses_are_one_message(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(ConfigError, match="CRM_URL is not set"):
        send(webhook(), range(1), tmp_path)
    monkeypatch.setenv("CRM_TOKEN", "t0ken")
    for url, kind in {
        "ftp://example.org/s3cret": ConfigError,
        "http://[::1": ConfigError,
        "http://127.0.0.1:99999/s3cret": ConfigError,
        "http://127.0.0.1/s3cret with a gap": ConfigError,
        "http://127.0.0.1:1/s3cret": DestinationError,
    }.items():
        monkeypatch.setenv("CRM_URL", url)
        with pytest.raises(kind, match="CRM_URL") as caught:
            send(webhook(attempts=2), range(1), tmp_path)
        assert "s3cret" not in str(caught.value)


CHILD = """
import sys
from pathlib import Path
import polars as pl
from merit.campaigns.sync.destination import Webhook
from merit.campaigns.sync.rows import Outgoing
from merit.campaigns.sync.webhook import deliver
to = Webhook.model_validate_json(sys.argv[1])
rows = pl.DataFrame({"external_id": [f"u{n}" for n in range(60)], "payload": ["{}"] * 60})
deliver(Outgoing("Spring", iter([rows]), Path(sys.argv[2]) / "spring"), to, "mirror", lambda counts: True)
"""


def test_killed_at_any_moment_each_batch_arrives_once(receiver: Receiver, tmp_path: Path) -> None:
    to = webhook(batch=2, timeout=5.0)
    for batches in (3, 11):  # killed when so many have arrived
        child = subprocess.Popen(
            [sys.executable, "-c", CHILD, to.model_dump_json(), str(tmp_path)], stdout=subprocess.PIPE
        )
        while len(receiver.bodies) < batches:
            assert child.poll() is None
            time.sleep(0.001)
        os.kill(child.pid, signal.SIGKILL)
        child.wait()
    send(to, range(60), tmp_path)
    assert len(receiver.bodies) == 30 and len({json.loads(raw)["delivery"] for raw in receiver.bodies.values()}) == 1
    assert len(receiver.keys) <= 30 + 2 and receiver.of("Spring") == users(range(60))
