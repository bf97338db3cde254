"""A whole run with pseudonyms (docs/data.md), from commands to service: no real id in any file, no id in any log."""

from __future__ import annotations

import json
import re
import socket
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from urllib.error import URLError
from urllib.request import urlopen

import polars as pl
import pytest

from merit.core.errors import MeritError
from merit.privacy import pseudonyms
from merit.privacy.erasure import search
from merit.service import keys
from merit.service.client import Client
from tests import processes
from tests.small_run import SMALL, shop

pytestmark = pytest.mark.slow
PSEUDONYM = re.compile(rb"p-[0-9a-f]{8}-[0-9a-f]{32}")
PATIENCE = 300


@dataclass
class Place:
    """Where a run is, and whoever was told something meanwhile."""

    folder: Path
    key: Path
    users: list[str]
    orders: list[str]
    logs: list[Path]

    @property
    def run(self) -> Path:
        return self.folder / "run"

    def merit(self, *words: object, code: int = 0, key: bool = False) -> str:
        """A command, with all it says kept in a file; what it told as its result."""
        number = len(self.logs)
        out, log, lines = (
            self.folder / f"{name}" for name in (f"out-{number}", f"log-{number}.txt", f"log-{number}.jsonl")
        )
        options = ["--verbose", "--log-file", lines, *(["--key", self.key] if key else [])]
        ended = processes.merit(*options, *words, folder=self.folder, out=out, err=log).wait(PATIENCE)
        self.logs += [log, lines]
        assert ended == code, log.read_text()
        return (log if code else out).read_text()

    def known(self, ids: list[str]) -> list[str]:
        return pseudonyms.read(self.key).of(ids)


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Place:
    folder = tmp_path_factory.mktemp("private")
    source = shop(folder, 160, 3)
    table = pl.read_parquet(source["interactions"])
    renamed = table.with_columns(
        user_id=pl.format("customer-{}-of-the-shop", pl.col("user_id")),
        order_id=pl.format("basket-{}-of-the-shop", pl.int_range(pl.len()) // 3),
    )
    renamed.write_parquet(source["interactions"])
    pseudonyms.create(folder / "keys" / "shop")
    users = renamed["user_id"].unique(maintain_order=True).to_list()
    found = Place(folder, folder / "keys" / "shop", users, renamed["order_id"].unique().to_list(), [])
    values = SMALL | {"source": source | {"pseudonyms": str(found.key)}, "out": "run", "cache": "cache"}
    (folder / "config.toml").write_text(_toml(values))
    found.merit("run", "config.toml", "--json")
    return found


def _toml(values: dict) -> str:
    """JSON is TOML once tables are inline and keys have an equals sign."""
    return "\n".join(f"{name} = {_inline(value)}" for name, value in values.items())


def _inline(value: object) -> str:
    if isinstance(value, dict):
        return "{" + ", ".join(f"{name} = {_inline(each)}" for name, each in value.items()) + "}"
    return json.dumps(value)


@pytest.fixture(scope="module")
def served(place: Place) -> Iterator[Client]:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    _, secret = keys.create(place.folder / "state" / keys.FILE, "test", keys.SCOPES)
    words = ["serve", "run", "--port", str(port), "--state", "state", "--set", f"seconds={PATIENCE}"]
    log, lines = place.folder / "service.txt", place.folder / "service.jsonl"
    child = processes.merit("--verbose", "--log-file", lines, *words, folder=place.folder, out=log, err=log)
    try:
        end = time.monotonic() + PATIENCE
        while time.monotonic() < end:
            try:
                urlopen(f"http://127.0.0.1:{port}/ready", timeout=2).close()
                break
            except (URLError, ConnectionError):
                assert child.poll() is None, log.read_text()
                time.sleep(0.2)
        yield Client(f"http://127.0.0.1:{port}", secret, PATIENCE)
    finally:
        child.terminate()
        child.wait(PATIENCE)
        place.logs += [log, lines]


def test_no_file_of_the_run_holds_a_real_id(place: Place) -> None:
    """Nor a hash of one that needs no key: a guess cannot be confirmed."""
    some = [*place.users[:4], *place.orders[:4]]
    found = search.search([place.run, place.folder / "cache"], search.patterns(some))
    assert (found.held, found.alike) == ((), ()) and found.files > 50
    files = [file for file in place.run.rglob("*") if file.is_file()]
    assert not [file for file in files if b"-of-the-shop" in file.read_bytes() or _in_cells(file, "-of-the-shop")]
    assert _in_cells(place.folder / "shop/interactions.parquet", "-of-the-shop")
    known = pl.read_parquet(place.run / "model" / "users.parquet")["user_id"]
    assert set(known) <= set(place.known(place.users)) and len(known) > 100
    plain = search.search([place.folder / "shop"], search.patterns(place.users[:3]))
    assert plain.held  # the search does find what is there


def test_lookups_by_real_id_need_the_key(place: Place) -> None:
    user = _a_user(place)
    told = place.merit("model", "interests", "run", user, "-k", 3, "--jsonl", key=True)
    assert told == place.merit("model", "interests", "run", place.known([user])[0], "-k", 3, "--jsonl")
    refused = " ".join(place.merit("model", "interests", "run", user, code=2).split())
    assert "pseudonyms of key" in refused and "merit --key FILE" in refused


def test_rules_by_tables_of_real_ids_and_the_way_back_of_an_export(place: Place) -> None:
    listed = [user for user in place.users if place.known([user])[0] in _model_users(place)][
        :130
    ]  # the refusal of small ones keeps a distance
    pl.DataFrame({"user_id": listed}).write_csv(place.folder / "consent.csv")
    interest = pl.read_parquet(place.run / "labels" / "labels.parquet")["text"][0]
    (place.folder / "request.json").write_text(
        json.dumps(
            {
                "name": "Spring",
                "interests": [interest],
                "size": {"by": "count", "users": 100},
                "rules": [{"rule": "listed", "table": "consent.csv", "keep": True}],
            }
        )
    )
    refused = place.merit("audience", "build", "run", "--request", "request.json", "--out", "sent/audience", code=2)
    assert "merit --key FILE" in " ".join(refused.split())
    place.merit("audience", "build", "run", "--request", "request.json", "--out", "sent/audience", key=True)
    place.merit("audience", "export", "sent/audience", "--out", "sent/export", "--format", "csv")
    exported = pl.read_csv(place.folder / "sent/export/audience.csv")["user_id"]
    assert len(exported) == 100 and set(exported) <= set(place.known(listed))
    ids = ("pseudonyms", "restore", "sent/export/audience.csv", "--ids", "shop/interactions.parquet", "--out")
    place.merit(*ids, "outside/real.csv", key=True)
    real = place.folder / "outside/real.csv"
    assert place.known(pl.read_csv(real)["user_id"].to_list()) == exported.to_list()
    assert real.stat().st_mode & 0o777 == 0o600
    refused = place.merit(*ids, "sent/export/real.csv", key=True, code=2)
    assert "elsewhere" in refused and not (place.folder / "sent/export/real.csv").exists()
    assert "merit --key FILE" in " ".join(place.merit(*ids, "outside/other.csv", code=2).split())


def test_the_service_knows_pseudonyms_only(place: Place, served: Client) -> None:
    user = _a_user(place)
    known = place.known([user])[0]
    assert len(served.interests(known, k=3)) == 3
    assert len(served.verticals(known)) and served.score([known], ["tea"]) is not None
    for wrong in (user, "customer-nobody-of-the-shop"):
        with pytest.raises(MeritError, match="does not know this user"):
            served.interests(wrong)
        with pytest.raises(MeritError):
            served.score([wrong], ["tea"])
    with pytest.raises(MeritError):
        served.preview({"name": user, "interests": [user], "size": {"by": "count", "users": 1}})


def test_erasing_by_real_id_needs_the_key_and_leaves_nothing(place: Place, served: Client) -> None:
    user = _a_user(place)
    known = place.known([user])[0]
    refused = place.merit("erase", user, "--folder", "run", code=2)
    assert "merit --key FILE" in " ".join(refused.split())
    certificate = json.loads(place.merit("erase", user, "--folder", "run", "--folder", "state", "--json", key=True))
    assert (certificate["requested"], certificate["found"]) == (1, 1)
    with pytest.raises(MeritError, match="does not know this user"):
        served.interests(known)
    found = search.search([place.run], search.patterns([user, known]))
    assert found.held == ()


def test_no_log_names_anybody(place: Place, served: Client) -> None:
    """The last of this file: every command and every request of the tests above has been told of by now."""
    served.interests(place.known([_a_user(place)])[0])
    logs = [*place.logs, place.folder / "service.txt", place.folder / "service.jsonl"]
    told = {log.name: log.read_bytes() for log in logs}
    assert sum(map(len, told.values())) > 2_000 and b"/v1/users/{user_id:path}/interests" in told["service.txt"]
    real = re.compile(rb"customer-\w+-of-the-shop|basket-\w+-of-the-shop")
    assert {name: real.findall(text) + PSEUDONYM.findall(text) for name, text in told.items()} == {
        name: [] for name in told
    }
    assert place.key.read_bytes().strip() not in b"".join(told.values())


def test_a_key_inside_the_run_is_refused_before_anything_is_made(place: Place) -> None:
    inside = place.folder / "new" / "deep" / "key"
    inside.parent.mkdir(parents=True)
    inside.write_bytes(place.key.read_bytes())
    inside.chmod(0o600)
    refused = place.merit("run", "config.toml", "--set", "out=new", "--set", f"source.pseudonyms={inside}", code=2)
    assert "which must hold pseudonyms only" in " ".join(refused.split())
    assert not list((place.folder / "new").glob("*/manifest.json"))


def _in_cells(file: Path, text: str) -> bool:
    """Packed tables do not show their texts as bytes."""
    return file.suffix == ".parquet" and any(
        column.cast(pl.String).str.contains(text, literal=True).any()
        for column in pl.read_parquet(file)
        if column.dtype in (pl.String, pl.Categorical)
    )


def _model_users(place: Place) -> set[str]:
    return set(pl.read_parquet(place.run / "model" / "users.parquet")["user_id"])


def _a_user(place: Place) -> str:
    there = _model_users(place)
    return next(user for user in place.users if place.known([user])[0] in there)
