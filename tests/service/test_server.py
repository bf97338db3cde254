"""A real process on a real port: it starts, answers the client, reloads under load, and survives being killed."""

from __future__ import annotations

import json
import os
import re
import signal
import socket
import subprocess
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from datetime import date
from pathlib import Path
from typing import Any
from urllib.error import URLError
from urllib.request import urlopen

import polars as pl
import pytest

from merit.core import artifacts, console
from merit.core.errors import DataError, MissingArtifact
from merit.labels.build import change_labels
from merit.service import keys, server
from merit.service.client import Client, ServiceError
from merit.service.openapi import EXAMPLES
from merit.service.routes import ROUTES
from merit.service.service import opened
from tests import processes
from tests.conftest import Command

PATIENCE = 300  # seconds, for machines that have other things to do
Start = Callable[..., tuple[processes.Child, Client]]


@pytest.fixture
def serve(made: Path, tmp_path: Path) -> Iterator[Start]:
    """`merit serve` in a child, ready to answer, with a client that may do everything, with one key at every start."""
    running: list[processes.Child] = []
    _, secret = keys.create(tmp_path / "state" / keys.FILE, "test", keys.SCOPES)

    def start(*words: str) -> tuple[processes.Child, Client]:
        port, state, log = free_port(), tmp_path / "state", tmp_path / "log"
        command = ["serve", made, "--set", f"seconds={PATIENCE}", "--port", port, "--state", state, *words]
        child = processes.merit(*command, folder=tmp_path, out=log, err=log)
        running.append(child)
        end = time.monotonic() + PATIENCE
        while time.monotonic() < end:
            try:
                urlopen(f"http://127.0.0.1:{port}/ready", timeout=2).close()
                return child, Client(f"http://127.0.0.1:{port}", secret, PATIENCE)
            except (URLError, ConnectionError):
                assert child.poll() is None, log.read_text()
                time.sleep(0.1)
        raise AssertionError("it never was ready")

    yield start
    for child in running:
        if child.poll() is None:
            child.terminate()
            child.wait(PATIENCE)


def free_port() -> int:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port: int = free.getsockname()[1]
        return port


def test_the_demo_opens_with_a_key_that_is_written_nowhere(made: Path, tmp_path: Path, model: Any) -> None:
    place, log = tmp_path / "place", tmp_path / "log"
    (place / "runs").mkdir(parents=True)
    (place / "runs/demo").symlink_to(made)
    command = ["serve", "--demo", "--port", free_port(), "--set", f"seconds={PATIENCE}"]
    child = processes.merit(*command, folder=place, out=log, err=log)
    try:
        _until(lambda: log.exists() and "/#key=" in log.read_text())
        url, secret = re.findall(r"Open (http://\S+)/#key=(\S+)\n", log.read_text())[0]
        client, end = Client(url, secret, PATIENCE), time.monotonic() + PATIENCE
        while time.monotonic() < end:
            try:
                facts = client.model()
                break
            except DataError:  # it says where it will be before it is there
                time.sleep(0.1)
        assert facts.users == len(model.users) and client.key().scopes == ["read", "audience", "export"]
        assert [path.name for path in place.iterdir()] == ["runs"]
    finally:
        child.terminate()
        child.wait(PATIENCE)


def test_what_is_no_model_is_told_and_leaves_nothing(tmp_path: Path) -> None:
    (tmp_path / "shop").mkdir()
    with pytest.raises(MissingArtifact, match="merit run"), opened(tmp_path / "shop", tmp_path / "state"):
        pass
    assert not (tmp_path / "state").exists()


def test_without_a_demo_the_remedy_is_named(command: Command) -> None:
    code, _, err = command("serve", "--demo")
    assert code != 0 and "make demo" in err
    code, _, err = command("serve", "--demo", "runs/shop")
    assert code != 0 and "--demo" in err


def test_the_client_has_a_word_for_every_route() -> None:
    assert {route.handler.__name__ for route in ROUTES} <= {name for name in vars(Client) if not name.startswith("_")}


