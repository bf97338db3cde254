"""A connection to a database, by the address in an environment variable: what a query returns, in batches.

| address | driver |
|---|---|
| postgresql://reader@host/shop | ADBC (adbc-driver-postgresql) |
| duckdb:///shop.duckdb | duckdb, read-only |
| sqlite:///shop.db | ADBC (adbc-driver-sqlite), read-only |
| any, with `driver = "adbc_driver_…"` | that package |
| any other, such as mysql+pymysql://reader@host/shop | SQLAlchemy |

The address never leaves this module: what a driver says is cleared of it before anybody reads it.
"""

from __future__ import annotations

import importlib
import re
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, ExitStack, contextmanager
from dataclasses import dataclass
from tempfile import TemporaryDirectory
from typing import Any
from urllib.parse import unquote

import polars as pl
import pyarrow as pa

from merit.core import secrets
from merit.core.errors import DataError, MeritError, MissingDependency

INSTALL = "pip install 'merit-interests[sql]'"
ROWS_AT_ONCE = 50_000
DUCKDB_MEMORY = "512MB"  # for sorting; more of it goes to the disk


@dataclass(frozen=True)
class Database:
    """An open connection. All its reads are of one state of the database where it can do that."""

    columns: Callable[[str], dict[str, pa.DataType | None]]
    """Of a query; the type is None where only rows would show it."""
    batches: Callable[[str], Iterator[pl.DataFrame]]
    quote: Callable[[str], str] = lambda name: '"' + name.replace('"', '""') + '"'


@dataclass(frozen=True)
class Address:
    """What an environment variable holds. It is printed by the variable's name only."""

    variable: str
    value: str

    def __repr__(self) -> str:
        return f"<{self.variable}>"

    @property
    def scheme(self) -> str:
        """The part before ://; that of libpq for its other form, `host=… dbname=…`."""
        scheme, mark, _ = self.value.partition("://")
        return scheme.lower() if mark else "postgresql"

    @property
    def path(self) -> str:
        """The file of a database that is one; sqlite:///shop.db is relative, sqlite:////srv/shop.db is not."""
        return unquote(self.value.partition("://")[2].removeprefix("/"))


def address(variable: str) -> Address:
    """The address in an environment variable."""
    meaning = "the address of the database (source.connection), such as postgresql://reader@host/shop"
    return Address(variable, secrets.read(variable, meaning))


@contextmanager
def connect(place: Address, driver: str | None = None) -> Iterator[Database]:
    """The database at an address; `driver` names an ADBC package."""
    with ExitStack() as stack:
        opened = _adbc(driver, place.value) if driver else OPEN.get(place.scheme, _sqlalchemy)(place)
        refusal = f"The database that {place.variable} names cannot be opened"
        with explained(place, refusal, f"Mend the address in {place.variable}."), _missing(place):
            database = stack.enter_context(opened)
        yield database


@contextmanager
def explained(place: Address, what: str, remedy: str) -> Iterator[None]:
    """Turn whatever a driver raises into one sentence without secrets. Nothing else belongs into the block."""
    try:
        yield
    except MeritError:
        raise
    except Exception as error:  # every driver has exceptions of its own, and some raise those of Arrow
        lines = [line.strip() for line in str(error).splitlines() if line.strip()] or [type(error).__name__]
        reason = re.sub(r"^(?:.*\b(?:ERROR|FATAL):\s+|(?:\w+: )?(?:\[\w+\] )?)", "", lines[0])
        raise DataError(f"{what}: {secrets.cleared(reason, place.value)[:300].rstrip('.')}. {remedy}") from None


@contextmanager
def _missing(place: Address) -> Iterator[None]:
    try:
        yield
    except ImportError as error:
        ours = {"adbc_driver_postgresql", "adbc_driver_sqlite", "adbc_driver_manager", "duckdb", "sqlalchemy"}
        package = (error.name or "").split(".")[0]
        install = INSTALL if package in ours else f"pip install {package.replace('_', '-')}"
        raise MissingDependency(f"The database that {place.variable} names needs {package}. Run: {install}") from None


# --- drivers ---------------------------------------------------------------------------------------------------------


@contextmanager
def _adbc(package: str, value: str, first: str = "") -> Iterator[Database]:
    """Any ADBC driver. `first` is a statement that begins the transaction."""
    driver = importlib.import_module(f"{package}.dbapi")
    with driver.connect(value) as connection, connection.cursor() as cursor:
        if first:
            cursor.execute(first)

        def read(sql: str) -> Any:
            cursor.execute(sql)
            return cursor.fetch_record_batch()

        yield _streamed(read)


