"""Tables of real databases: they hold what a plain dict would, and nothing is written twice."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import polars as pl
import pytest

from merit.campaigns.sync import database
from merit.campaigns.sync.destination import Destination, DuckdbTable, Mode, PostgresTable
from merit.campaigns.sync.rows import Outgoing, SyncCounts
from merit.campaigns.sync.sync import deliver
from merit.core.errors import ConfigError, DestinationError, MissingDependency
from tests.postgres import PASSWORD, Postgres

COLUMNS = ("external_id", "audience", "payload", "updated_at")
Rows = dict[str, str]


def yes(counts: SyncCounts) -> bool:
    return True


def send(to: Destination, rows: Rows, mode: Mode = "mirror", audience: str = "Spring", at: str = "") -> SyncCounts:
    frame = pl.DataFrame(
        {"external_id": list(rows), "payload": list(rows.values())},
        schema_overrides={"payload": pl.String, "external_id": pl.String},
    )
    at = at or "2027-03-01T00:00:00+00:00"
    halves = iter([frame[: len(frame) // 2], frame[len(frame) // 2 :]])
    return deliver(Outgoing(audience, halves, Path("nowhere"), at), to, mode, yes)


def rows_of(to: Any, columns: tuple[str, ...] = COLUMNS) -> list[tuple[Any, ...]]:
    with database.connected(to) as connection, connection.cursor() as cursor:
        cursor.execute(f"SELECT {', '.join(columns)} FROM {to.table}")
        return sorted(cursor.fetchall())


@pytest.fixture
def base(postgres: Postgres) -> Iterator[str]:
    with postgres.database() as name:
        yield name


@pytest.fixture(params=["postgres", "duckdb"])
def table(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Destination:
    if request.param == "duckdb":
        return DuckdbTable(kind="duckdb", file=tmp_path / "crm.duckdb", table="members")
    name, server = request.getfixturevalue("base"), request.getfixturevalue("postgres")
    monkeypatch.setenv("CRM_DSN", server.dsn(name))
    return PostgresTable(kind="postgres", connection="CRM_DSN", table="members")


def expected(before: Rows, rows: Rows, mode: Mode) -> Rows:
    """The slow, obvious twin."""
    added = {user: payload for user, payload in rows.items() if user not in before}
    return {"mirror": rows, "upsert": before | rows, "append": before | added}[mode]


@pytest.mark.parametrize("mode", ["mirror", "upsert", "append"])
def test_a_table_holds_what_a_dict_would(table: Any, mode: Mode) -> None:
    before = {f"u{number}": f'{{"score": {number % 3}}}' for number in range(200)} | {"ü'\"; --": "{}"}
    after = {f"u{number}": f'{{"score": {number % 2}}}' for number in range(50, 260)}
    assert send(table, before) == SyncCounts(added=201, updated=0, removed=0, unchanged=0)
    send(table, {"u1": "{}"}, audience="O'ther")
    counts = send(table, after, mode, at="2027-03-02T00:00:00+00:00")
    wanted = expected(before, after, mode)
    stored = [row for row in rows_of(table) if row[1] == "Spring"]
    assert {row[0]: row[2] for row in stored} == wanted and len(stored) == len(wanted)
    changed = {user for user in wanted if before.get(user) != wanted[user]}
    assert {row[0] for row in stored if row[3].day == 2} == changed
    assert counts.written == len(changed) + (len(before.keys() - wanted.keys()))
    assert [row[0] for row in rows_of(table) if row[1] == "O'ther"] == ["u1"]
    again = send(table, after, mode, at="2027-03-03T00:00:00+00:00")
    assert again.written == 0 and not any(row[3].day == 3 for row in rows_of(table))


def test_counting_alone_changes_nothing(table: Any) -> None:
    send(table, {"a": "1", "b": "1"})
    rows = pl.DataFrame({"external_id": ["b", "c"], "payload": ["2", "2"]})
    counts = deliver(Outgoing("Spring", iter([rows]), Path("nowhere")), table, "mirror", lambda counts: False)
    assert counts == SyncCounts(added=1, updated=1, removed=1, unchanged=0)
    assert [row[:3] for row in rows_of(table)] == [("a", "Spring", "1"), ("b", "Spring", "1")]
    assert send(table, {}).removed == 2 and not rows_of(table)


def test_columns_and_types_of_the_table_are_kept(
    postgres: Postgres, base: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    postgres.run(
        'CREATE SCHEMA crm; CREATE TABLE crm."Members" (customer bigint, list varchar(40), details jsonb, '
        "at timestamp, note text DEFAULT 'new')",
        base,
    )
    monkeypatch.setenv("CRM_DSN", postgres.dsn(base))
    names = dict(zip(COLUMNS, ("customer", "list", "details", "at"), strict=True))
    to = PostgresTable.model_validate(
        {"kind": "postgres", "connection": "CRM_DSN", "table": "crm.Members", "columns": names}
    )
    assert send(to, {"7": '{"score":   1}', "12": "{}"}).added == 2
    assert send(to, {"7": '{"score": 1}', "12": '{"score": 2}'}) == SyncCounts(
        added=0, updated=1, removed=0, unchanged=1
    )
    shown = postgres.run('SELECT customer, list, details, at, note FROM crm."Members" ORDER BY 1', base)
    assert shown.splitlines()[0] == '7|Spring|{"score": 1}|2027-03-01 00:00:00|new'
    with pytest.raises(DestinationError, match="ids are the same"):
        send(to, {"7": "{}", "007": "{}"})
    with pytest.raises(DestinationError, match="another type than the values"):
        send(to, {"u7": "{}"})
    assert len(postgres.run('SELECT 1 FROM crm."Members"', base).split()) == 2


def test_bad_settings_and_refusals_are_one_message_without_the_password(
    postgres: Postgres, base: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    to = PostgresTable(kind="postgres", connection="CRM_DSN", table="members")
    with pytest.raises(ConfigError, match="CRM_DSN is not set"):
        send(to, {"a": "1"})
    wrong = {
        postgres.dsn(base, password="wr0ng/pass@word"): "authentication failed",
        postgres.dsn(base).replace(str(postgres.port), "1"): "Correct the address",
        f"postgresql://postgres:{PASSWORD}@127.0.0.1:{postgres.port}/{base}": "%2F for /",  # not escaped
        postgres.dsn("nothere"): "does not exist",
        f"host=127.0.0.1 port={postgres.port} password={PASSWORD} nonsense": "Correct",
    }
    for dsn, message in wrong.items():
        monkeypatch.setenv("CRM_DSN", dsn)
        with pytest.raises((DestinationError, ConfigError), match=message) as caught:
            send(to, {"a": "1"})
        text = str(caught.value)
        assert "p4ss" not in text and "wr0ng" not in text and "pass@word" not in text, text
        assert caught.value.__suppress_context__ or caught.value.__context__ is None
    postgres.run("CREATE TABLE members (external_id text, audience text, details text)", base)
    monkeypatch.setenv("CRM_DSN", postgres.dsn(base))
    with pytest.raises(DestinationError, match=r"no column 'payload', but external_id, audience, details.*columns = "):
        send(to, {"a": "1"})


def test_rights_that_are_missing_change_nothing(postgres: Postgres, base: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CRM_DSN", postgres.dsn(base))
    to = PostgresTable(kind="postgres", connection="CRM_DSN", table="members")
    send(to, {"a": "1", "b": "1"})
    user = f"crm_{base}"
    postgres.run(
        f"CREATE ROLE {user} LOGIN PASSWORD 'narrow-r1ghts'; GRANT SELECT, INSERT, DELETE ON members TO {user}", base
    )
    try:
        monkeypatch.setenv("CRM_DSN", postgres.dsn(base, user, "narrow-r1ghts"))
        with pytest.raises(DestinationError, match=r"permission denied.*Grant it"):
            send(to, {"b": "2", "c": "1"})  # a is deleted before b cannot be updated
        assert [row[0] for row in rows_of(to)] == ["a", "b"]
        assert send(to, {"b": "1", "c": "1"}).written == 2
    finally:
        postgres.run(f"DROP OWNED BY {user}; DROP ROLE {user}", base)


CHILD = """
import sys
from pathlib import Path
import polars as pl
from merit.campaigns.sync.destination import read
from merit.campaigns.sync.rows import Outgoing
from merit.campaigns.sync.database import deliver
to, users, payload = read(Path(sys.argv[1])), int(sys.argv[2]), sys.argv[3]
rows = pl.DataFrame({"external_id": [f"u{n}" for n in range(users)], "payload": [payload] * users})
print("ready", flush=True)
deliver(Outgoing("Spring", iter([rows]), Path("nowhere")), to, "mirror", lambda counts: True)
"""


@pytest.mark.slow
def test_a_kill_leaves_the_old_rows_or_the_new_ones(table: Any, tmp_path: Path) -> None:
    """With 50 kills: python -m benchmarks.sync."""
    users, settings = 20_000, tmp_path / "to.json"
    settings.write_text(table.model_dump_json())
    send(table, {f"u{number}": "0" for number in range(users)})
    for turn, wait in enumerate((0.0, 0.05, 0.15), 1):
        words = [sys.executable, "-c", CHILD, str(settings), str(users - turn), str(turn)]
        child = subprocess.Popen(words, stdout=subprocess.PIPE)
        assert child.stdout and child.stdout.readline() == b"ready\n"
        time.sleep(wait)
        os.kill(child.pid, signal.SIGKILL)
        child.wait()
        stored = rows_of(table, ("payload", "audience"))
        assert len(set(stored)) == 1 and len(stored) == users - int(stored[0][0])


def test_syncs_of_a_table_wait_for_each_other(postgres: Postgres, base: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CRM_DSN", postgres.dsn(base))
    to = PostgresTable(kind="postgres", connection="env:CRM_DSN", table="members")
    wanted = [{f"u{number}": str(turn) for number in range(turn, 300)} for turn in range(4)]
    with ThreadPoolExecutor(4) as pool:
        list(pool.map(lambda rows: send(to, rows), wanted))  # the table is not there yet
    assert {row[0]: row[2] for row in rows_of(to)} in wanted


def test_a_driver_that_is_missing_is_named_with_its_install_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "adbc_driver_duckdb", None)
    to = DuckdbTable(kind="duckdb", file=tmp_path / "crm.duckdb", table="members")
    with pytest.raises(MissingDependency, match=r"needs adbc_driver_duckdb.*pip install 'merit-interests\[sql\]'"):
        send(to, {"a": "1"})