def test_the_client_speaks_as_the_model_does(serve: Start, model: Any, wanted: dict[str, Any], tmp_path: Path) -> None:
    (tmp_path / "tables").mkdir()
    child, client = serve("--tables", str(tmp_path / "tables"))
    user, texts = model.users["user_id"][0], model.labels.texts[:2]
    assert client.interests(user, k=4).equals(
        model.interests(user, k=4).drop("user_id").select("rank", "interest", "probability", "vertical")
    )
    assert client.score([user], texts).equals(model.score([user], texts))
    assert client.score_pairs([user, user], texts).equals(model.score_pairs([user, user], texts))
    silent: list[dict[str, Any]] = [{"user_id": "silent", "events": []}]
    assert client.history_interests(silent, k=3).items[0].rests_on == "popularity"
    scores = client.history_scores(silent, texts)
    assert scores["interest"].to_list() == texts and scores["rests_on"].to_list() == ["popularity"] * 2
    assert client.verticals(user).equals(model.verticals(user).drop("user_id"))
    assert client.card() == model.card() and client.model().users == len(model.users)
    assert len(list(client.labels(limit=30))) == len(model.labels)
    assert client.interest("qqq zzz www").far
    assert client.preview(wanted).members == 110
    job = client.wait(client.build(wanted, idempotency="one"))
    assert client.build(wanted, idempotency="one").id == job.id == client.jobs()[0].id
    other = client.wait(client.build(wanted | {"name": "Summer"}))
    assert [each.id for each in client.jobs(limit=1)] == [other.id, job.id]  # page after page
    assert client.label(0).text == texts[0] and client.ready().version == client.model().version
    assert client.health().status == "ok" and "merit_requests_total" in client.metrics()
    _analyse(client, tmp_path)
    file = client.export(job.id, tmp_path / "send.csv")
    assert len(pl.read_csv(file)) == 110
    with pytest.raises(ServiceError, match="does not know this user") as refused:
        client.interests("nobody")
    assert refused.value.problem.status == 404
    with pytest.raises(DataError, match="does not answer"):
        Client("http://127.0.0.1:9", "x").card()
    _run_the_documentation(client, user, tmp_path)
    child.terminate()
    assert child.wait(PATIENCE) in (0, 143, -signal.SIGTERM)
    told = (tmp_path / "log").read_text()
    lines = [json.loads(line) for line in told.splitlines() if line.startswith("{")]
    assert {line["route"] for line in lines} >= {"/v1/interest", "/v1/score", "/ready"}
    for word in (user, "qqq", "nobody", "Traceback", *texts):
        assert word not in told


def _analyse(client: Client, place: Path) -> None:
    """A table of outcomes, sent and chosen on the service."""
    rows = [f"u{at},{arm},{int(at % 10 < 4)}" for at, arm in enumerate(["expert", "merit"] * 500)]
    for folder in (place, place / "tables"):
        (folder / "outcomes.csv").write_text("user_id,arm,bought\n" + "\n".join(rows))
    agreed, last = EXAMPLES["design"]["request"] | {"salt": None}, date(2027, 3, 7)
    sent = client.analyze_table(agreed, place / "outcomes.csv", until=last, assigned=1_000)
    assert [arm.users for arm in sent.arms] == [500, 500] and sent.until == last
    chosen = client.analyze_named({"design": agreed, "table": "outcomes.csv", "until": str(last), "assigned": 1_000})
    assert chosen.posterior == sent.posterior and chosen.findings == sent.findings
    with pytest.raises(DataError, match="row per assigned user"):
        client.analyze_table(agreed, place / "nowhere.csv")


def _run_the_documentation(client: Client, user: str, place: Path) -> None:
    """What docs/service.md shows does what it says."""
    page = (Path(__file__).parents[2] / "docs/service.md").read_text(encoding="utf-8")
    shell, code = (re.findall(rf"```{kind}\n(.*?)```", page, re.DOTALL) for kind in ("bash", "python"))
    names = {"URL": client.url, "KEY": client._key, "USER_ID": user}
    done = subprocess.run(["bash", "-euc", shell[0]], env=os.environ | names, capture_output=True, text=True)
    assert done.returncode == 0 and done.stdout.count("\n") > 9, done.stderr
    exec(code[0].replace('"send.csv"', repr(str(place / "documented.csv"))), dict(names))
    assert len(pl.read_csv(place / "documented.csv")) >= 100


