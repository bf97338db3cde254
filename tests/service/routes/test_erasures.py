"""Erasing users over HTTP: hidden before the answer comes, in every route; purged behind it; certified."""

from __future__ import annotations

import shutil
import socket
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import polars as pl
import pytest
import uvicorn
from starlette.testclient import TestClient

from merit.core import artifacts, files
from merit.privacy import audit
from merit.privacy.erasure import erase, search
from merit.service import app, erasures, keys
from merit.service.client import Client
from merit.service.request_limits import Limits
from merit.service.service import Service, opened
from tests.service.test_answers import finished
from tests.service.test_jobs import FullDisk


class Opened:
    """A service of its own over a copy of the run, which may be spoilt."""

    def __init__(self, run: Path, state: Path) -> None:
        self.run, self.state = run, state
        self.secrets = {scope: keys.create(state / keys.FILE, scope, [scope])[1] for scope in keys.SCOPES}
        self._stack = ExitStack()
        self.start()

    def start(self) -> None:
        limits = Limits(rate=10_000, burst=100_000, seconds=300)
        self.service: Service = self._stack.enter_context(opened(self.run, self.state, limits=limits, verify=False))
        self._app = app.make(self.service)

    def stop(self) -> None:
        self._stack.close()

    def ask(self, scope: str) -> TestClient:
        return TestClient(self._app, headers={"Authorization": f"Bearer {self.secrets[scope]}"})

    def done(self, job: dict[str, Any]) -> dict[str, Any]:
        for _ in range(1200):
            job = self.ask("erase").get(f"/v1/erasures/{job['id']}").json()
            if job["state"] in ("DONE", "FAILED"):
                return job
            time.sleep(0.05)
        raise AssertionError("it never came")


@pytest.fixture
def own(made: Path, tmp_path: Path) -> Iterator[Opened]:
    shutil.copytree(made, tmp_path / "run")
    service = Opened(tmp_path / "run", tmp_path / "state")
    yield service
    service.stop()


def about(service: Opened, user: str, text: str) -> dict[str, int]:
    """The status of every question about a user."""
    ask = service.ask("read")
    names = ("interests", "verticals", "regions", "history")
    answers = {name: ask.get(f"/v1/users/{user}/{name}") for name in names}
    answers["score"] = ask.post("/v1/score", json={"users": [user], "interests": [text]})
    answers["pairs"] = ask.post("/v1/score-pairs", json={"pairs": [{"user_id": user, "interest": text}]})
    return {name: answer.status_code for name, answer in answers.items()}


UNKNOWN = {"interests": 404, "verticals": 404, "regions": 404, "history": 404, "score": 422, "pairs": 422}


def test_from_the_request_to_the_certificate(own: Opened, model: Any, wanted: dict[str, Any]) -> None:
    user, other = model.users["user_id"][:2].to_list()
    text = model.labels.texts[0]
    asked = wanted | {"size": {"by": "percentile", "percent": 100}}
    saved = finished(own.ask("audience"), own.ask("audience").post("/v1/audience/jobs", json=asked).json())
    place = own.state / "jobs" / saved["id"] / "audience/members.parquet"
    assert user in pl.read_parquet(place)["user_id"]
    assert set(about(own, user, text).values()) == {200}
    others = own.ask("read").get(f"/v1/users/{other}/history").json()
    version = others.pop("model")

    body = {"users": [user], "reason": "request 17"}
    answer = own.ask("erase").post("/v1/erasures", json=body, headers={"Idempotency-Key": "one"})
    assert answer.status_code == 202 and user not in answer.text
    assert about(own, user, text) == UNKNOWN  # from the next request on, however far the purge is
    asked = {"user_id": user, "interest": text}
    assert own.ask("read").post("/v1/explain", json=asked).status_code == 404
    told = own.done(answer.json())
    assert told["state"] == "DONE" and told["certificate"]["search"]["held"] == []
    assert answer.headers["location"] == f"/v1/erasures/{told['id']}"
    assert about(own, user, text) == UNKNOWN

    again = own.ask("read").get(f"/v1/users/{other}/history").json()
    assert again.pop("model") == f"{version}-1" and again == others
    assert user not in pl.read_parquet(place)["user_id"]
    paths = {each["path"] for each in told["certificate"]["artifacts"]}
    assert {f"jobs/{saved['id']}/audience", "../run/model", "../run/examples"} <= paths
    assert not search.search([own.run, own.state], search.patterns([user])).held
    one = own.ask("erase").post("/v1/erasures", json=body, headers={"Idempotency-Key": "one"})
    assert one.json()["id"] == told["id"]
    clash = own.ask("erase").post("/v1/erasures", json={"users": [other]}, headers={"Idempotency-Key": "one"})
    assert clash.status_code == 422 and other in own.service.store.current.model.users["user_id"]
    events = [entry.event for entry in audit.read(own.state)]
    assert events == ["key created"] * len(keys.SCOPES) + ["erasure"]


