"""Tables from real databases: the same bytes as from files, in one piece or none, and no password anywhere."""

from __future__ import annotations

import hashlib
import sqlite3
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from urllib.parse import quote

import polars as pl
import pytest
from pydantic import ValidationError

from merit.core import artifacts, config
from merit.core.errors import ConfigError, DataError, MeritError, MissingDependency
from merit.data.prepare import PrepareConfig, PrepareRun, prepare
from merit.data.sources import SqlSource, TablesSource, open_source, parts, snapshot
from merit.privacy import pseudonyms
from merit.privacy.erasure.erase import erase
from tests.data import warehouse
from tests.data.warehouse import EVENTS, ITEMS, NUMBERED, READER, source
from tests.postgres import PASSWORD, Postgres

WHO = "0b5b4f7e-1111-4222-8333-444455556666"
Shop = tuple[pl.DataFrame, pl.DataFrame]


@pytest.fixture(scope="module")
def shop(once: Callable[[str, Callable[[Path], object]], Path]) -> Path:
    """The folder of a planted shop: interactions.parquet, items.parquet."""
    return once("warehouse", warehouse.tables)


@pytest.fixture
def tables(shop: Path) -> Shop:
    return pl.read_parquet(shop / "interactions.parquet"), pl.read_parquet(shop / "items.parquet")


