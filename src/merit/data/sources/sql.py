"""Tables from a database: a query for each, read in batches and in a fixed order."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass
from datetime import date
from functools import partial
from pathlib import Path
from typing import Annotated, Any, Literal

import polars as pl
import pyarrow as pa
from pydantic import AfterValidator, Field

from merit.core import console
from merit.core.errors import DataError
from merit.data import normalise
from merit.data.schema import matching
from merit.data.sources import databases, parts
from merit.data.sources.databases import Address, Database
from merit.data.sources.tables import TableOptions, interaction_columns, item_columns
from merit.privacy import pseudonyms

Query = Annotated[str, Field(min_length=1), AfterValidator(databases.without_secrets)]
REMEDY = "Mend the query (source.{table}), or grant its role SELECT. Nothing was left half-written."
TABLES: tuple[Literal["interactions"], Literal["items"]] = ("interactions", "items")


class SqlSource(TableOptions):
    """Interactions and items from a database, a query for each. They are read once, into a snapshot."""

    kind: Literal["sql"] = "sql"
    connection: Annotated[str, AfterValidator(databases.variable_name)]
    """`env:SHOP_DSN`, or SHOP_DSN: the environment variable that holds the address of the database, such as
    postgresql://reader:PASSWORD@host/shop or duckdb:///shop.duckdb. The address itself is never written down."""
    interactions: Query
    """SELECT … with the columns user_id, item_id, timestamp and event, or others that `columns` names."""
    items: Query
    """SELECT … with item_id, title, tags and vertical."""
    watermark: str | None = None
    """A column of the interactions that only grows: a number, or the time a row was loaded. `merit data pull` then
    reads only what came since."""
    driver: Annotated[str | None, AfterValidator(databases.driver_name)] = None
    """The package of another ADBC driver, such as adbc_driver_snowflake. By default the address tells."""

    @property
    def variable(self) -> str:
        """The name of the environment variable."""
        return self.connection.removeprefix("env:")


@dataclass(frozen=True)
class Selection:
    """What is read of a query: the columns that have a meaning, and the column of the watermark."""

    table: str
    query: str
    types: dict[str, pa.DataType | None]
    watermark: str | None
    ids: dict[str, bytes]
    """The columns with users and orders, and which kind of pseudonym they get."""


def read(source: SqlSource, out: Path, held: Mapping[str, Any] | None, before: Path) -> dict[str, Any]:
    """Write the files of both tables to folders in `out`; what a manifest says of them.

    `held` is what the manifest of an earlier snapshot says, whose folder is `before`.
    """
    place = databases.address(source.variable)
    with databases.connect(place, source.driver) as database:
        return {
            table: _read(source, table, place, database, out, held[table] if held else None, before) for table in TABLES
        }


def _read(
    source: SqlSource,
    table: str,
    place: Address,
    database: Database,
    out: Path,
    held: Mapping[str, Any] | None,
    before: Path,
) -> dict[str, Any]:
    explained = partial(databases.explained, place, f"The query of {table} fails", REMEDY.format(table=table))
    with console.spinner(f"reading {table}"):
        with explained():
            columns = database.columns(f"SELECT * FROM {_inner(getattr(source, table))} WHERE 1=0")
        selection = _selection(source, table, columns)
        kept = parts.KeptRows.of(before / table, selection.watermark, held)
        if kept.types:
            parts.require_same(table, kept.types, dict.fromkeys(selection.types))
        rows = _hidden(source, selection, _guarded(_rows(database, selection, kept.value), explained))
        (out / table).mkdir()
        users = [name for name, kind in selection.ids.items() if kind == pseudonyms.PERSON]
        return parts.write(rows, out / table, table, selection.watermark, kept) | {"users": users}


def _guarded(
    frames: Iterator[pl.DataFrame], explained: Callable[[], AbstractContextManager[None]]
) -> Iterator[pl.DataFrame]:
    """The same rows. What the driver raises on the way is explained; what their reader raises is not."""
    with explained():
        yield from frames


# --- what is asked ---------------------------------------------------------------------------------------------------


def _inner(query: str) -> str:
    return f"(\n{query.strip().rstrip(';')}\n) AS merit_rows"


def _selection(source: SqlSource, table: str, columns: Mapping[str, pa.DataType | None]) -> Selection:
    where, names = f"The query of {table}", list(columns)
    if table == "items":
        mapping, extra = item_columns(names, source, where)
        used = dict.fromkeys([*mapping.values(), *extra])
        return Selection(table, source.items, {name: columns[name] for name in used}, None, {})
    mapping = interaction_columns(names, source, where)
    watermark = matching(names, (source.watermark,)) if source.watermark else None
    if source.watermark and not watermark:
        shown = ", ".join(names[:30])
        raise DataError(f"{where} returns no column '{source.watermark}' (source.watermark), only {shown}.")
    used = dict.fromkeys([*([watermark] if watermark else []), *mapping.values()])
    kinds = {"user_id": pseudonyms.PERSON, "order_id": pseudonyms.ORDER}
    ids = {mapping[ours]: kind for ours, kind in kinds.items() if ours in mapping}
    return Selection(table, source.interactions, {name: columns[name] for name in used}, watermark, ids)


def _rows(database: Database, selection: Selection, since: int | date | None) -> Iterator[pl.DataFrame]:
    """The rows from the watermark `since` on, in order. Types that only this database has come as text."""
    quoted = {name: database.quote(name) for name in selection.types}
    chosen = [
        f"CAST({quoted[name]} AS TEXT) AS {quoted[name]}" if isinstance(kind, pa.BaseExtensionType) else quoted[name]
        for name, kind in selection.types.items()
    ]
    where = f" WHERE {quoted[str(selection.watermark)]} >= {_literal(since)}" if since is not None else ""
    order = ", ".join(str(number) for number in range(1, len(chosen) + 1))  # the watermark is the first
    yield from database.batches(f"SELECT {', '.join(chosen)} FROM {_inner(selection.query)}{where} ORDER BY {order}")


def _literal(value: int | date) -> str:
    return str(value) if isinstance(value, int) else f"'{value}'"


def _hidden(source: SqlSource, selection: Selection, frames: Iterator[pl.DataFrame]) -> Iterator[pl.DataFrame]:
    """The same rows with pseudonyms in place of ids, where the source has a key."""
    if not source.pseudonyms:
        yield from frames
        return
    key = pseudonyms.read(source.pseudonyms)
    for frame in frames:
        ids = {name: normalise.identity(frame.lazy(), name, text=False) for name in selection.ids}
        yield frame.with_columns(**{name: key.column(ids[name], kind) for name, kind in selection.ids.items()})