def test_another_process_hides_from_a_running_service(own: Opened, model: Any, wanted: dict[str, Any]) -> None:
    user, other = model.users["user_id"].gather([7, 8]).to_list()
    text = model.labels.texts[0]
    asked = wanted | {"size": {"by": "percentile", "percent": 100}}
    saved = finished(own.ask("audience"), own.ask("audience").post("/v1/audience/jobs", json=asked).json())
    with erase.begin([own.run, own.state], [user]):
        assert about(own, user, text) == UNKNOWN and set(about(own, other, text).values()) == {200}
        sent = own.ask("export").get(f"/v1/audience/jobs/{saved['id']}/export", params={"form": "csv"})
        assert sent.status_code in (200, 404)  # another key's job
        preview = own.ask("audience").post("/v1/audience/preview", json=asked).json()
        assert preview["members"] == preview["eligible"] == len(model.users) - 1
    erase.finish([own.run, own.state])
    assert about(own, user, text) == UNKNOWN and set(about(own, other, text).values()) == {200}
    assert own.ask("read").get("/v1/model").json()["users"] == len(model.users) - 1


def test_unknown_users_fail_and_one_at_a_time(own: Opened, model: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    ask = own.ask("erase")
    first = ask.post("/v1/erasures", json={"users": ["nobody-at-all"]}).json()
    told = own.done(first)
    assert told["state"] == "FAILED" and "nowhere" in told["reason"] and str(own.state) not in told["reason"]
    assert "nobody-at-all" not in told["reason"]
    user, other = model.users["user_id"][:2].to_list()
    with erase.begin([own.run], [user]):  # the command line is at work
        busy = ask.post("/v1/erasures", json={"users": [other]})
        assert busy.status_code == 409 and busy.headers["content-type"] == "application/problem+json"
    erase.finish([own.run])
    assert own.done(ask.post("/v1/erasures", json={"users": [other]}).json())["state"] == "DONE"
    assert ask.get("/v1/erasures/0").status_code == 404
    assert own.ask("read").post("/v1/erasures", json={"users": [other]}).status_code == 403
    for body in ({"users": []}, {"users": [""]}, {"users": ["a"], "all": True}, {"users": [other], "reason": other}):
        answer = ask.post("/v1/erasures", json=body)
        assert answer.status_code == 422 and answer.headers["content-type"] == "application/problem+json"


def test_what_was_killed_is_finished_by_the_next_start(own: Opened, model: Any) -> None:
    user = model.users["user_id"][0]
    own.service.jobs.close()  # as if the process ended right after its answer
    assert own.ask("erase").post("/v1/erasures", json={"users": [user]}).status_code == 500
    own.stop()
    assert user in pl.read_parquet(own.run / "model/users.parquet")["user_id"]
    own.start()
    [job] = own.service.erasures.records.values()
    told = own.done(job.model_dump())
    assert told["state"] == "DONE" and told["certificate"]["found"] == 1
    assert user not in pl.read_parquet(own.run / "model/users.parquet")["user_id"]
    assert artifacts.load(own.run / "model").manifest.erased[0].number == told["id"]


def test_an_erasure_that_cannot_be_stored_is_refused_and_leaves_nothing(
    own: Opened, model: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    user, disk = model.users["user_id"][0], FullDisk("PENDING")
    monkeypatch.setattr(files, "write", disk)
    answer = own.ask("erase").post("/v1/erasures", json={"users": [user]})
    assert answer.status_code == 409 and "disk is full" in answer.json()["detail"]
    assert not [*own.run.rglob(".eras*.json"), *own.state.rglob(".eras*.json"), *own.state.rglob("erasures/*")]
    assert own.ask("read").get(f"/v1/users/{user}/interests").status_code == 200
    disk.full = False
    assert own.done(own.ask("erase").post("/v1/erasures", json={"users": [user]}).json())["state"] == "DONE"


@pytest.mark.parametrize("state", ["RUNNING", "purged"])
def test_an_erasure_that_found_no_space_is_tried_again(
    own: Opened, model: Any, monkeypatch: pytest.MonkeyPatch, state: str
) -> None:
    user, disk = model.users["user_id"][0], FullDisk(state)
    monkeypatch.setattr(erasures, "RETRY", 0.2)
    monkeypatch.setattr(files, "write", disk)
    purge = erase.purge
    monkeypatch.setattr(erase, "purge", lambda home: disk(home / "x", '"state": "purged"') or purge(home))
    made = own.ask("erase").post("/v1/erasures", json={"users": [user]}).json()
    told = own.done(made)
    assert told["state"] == "FAILED" and "disk is full" in told["reason"]
    assert own.ask("read").get(f"/v1/users/{user}/interests").status_code == 404  # hidden all the same
    disk.full = False
    for _ in range(200):
        if (told := own.done(made))["state"] == "DONE":
            break
        time.sleep(0.05)
    assert told["certificate"]["found"] == 1 and own.service.erasures.folder.joinpath(f"{told['id']}.json").exists()


def test_exports_of_the_service_are_in_the_log(own: Opened, model: Any, wanted: dict[str, Any]) -> None:
    key, secret = keys.create(own.state / keys.FILE, "all", ["audience", "export"])
    client = TestClient(own._app, headers={"Authorization": f"Bearer {secret}"})
    job = finished(client, client.post("/v1/audience/jobs", json=wanted).json())
    sent = client.get(f"/v1/audience/jobs/{job['id']}/export", params={"form": "csv"})
    entry = audit.read(own.state)[-1]
    assert entry.event == "export" and entry.details["key"] == key.id and entry.details["audience"] == job["hash"]
    assert entry.details["sha256"] == sent.headers["x-content-sha256"] and entry.details["rows"] == job["members"]
    keys.revoke(own.state / keys.FILE, key.id)
    assert audit.read(own.state)[-1].details == {"key": key.id}


def test_an_erasure_of_another_key_is_not_there(own: Opened, model: Any) -> None:
    made = own.ask("erase").post("/v1/erasures", json={"users": model.users["user_id"][:1].to_list()})
    place = made.headers["location"]
    _, other = keys.create(own.state / keys.FILE, "another", ["erase"])
    _, admin = keys.create(own.state / keys.FILE, "operator", ["erase", "admin"])
    for secret, status in ((own.secrets["erase"], 200), (other, 404), (admin, 200)):
        client = TestClient(own._app, headers={"Authorization": f"Bearer {secret}"})
        assert client.get(place).status_code == status
    assert "owner" not in made.json() and "idempotency" not in made.json()
    assert own.done(made.json())["state"] == "DONE"


def test_the_client_erases(own: Opened, model: Any) -> None:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    server = uvicorn.Server(uvicorn.Config(own._app, port=port, log_config=None))
    thread = threading.Thread(target=server.run)
    thread.start()
    try:
        while not server.started:
            time.sleep(0.05)
        client = Client(f"http://127.0.0.1:{port}", own.secrets["erase"])
        told = client.erase(model.users["user_id"][:1].to_list(), reason="request 17")
        assert told.state == "PENDING" and own.done({"id": told.id})["state"] == "DONE"
        certificate = client.erasure(told.id).certificate
        assert certificate and certificate.clean and certificate.found == 1
    finally:
        server.should_exit = True
        thread.join()
