"""A planted shop in a database, and the settings that read it."""

from __future__ import annotations

from pathlib import Path

import duckdb
import polars as pl

from merit.data import planted
from merit.data.sources import SqlSource
from tests.postgres import Postgres

SHOP = planted.PlantedConfig(users=60, items=90)
EVENTS = "SELECT user_id, item_id, timestamp, event, order_id FROM log"
ITEMS = "SELECT item_id, title, tags, vertical FROM catalogue"
TYPES = "user_id text, item_id text, timestamp timestamptz, event text, order_id text"


READER = "r3ader-of/the@shop"  # the password of a role that may read, and nothing else
NUMBERED = "SELECT row_number() OVER (ORDER BY timestamp, user_id, item_id) AS n, * FROM log"


def source(folder: Path, **changes: object) -> SqlSource:
    settings = {"connection": "env:SHOP_DSN", "interactions": EVENTS, "items": ITEMS, "snapshot": folder / "snapshot"}
    return SqlSource.model_validate(settings | changes)


def tables(folder: Path) -> tuple[pl.DataFrame, pl.DataFrame]:
    """Interactions and items of a planted shop; also written to the folder, as Parquet."""
    planted.write(planted.shop(SHOP, 7), folder)
    events, items = (pl.read_parquet(folder / f"{name}.parquet") for name in ("interactions", "items"))
    return events, items


def fill_duckdb(file: Path, events: pl.DataFrame, items: pl.DataFrame) -> str:
    with duckdb.connect(str(file)) as connection:
        connection.execute("SET TimeZone = 'America/New_York'")
        connection.execute("CREATE TABLE log AS SELECT * FROM events")
        connection.execute("CREATE TABLE catalogue AS SELECT * FROM items")
    return f"duckdb:///{file}"


def fill_postgres(server: Postgres, database: str, events: pl.DataFrame, items: pl.DataFrame) -> None:
    """Both tables, by COPY; times are instants, and tags an array. The role reader_DATABASE may read them."""
    columns = "item_id text, title text, tags text[], vertical text"
    server.run(f"CREATE TABLE log ({TYPES}); CREATE TABLE catalogue ({columns})", database)
    quoted = pl.col("tags").list.eval(pl.format('"{}"', pl.element())).list.join(",")
    copies = {
        "log": events.select("user_id", "item_id", "timestamp", "event", "order_id"),
        "catalogue": items.select("item_id", "title", pl.lit("{") + quoted + pl.lit("}"), "vertical"),
    }
    for table, frame in copies.items():
        rows = frame.write_csv(include_header=False)
        server.run(f"\\copy {table} FROM STDIN (FORMAT csv)\n{rows}\\.\n", database)
    role = f"reader_{database}"
    server.run(f"CREATE ROLE {role} LOGIN PASSWORD '{READER}'; GRANT SELECT ON log, catalogue TO {role}", database)


def reader(server: Postgres, database: str) -> str:
    """The address by which that role reads."""
    return server.dsn(database, f"reader_{database}", READER)
