"""Rows into a table of PostgreSQL or DuckDB: through ADBC in bulk into a temporary table, then one transaction.

The temporary table is compared with the table itself, and only what differs is written. A reader sees the rows of
before or those of after; a killed process leaves those of before. Syncs of one audience wait for each other.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from merit.campaigns.sync.destination import (
    ColumnNames,
    DuckdbTable,
    Mode,
    PostgresTable,
    postgres_address,
    refusals,
    title,
)
from merit.campaigns.sync.rows import SCHEMA, Outgoing, Proceed, SyncCounts
from merit.core.errors import DestinationError, MissingDependency

Table = PostgresTable | DuckdbTable
STAGE = "merit_stage"
TEXTS = ("text", "VARCHAR")  # where different ids stay different
STAGED = pa.schema([(name, pa.large_string()) for name in SCHEMA])


@dataclass(frozen=True)
class Dialect:
    """What one database says in another way than the other."""

    columns: str
    """The columns of the table named by $1, and their types."""
    lock: str
    """What keeps a second sync of this table waiting until the end of the transaction."""


POSTGRES = Dialect(
    "SELECT a.attname, format_type(a.atttypid, a.atttypmod) FROM pg_attribute a "
    "WHERE a.attrelid = to_regclass($1) AND a.attnum > 0 AND NOT a.attisdropped",
    "SELECT pg_advisory_xact_lock(hashtext('merit sync ' || $1))",
)
DUCKDB = Dialect(
    "SELECT column_name, data_type FROM duckdb_columns() "
    "WHERE $1 IN ('\"' || table_name || '\"', '\"' || schema_name || '\".\"' || table_name || '\"')",
    "SELECT $1",  # a file is open for one process at a time
)


def deliver(outgoing: Outgoing, destination: Table, mode: Mode, proceed: Proceed) -> SyncCounts:
    """Bring the rows of this audience in the table to those of `outgoing`."""
    with connected(destination) as connection:
        sync = TableSync(connection, destination, outgoing)
        types = sync.prepare()
        counts = sync.count(types).under(mode)
        if proceed(counts):
            sync.write(types, mode, counts)
            connection.commit()
        return counts


@contextmanager
def connected(destination: Table) -> Iterator[Any]:
    """A connection in a transaction, which is rolled back unless it is committed."""
    try:
        if isinstance(destination, PostgresTable):
            from adbc_driver_postgresql import dbapi
        else:
            from adbc_driver_duckdb import dbapi
        from adbc_driver_manager import Error
    except ImportError as error:
        raise MissingDependency(
            f"{title(destination)} needs {error.name}. Install it: pip install 'merit-interests[sql]'."
        ) from None
    if isinstance(destination, PostgresTable):
        address = postgres_address(destination.connection)
    else:
        address = str(destination.file)
    with refusals(title(destination), Error, address), _open(dbapi, address) as connection:
        yield connection


def _open(dbapi: Any, address: str) -> closing[Any]:
    return closing(dbapi.connect(address, autocommit=False))


class TableSync:
    """The statements of one sync, in one transaction."""

    def __init__(self, connection: Any, destination: Table, outgoing: Outgoing) -> None:
        self.connection, self.destination, self.outgoing = connection, destination, outgoing
        self.dialect = POSTGRES if isinstance(destination, PostgresTable) else DUCKDB
        self.table = ".".join(map(quoted, destination.table.split(".")))
        self.names: ColumnNames = destination.columns

    def run(self, sql: str, *values: str) -> list[Any]:
        """The rows of a statement, if it has any."""
        with closing(self.connection.cursor()) as cursor:
            cursor.execute(sql, values or None)
            return cursor.fetchall() if cursor.description else []

    def prepare(self) -> dict[str, str]:
        """Make the table if it is not there, and stage the rows. The types of its columns."""
        self.run(self.dialect.lock, self.table)
        if not (types := self.columns()):
            self.run(created(self.table, self.names))
            types = self.columns()
        for name, column in zip(ColumnNames.model_fields, self.names.all, strict=True):
            if column not in types:
                raise DestinationError(
                    f"{title(self.destination)} has no column '{column}', but {', '.join(types)}. Add it, or map "
                    f'another: columns = {{ {name} = "…" }}. Nothing was changed.'
                )
        with closing(self.connection.cursor()) as cursor:
            cursor.adbc_ingest(STAGE, self.batches(), mode="create", temporary=True)
        self.run(f"ANALYZE {STAGE}")
        return types

    def batches(self) -> pa.RecordBatchReader:
        """The rows as the driver takes them, one frame after the other."""
        frames = (frame.select(list(SCHEMA)).to_arrow().cast(STAGED) for frame in self.outgoing.frames)
        return pa.RecordBatchReader.from_batches(STAGED, (batch for frame in frames for batch in frame.to_batches()))

    def columns(self) -> dict[str, str]:
        """Column → its type in the table; empty if there is no table."""
        return dict(self.run(self.dialect.columns, self.table))

    def count(self, types: dict[str, str]) -> SyncCounts:
        """How the staged rows differ from the table."""
        parts = self.parts(types)
        (row,) = self.run(
            "SELECT count(*) FILTER (WHERE t.{id} IS NULL), count(*) FILTER (WHERE t.{id} IS NOT NULL AND {differs}), "
            "count(*), {distinct} FROM {stage} s "
            "LEFT JOIN {table} t ON t.{audience} = {name} AND t.{id} = {staged_id}".format(**parts),
            self.outgoing.audience,
        )
        added, updated, staged, distinct = map(int, row)
        if distinct < staged:
            raise DestinationError(
                f"{staged - distinct:,} ids are the same as others in the type of the column '{self.names.external_id}'"
                ". Map a column of texts. Nothing was changed."
            )
        ((removed,),) = self.run("SELECT count(*) FROM {table} t WHERE {gone}".format(**parts), self.outgoing.audience)
        return SyncCounts(added=added, updated=updated, removed=removed, unchanged=staged - added - updated)

    def write(self, types: dict[str, str], mode: Mode, counts: SyncCounts) -> None:
        """What differs, and nothing else."""
        parts, name, at = self.parts(types), self.outgoing.audience, self.outgoing.at
        if counts.removed:
            self.run("DELETE FROM {table} AS t WHERE {gone}".format(**parts), name)
        if counts.updated:
            self.run(
                "UPDATE {table} AS t SET {payload} = {staged_payload}, {updated_at} = CAST($2 AS {time}) "
                "FROM {stage} s WHERE t.{audience} = {name} AND t.{id} = {staged_id} AND {differs}".format(**parts),
                name,
                at,
            )
        if counts.added:
            self.run(
                "INSERT INTO {table} ({id}, {audience}, {payload}, {updated_at}) "
                "SELECT {staged_id}, {name}, {staged_payload}, CAST($2 AS {time}) FROM {stage} s WHERE NOT EXISTS "
                "(SELECT 1 FROM {table} t WHERE t.{audience} = {name} AND t.{id} = {staged_id})".format(**parts),
                name,
                at,
            )

    def parts(self, types: dict[str, str]) -> dict[str, str]:
        """Names and expressions of the statements, in the types of the table."""
        key, audience, payload, updated_at = map(quoted, self.names.all)
        key_type, payload_type = types[self.names.external_id], types[self.names.payload]
        compared = "text" if payload_type.lower() == "json" else payload_type  # json cannot be compared
        staged_id = f'CAST(s."external_id" AS {key_type})'
        same = f"SELECT 1 FROM {STAGE} s WHERE {staged_id} = t.{key}"
        name = f"CAST($1 AS {types[self.names.audience]})"
        return {
            "name": name,
            "distinct": "count(*)" if key_type in TEXTS else f"count(DISTINCT {staged_id})",
            "table": self.table,
            "stage": STAGE,
            "id": key,
            "audience": audience,
            "payload": payload,
            "updated_at": updated_at,
            "time": types[self.names.updated_at],
            "staged_id": staged_id,
            "staged_payload": f'CAST(s."payload" AS {payload_type})',
            "differs": f'CAST(t.{payload} AS {compared}) IS DISTINCT FROM CAST(s."payload" AS {compared})',
            "gone": f"t.{audience} = {name} AND NOT EXISTS ({same})",
        }


def quoted(name: str) -> str:
    """A name as SQL takes it, whatever is in it."""
    return '"' + name.replace('"', '""') + '"'


def created(table: str, names: ColumnNames) -> str:
    """The statement that makes the table."""
    key, audience, payload, updated_at = map(quoted, names.all)
    return (
        f"CREATE TABLE {table} ({key} text NOT NULL, {audience} text NOT NULL, {payload} text NOT NULL, "
        f"{updated_at} timestamp with time zone NOT NULL, PRIMARY KEY ({audience}, {key}))"
    )