@contextmanager
def _duckdb(place: Address) -> Iterator[Database]:
    duckdb = importlib.import_module("duckdb")
    file = place.path or ":memory:"
    with (
        TemporaryDirectory() as scratch,  # by default it would lie beside the database
        duckdb.connect(
            file,
            read_only=file != ":memory:",
            config={"memory_limit": DUCKDB_MEMORY, "temp_directory": scratch},
        ) as connection,
    ):
        connection.begin()
        yield _streamed(lambda sql: connection.sql(sql).to_arrow_reader(ROWS_AT_ONCE))


@contextmanager
def _sqlalchemy(place: Address) -> Iterator[Database]:
    """Rows of Python values; types are those of the first batch."""
    sqlalchemy = importlib.import_module("sqlalchemy")
    engine = sqlalchemy.create_engine(place.value, hide_parameters=True)
    options = {"stream_results": True, "max_row_buffer": ROWS_AT_ONCE, "no_parameters": True}  # % is a % in a query
    with engine.connect().execution_options(**options) as connection:

        def columns(sql: str) -> dict[str, pa.DataType | None]:
            return dict.fromkeys(connection.exec_driver_sql(sql).keys())

        def batches(sql: str) -> Iterator[pl.DataFrame]:
            result, schema = connection.exec_driver_sql(sql), None
            for rows in result.partitions(ROWS_AT_ONCE):
                frame = pl.DataFrame([tuple(row) for row in rows], list(result.keys()), orient="row", strict=False)
                frame = frame.with_columns(pl.col(pl.Null).cast(pl.String))
                schema = schema or frame.schema
                yield frame.cast(schema)

        yield Database(columns, batches, engine.dialect.identifier_preparer.quote)
    engine.dispose()


def _streamed(read: Callable[[str], Any]) -> Database:
    """A database of which `read` gives a stream of Arrow batches for a query."""

    def columns(sql: str) -> dict[str, pa.DataType | None]:
        with read(sql) as reader:
            return {field.name: field.type for field in reader.schema}

    def batches(sql: str) -> Iterator[pl.DataFrame]:
        with read(sql) as reader:
            for batch in reader:
                yield _frame(batch)

    return Database(columns, batches)


def _frame(batch: pa.RecordBatch) -> pl.DataFrame:
    frame = pl.DataFrame(batch)
    zoned = [name for name, kind in frame.schema.items() if isinstance(kind, pl.Datetime) and kind.time_zone]
    in_utc = [pl.col(name).dt.convert_time_zone("UTC") for name in zoned]
    return frame.with_columns(pl.col(pl.Categorical, pl.Enum).cast(pl.String), *in_utc)


# One state for all queries, and no right to change it.
_FROZEN = "SET TRANSACTION ISOLATION LEVEL REPEATABLE READ, READ ONLY"
OPEN: Mapping[str, Callable[[Address], AbstractContextManager[Database]]] = {
    "postgresql": lambda place: _adbc("adbc_driver_postgresql", place.value, _FROZEN),
    "postgres": lambda place: _adbc("adbc_driver_postgresql", place.value, _FROZEN),
    "duckdb": _duckdb,
    "sqlite": lambda place: _adbc("adbc_driver_sqlite", f"file:{place.path}?mode=ro"),
}


def driver_name(name: str | None) -> str | None:
    """The name of an ADBC package, checked: no other module is imported because a file says so."""
    if name is not None and not re.fullmatch(r"adbc_driver_\w+", name):
        raise ValueError("not an ADBC driver; write its package, such as adbc_driver_snowflake")
    return name


def variable_name(connection: str) -> str:
    """`env:NAME`, checked. The value is not repeated: it may be an address that stands in the wrong place."""
    if not re.fullmatch(r"(env:)?[A-Za-z_]\w*", connection):
        raise ValueError('name an environment variable that holds the address, as in "env:SHOP_DSN"; it is secret')
    return connection


def without_secrets(query: str) -> str:
    """A query, checked: it is kept in manifests."""
    if re.search(r"(?i)\b(?:password|passwd|pwd|secret\w*)\s*=|://[^/\s:@']+:[^@\s']+@", query):
        raise ValueError("a query is kept in manifests, and this one has a password in it; give it to the database")
    return query