@pytest.fixture
def duck(tables: Shop, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    file = tmp_path / "shop.duckdb"
    monkeypatch.setenv("SHOP_DSN", warehouse.fill_duckdb(file, *tables))
    return file


@pytest.fixture
def filled(postgres: Postgres, tables: Shop, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """A database that SHOP_DSN names, by a role that may only read."""
    with postgres.database() as name:
        warehouse.fill_postgres(postgres, name, *tables)
        monkeypatch.setenv("SHOP_DSN", warehouse.reader(postgres, name))
        yield name


def contents(folder: Path) -> dict[str, str]:
    return {str(p.relative_to(folder)): hashlib.sha256(p.read_bytes()).hexdigest() for p in folder.rglob("*.parquet")}


def example_files(out: Path, given: SqlSource | TablesSource) -> dict[str, str]:
    made = prepare(out, PrepareRun(source=given, prepare=PrepareConfig(shards=2)), 7)
    return {name: record.sha256 for name, record in made.manifest.files.items()}


def of_files(shop: Path) -> TablesSource:
    return TablesSource(interactions=shop / "interactions.parquet", items=shop / "items.parquet")


def test_examples_from_postgresql_are_those_from_parquet(filled, shop, tmp_path) -> None:
    assert example_files(tmp_path / "sql", source(tmp_path)) == example_files(tmp_path / "files", of_files(shop))


def test_examples_from_duckdb_are_those_from_parquet(duck, shop, tmp_path) -> None:
    assert example_files(tmp_path / "sql", source(tmp_path)) == example_files(tmp_path / "files", of_files(shop))


def test_sqlite_by_adbc_and_by_sqlalchemy(tables, tmp_path, monkeypatch) -> None:
    events, items = (frame.with_columns(pl.col(pl.Datetime).cast(pl.String)) for frame in tables)
    events, items = events.select("user_id", "item_id", "timestamp", "event", "order_id"), items.drop("tags")
    with sqlite3.connect(tmp_path / "shop.db") as connection:
        for name, frame in (("log", events), ("catalogue", items)):
            connection.execute(f"CREATE TABLE {name} ({', '.join(f'{column} TEXT' for column in frame.columns)})")
            marks = ", ".join("?" * frame.width)
            connection.executemany(f"INSERT INTO {name} VALUES ({marks})", frame.rows())
    changes = {"items": ITEMS.replace("tags, ", ""), "extra_tags": ("vertical",)}
    for number, scheme in enumerate(("sqlite", "sqlite+pysqlite")):
        monkeypatch.setenv("SHOP_DSN", f"{scheme}:///{tmp_path}/shop.db")
        read = open_source(source(tmp_path / str(number), **changes))
        rows = read.interactions.select("user_id", "item_id", "timestamp", "event").collect()
        expected = tables[0].select("user_id", "item_id", "timestamp", "event")
        assert rows.sort(rows.columns).rows() == expected.sort(rows.columns).rows()


def test_a_snapshot_is_read_once(duck, tmp_path) -> None:
    first = open_source(source(tmp_path))
    duck.unlink()
    again = open_source(source(tmp_path))
    assert again.inputs == first.inputs and again.interactions.collect().equals(first.interactions.collect())


@pytest.mark.parametrize("boundary", [1, 499, 1234])
def test_what_is_appended_are_the_bytes_of_a_full_read(postgres, filled, tmp_path, monkeypatch, boundary) -> None:
    """Rows of the last watermark come late, too: several share each value."""
    monkeypatch.setattr(parts, "PART_ROWS", 500)
    postgres.run(f"CREATE TABLE numbered AS SELECT (n + 2) / 3 AS batch, * FROM ({NUMBERED}) AS q", filled)
    postgres.run(f"GRANT SELECT ON numbered TO reader_{filled}; CREATE VIEW seen AS SELECT * FROM numbered", filled)
    query = "SELECT batch, user_id, item_id, timestamp, event, order_id FROM seen"
    live = source(tmp_path, interactions=query, watermark="Batch")
    for until in (boundary, boundary + 1, boundary + 700):
        postgres.run(f"CREATE OR REPLACE VIEW seen AS SELECT * FROM numbered WHERE n <= {until}", filled)
        postgres.run(f"GRANT SELECT ON seen TO reader_{filled}", filled)
        made = snapshot.pull(live)
        assert made.manifest.summary["interactions"]["rows"] == until
    assert made.manifest.summary["interactions"]["watermark"] == {"column": "batch", "value": str((until + 2) // 3)}
    whole = snapshot.pull(live.model_copy(update={"snapshot": tmp_path / "whole"}))
    assert contents(made.path) == contents(whole.path)
    assert made.manifest.hash == whole.manifest.hash == snapshot.pull(live).manifest.hash


def test_times_as_watermarks(postgres, filled, tmp_path) -> None:
    live = source(tmp_path, watermark="timestamp")
    first = snapshot.pull(live).manifest.summary["interactions"]
    postgres.run("INSERT INTO log SELECT user_id, item_id, now(), event, NULL FROM log LIMIT 3", filled)
    assert snapshot.pull(live).manifest.summary["interactions"]["rows"] == first["rows"] + 3


def test_only_new_rows_are_read(postgres, filled, tmp_path) -> None:
    """An old row that is gone in the database stays in the snapshot until a full read."""
    live = source(tmp_path, watermark="timestamp")
    rows = snapshot.pull(live).manifest.summary["interactions"]["rows"]
    postgres.run("DELETE FROM log WHERE timestamp = (SELECT min(timestamp) FROM log)", filled)
    assert snapshot.pull(live).manifest.summary["interactions"]["rows"] == rows
    assert snapshot.pull(live, full=True).manifest.summary["interactions"]["rows"] < rows


def test_types_that_only_postgresql_has(postgres, filled, tmp_path) -> None:
    postgres.run("CREATE TYPE kind AS ENUM ('view', 'purchase')", filled)
    postgres.run(
        f"""CREATE TABLE typed (who uuid, item_id numeric(10, 0), local timestamp, event kind, note interval);
        INSERT INTO typed VALUES ('{WHO}', 17850, '2024-07-01 12:00', 'purchase', '1 day');
        CREATE TABLE things (item_id numeric(10, 0), name text, tags jsonb);
        INSERT INTO things VALUES (17850, 'Tea', '["Drinks", "Tea"]');
        GRANT SELECT ON typed, things TO reader_{filled}""",
        filled,
    )
    changes = {"columns": {"user_id": "who", "timestamp": "local"}, "time_zone": "Europe/Berlin"}
    read = open_source(source(tmp_path, interactions="SELECT * FROM typed;", items="TABLE things -- all", **changes))
    row = read.interactions.collect().row(0, named=True)
    assert (row["user_id"], row["item_id"], row["event"]) == (
        "0b5b4f7e-1111-4222-8333-444455556666",
        "17850",
        "purchase",
    )
    assert row["timestamp"].isoformat() == "2024-07-01T10:00:00+00:00"  # 12 o'clock in Berlin
    assert read.items.collect()["tags"].to_list() == [["Drinks", "Tea"]]


def test_ids_are_pseudonyms_in_the_snapshot_already(duck, shop, tmp_path) -> None:
    key = pseudonyms.create(tmp_path / "keys" / "shop")
    hidden = source(tmp_path, pseudonyms=key.path)
    ids = pl.read_parquet(snapshot.pull(hidden).path / "interactions")["user_id"]
    assert ids.str.starts_with(f"p-{key.number}-").all()
    plain = of_files(shop).model_copy(update={"pseudonyms": key.path})
    assert example_files(tmp_path / "sql", hidden) == example_files(tmp_path / "files", plain)


def test_an_erased_user_leaves_the_snapshot_and_does_not_come_back(duck, tmp_path) -> None:
    live = source(tmp_path, watermark="timestamp")
    ids = pl.read_parquet(snapshot.pull(live).path / "interactions")["user_id"]
    user = ids[0]
    erase([tmp_path / "snapshot"], [user])
    left = snapshot.held(tmp_path / "snapshot", snapshot.described(live))
    assert left and left.manifest.summary["interactions"]["rows"] == (ids != user).sum()
    assert snapshot.pull(live).manifest.summary["interactions"]["rows"] == (ids != user).sum()
    assert user not in pl.read_parquet(tmp_path / "snapshot" / "interactions")["user_id"]


# --- secrets ---------------------------------------------------------------------------------------------------------


def test_the_password_is_nowhere(filled, tmp_path, command, monkeypatch) -> None:
    (tmp_path / "shop.toml").write_text(
        f"""out = "run"\n[source]\nkind = "sql"\nconnection = "env:SHOP_DSN"\nsnapshot = "snapshot"
        interactions = "{EVENTS}"\nitems = "{ITEMS}"\n[prepare]\nshards = 1\n"""
    )
    said = [
        *command("--log-file", "log.jsonl", "data", "pull", "shop.toml", "--json"),
        *command("data", "check", "shop.toml", "--json"),
        *command("run", "shop.toml", "--until", "examples", "--set", "preset=quick", "--json"),
        *command("show", "snapshot"),
        *command("data", "pull", "shop.toml", "--set", "source.items=SELECT nothing FROM nowhere"),
    ]
    assert said[0] == said[3] == said[6] == said[9] == 0 and said[12] == 3
    everything = b"".join(file.read_bytes() for file in tmp_path.rglob("*") if file.is_file()) + str(said).encode()
    assert b"SHOP_DSN" in everything
    for secret in (READER, quote(READER, safe=""), PASSWORD):
        assert secret.encode() not in everything


@pytest.mark.parametrize(
    "address",
    [
        "postgresql://reader:s3cret-w0rd@127.0.0.1:1/shop",
        "postgresql://reader:s3cret w0rd@127.0.0.1/shop",
        "postgresql://reader:half/s3cret-w0rd@127.0.0.1:1/shop",
        "host=127.0.0.1 port=1 dbname=shop user=reader password=s3cret-w0rd",
        "host=127.0.0.1 port=1 dbname=shop user=reader password 's3cret-w0rd",
        "postgresql+psycopg://reader:s3cret-w0rd@127.0.0.1:1/shop",
        "nothing://reader:s3cret-w0rd@127.0.0.1/shop",
        "mysql+pymysql://reader:s3cret-w0rd@127.0.0.1:notaport/shop",
        "duckdb:///nowhere/shop.duckdb?password=s3cret-w0rd",
        "sqlite:///nowhere/shop.db?token=s3cret-w0rd",
        "s3cret-w0rd",
    ],
)
def test_a_wrong_address_is_not_repeated(address, tmp_path, monkeypatch) -> None:
    monkeypatch.setenv("SHOP_DSN", address)
    with pytest.raises(MeritError, match="SHOP_DSN") as refused:
        snapshot.pull(source(tmp_path))
    assert "s3cret" not in str(refused.value) and "w0rd" not in str(refused.value)
    assert refused.value.__cause__ is None and refused.value.__suppress_context__
    assert not list(tmp_path.iterdir())


def test_an_address_in_the_file_is_refused_and_not_repeated(tmp_path) -> None:
    with pytest.raises(ConfigError, match=r"source\.sql\.connection: name an environment variable") as refused:
        values = {"kind": "sql", "interactions": "a", "items": "b", "connection": "postgresql://u:s3cret-w0rd@h/d"}
        config.build(PrepareRun, {"source": values})
    assert "s3cret" not in str(refused.value)


@pytest.mark.parametrize("secret", ["password=s3cret", "SECRET_KEY = 's3cret'", "x', 'postgresql://me:s3cret@h/d"])
def test_a_password_in_a_query_is_refused_and_not_repeated(secret) -> None:
    values = {"kind": "sql", "connection": "SHOP_DSN", "items": "b", "interactions": f"SELECT * FROM scan('{secret}')"}
    with pytest.raises(ConfigError, match="this one has a password in it") as refused:
        config.build(PrepareRun, {"source": values})
    assert "s3cret" not in str(refused.value)


def test_the_variable_and_the_driver_have_to_be_there(duck, tmp_path, monkeypatch) -> None:
    with pytest.raises(ValidationError, match="not an ADBC driver"):
        source(tmp_path, driver="os")
    with pytest.raises(MissingDependency, match=r"pip install adbc-driver-snowflake$"):
        snapshot.pull(source(tmp_path, driver="adbc_driver_snowflake"))
    for scheme, module in (
        ("duckdb", "duckdb"),
        ("postgresql", "adbc_driver_postgresql.dbapi"),
        ("oracle", "sqlalchemy"),
    ):
        monkeypatch.setenv("SHOP_DSN", f"{scheme}://x")
        monkeypatch.setitem(sys.modules, module, None)
        with pytest.raises(MissingDependency, match=r"pip install 'merit-interests\[sql\]'$"):
            snapshot.pull(source(tmp_path))
    monkeypatch.delenv("SHOP_DSN")
    with pytest.raises(ConfigError, match=r"SHOP_DSN .*is not set"):
        snapshot.pull(source(tmp_path))


# --- what can go wrong on the way ------------------------------------------------------------------------------------


def refused(given: SqlSource, before: dict[str, str], match: str, error: type[MeritError] = DataError) -> None:
    """One message, and the snapshot of before is untouched."""
    with pytest.raises(error, match=match):
        snapshot.pull(given)
    assert given.snapshot and contents(given.snapshot) == before
    assert {path.name for path in given.snapshot.parent.glob("*snapshot*")} <= {"snapshot"}


def test_a_failure_in_the_middle_leaves_the_old_snapshot(postgres, filled, tmp_path) -> None:
    live = source(tmp_path, watermark="timestamp")
    before = contents(snapshot.pull(live).path)
    broken = "SELECT *, CASE WHEN n > 2000 THEN 1 / (n - n) END AS x FROM (" + NUMBERED + ") AS q"
    failing = live.model_copy(update={"interactions": f"SELECT * FROM ({broken}) AS r WHERE x IS NULL"})
    refused(failing, before, "query of interactions fails: division by zero")
    ended = live.model_copy(
        update={"items": "SELECT * FROM catalogue WHERE pg_terminate_backend(pg_backend_pid())"},
    )
    refused(ended, before, r"query of items fails: .*(terminat|closed)")
    postgres.run(f"REVOKE SELECT ON catalogue FROM reader_{filled}", filled)  # interactions may be read, and are
    refused(live, before, r"query of items fails: permission denied for table catalogue.*grant its role SELECT")


def test_columns_that_changed_between_two_reads(postgres, filled, tmp_path) -> None:
    live = source(tmp_path, watermark="timestamp")
    before = contents(snapshot.pull(live).path)
    postgres.run("ALTER TABLE log ALTER COLUMN user_id TYPE bytea USING user_id::bytea", filled)
    refused(live, before, r"user_id was String and is Binary.*merit data pull CONFIG --full")
    postgres.run("ALTER TABLE log DROP COLUMN order_id", filled)
    refused(live, before, r'query of interactions fails: column "order_id" does not exist')
    wide = source(tmp_path / "all", watermark="timestamp", interactions="SELECT * FROM log", default_event="view")
    before = contents(snapshot.pull(wide).path)
    postgres.run("ALTER TABLE log DROP COLUMN event", filled)
    refused(wide, before, "event is gone")


def test_queries_that_give_too_little(filled, tmp_path) -> None:
    with pytest.raises(DataError, match="query of interactions returns no rows"):
        snapshot.pull(source(tmp_path, interactions=f"{EVENTS} WHERE false"))
    with pytest.raises(DataError, match=r"query of interactions has no column for 'user_id'.*source\.columns\.user_id"):
        snapshot.pull(source(tmp_path, interactions="SELECT item_id, timestamp FROM log"))
    with pytest.raises(DataError, match=r"returns no column 'loaded' \(source\.watermark\)"):
        snapshot.pull(source(tmp_path, watermark="loaded"))
    with pytest.raises(ConfigError, match=r"source\.watermark: item_id is String"):
        snapshot.pull(source(tmp_path, watermark="item_id"))
    with pytest.raises(DataError, match=r"\(source\.watermark\) is empty in 1 rows"):
        union = f"{EVENTS} UNION ALL (SELECT user_id, item_id, NULL, event, order_id FROM log LIMIT 1)"
        snapshot.pull(source(tmp_path, interactions=union, watermark="timestamp"))
    assert not list(tmp_path.iterdir())


def test_nothing_can_be_written_by_a_query(postgres, filled, tmp_path, monkeypatch) -> None:
    """Even the owner's connection reads only."""
    monkeypatch.setenv("SHOP_DSN", postgres.dsn(filled))
    postgres.run("CREATE FUNCTION spoil() RETURNS bool LANGUAGE sql AS 'DELETE FROM log; SELECT true'", filled)
    with pytest.raises(DataError, match="read-only transaction"):
        snapshot.pull(source(tmp_path, interactions=f"{EVENTS} WHERE spoil()"))


def test_both_tables_are_of_one_moment(postgres, filled, tmp_path, monkeypatch) -> None:
    """Rows that come between the two queries are in neither."""
    live, write = source(tmp_path), parts.write

    def and_then(*arguments: object) -> object:
        postgres.run("INSERT INTO catalogue SELECT 'late', 'Late', tags, vertical FROM catalogue LIMIT 1", filled)
        return write(*arguments)  # type: ignore[arg-type]

    monkeypatch.setattr(parts, "write", and_then)
    assert snapshot.pull(live).manifest.summary["items"]["rows"] == 90
    assert artifacts.load(live.snapshot or tmp_path).manifest.kind == "snapshot"