def test_a_reload_under_load_drops_nothing(serve: Start, made: Path, model: Any, tmp_path: Path) -> None:
    old = artifacts.load(made / "labels", "labels")
    change_labels(old, tmp_path / "newer", "add", ["left-handed garden gnomes"], reason="new", cache=tmp_path / "c")
    link = tmp_path / "labels"
    link.symlink_to(made / "labels")
    child, client = serve("--labels", str(link))
    users = model.users["user_id"].head(10).to_list()
    known = {user: client.interests(user, k=3)["rank"].to_list() for user in users}
    before = client.model().version
    stop = time.monotonic() + PATIENCE
    versions: set[str] = set()

    def load(user: str) -> int:
        asked = 0
        while time.monotonic() < stop and len(versions) < 2:
            assert client.interests(user, k=3)["rank"].to_list() == known[user]
            asked += 1
        return asked

    with ThreadPoolExecutor(4) as pool:
        asked = [pool.submit(load, user) for user in users[:4]]
        time.sleep(0.3)
        (tmp_path / "next").symlink_to(tmp_path / "newer")
        (tmp_path / "next").replace(link)
        told = client.reload()
        versions |= {told.before, told.now}
        assert sum(each.result() for each in asked) > 10
    assert told.changed and told.before == before and told.now.endswith("-2")
    assert next(client.labels("left-handed")).number == len(model.labels)
    (tmp_path / "back").symlink_to(made / "labels")
    (tmp_path / "back").replace(link)
    os.kill(child.pid, signal.SIGHUP)
    _until(lambda: client.model().version == before)
    link.unlink()
    link.symlink_to(tmp_path / "nowhere")
    with pytest.raises(ServiceError):
        client.reload()
    assert client.model().version == before  # the old one stays


def test_a_kill_in_the_middle_leaves_every_job_done_or_failed(
    serve: Start, wanted: dict[str, Any], tmp_path: Path
) -> None:
    child, client = serve()
    jobs = [client.build(wanted | {"name": f"job {n}"}).id for n in range(4)]
    _until(lambda: any(job.state == "RUNNING" for job in client.jobs()) and client.job(jobs[0]).state == "DONE")
    child.kill()
    child.wait()
    _, client = serve()
    _until(lambda: all(job.state in ("DONE", "FAILED") for job in client.jobs()))
    states = {job.id: client.job(job.id) for job in client.jobs()}
    assert set(states) == set(jobs) and states[jobs[0]].state == "DONE"
    assert all(job.reason for job in states.values() if job.state == "FAILED")
    assert sum(job.state == "FAILED" for job in states.values()) <= 1  # the one that was running
    for number, job in states.items():
        folder = tmp_path / "state/jobs" / number
        if job.state == "DONE":
            assert len(pl.read_csv(client.export(number, tmp_path / "send.csv"))) == 110
        else:
            with pytest.raises(ServiceError, match="FAILED"):
                client.export(number, tmp_path / "none.csv")
        assert not list(folder.glob(".*"))


def test_a_kill_while_files_are_sent_leaves_whole_files_or_none(
    serve: Start, wanted: dict[str, Any], tmp_path: Path
) -> None:
    child, client = serve()
    job = client.wait(client.build(wanted))
    sent = tmp_path / "sent"
    sent.mkdir()

    def download(number: int) -> None:
        for turn in range(1_000):
            try:
                client.export(job.id, sent / f"{number}-{turn}.csv")
            except DataError:  # the service is gone, perhaps in the middle of an answer
                return

    with ThreadPoolExecutor(4) as pool:
        waiting = [pool.submit(download, number) for number in range(4)]
        _until(lambda: len(list(sent.glob("*.csv"))) > 4 and any((tmp_path / "state/exports").glob("*/*")))
        child.kill()
        child.wait()
        for each in waiting:
            each.result()
    assert {len(pl.read_csv(file)) for file in sent.iterdir()} == {110}
    _, client = serve()
    assert not list((tmp_path / "state/exports").glob("*"))  # what was being written is gone
    assert client.job(job.id).state == "DONE"
    assert len(pl.read_csv(client.export(job.id, tmp_path / "again.csv"))) == 110


@pytest.mark.parametrize(
    ("host", "local"),
    [
        ("127.0.0.1", True),
        ("::1", True),
        ("localhost", True),
        ("0.0.0.0", False),
        ("10.1.2.3", False),
        ("shop.de", False),
    ],
)
def test_which_addresses_stay_on_this_machine(host: str, local: bool) -> None:
    assert server.is_local(host) is local


@pytest.mark.parametrize(
    ("host", "in_front", "warned"), [("0.0.0.0", False, True), ("0.0.0.0", True, False), ("::1", False, False)]
)
def test_elsewhere_without_tls_is_warned_of(
    host: str, in_front: bool, warned: bool, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(console.log, "propagate", True)
    server.warn_if_unencrypted(host, in_front)
    assert ("--tls-in-front" in caplog.text) is warned


def _until(true: Callable[[], bool]) -> None:
    end = time.monotonic() + PATIENCE
    while not true():
        assert time.monotonic() < end, "it never came"
        time.sleep(0.05)
