"""Where rows are sent: settings without a secret in them, and the secrets from environment variables.

[destination]
kind = "postgres"
connection = "env:CRM_DSN"                   # the name of the environment variable that holds the address
table = "marketing.audience_members"
columns = { external_id = "customer_id" }
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, Any, Literal
from urllib.parse import urlsplit

from pydantic import AfterValidator, Field, model_validator

from merit.core import config, secrets
from merit.core.config import Frozen
from merit.core.errors import ConfigError, DestinationError

Mode = Literal["mirror", "upsert", "append"]
VARIABLE = "^(env:)?[A-Za-z_][A-Za-z0-9_]*$"
Variable = Annotated[str, Field(pattern=VARIABLE), AfterValidator(lambda name: name.removeprefix("env:"))]
"""`env:NAME`, or NAME: an environment variable. The secret itself is in no file."""
Name = Annotated[str, Field(min_length=1, max_length=128)]


class ColumnNames(Frozen):
    """The names that a destination has for the four columns."""

    external_id: Name = "external_id"
    audience: Name = "audience"
    payload: Name = "payload"
    updated_at: Name = "updated_at"

    @model_validator(mode="after")
    def _check_names(self) -> ColumnNames:
        if len(set(self.all)) < len(self.all):
            raise ValueError("two of the columns have one name; give each its own")
        return self

    @property
    def all(self) -> tuple[str, str, str, str]:
        """In the order of the row."""
        return self.external_id, self.audience, self.payload, self.updated_at


class PostgresTable(Frozen):
    """A table of PostgreSQL, made with the first sync if it is not there."""

    kind: Literal["postgres"]
    connection: Variable
    """The variable with the address, postgresql://user:password@host/database."""
    table: Annotated[str, Field(pattern=r"^[^.\x00]+(\.[^.\x00]+)?$")]
    """TABLE or SCHEMA.TABLE, in the letters the database has for them."""
    columns: ColumnNames = ColumnNames()


class DuckdbTable(Frozen):
    """A table of a DuckDB file."""

    kind: Literal["duckdb"]
    file: Path
    table: Annotated[str, Field(pattern=r"^[^.\x00]+(\.[^.\x00]+)?$")]
    columns: ColumnNames = ColumnNames()


class ObjectFile(Frozen):
    """A Parquet or CSV file on disk or in a bucket, replaced as a whole. Keys of the bucket are in the environment."""

    kind: Literal["file"]
    address: Annotated[str, Field(pattern=r"\.(parquet|csv)$")]
    """s3://bucket/folder/{audience}.parquet: {audience} becomes the audience's name, with - for other than letters."""
    columns: ColumnNames = ColumnNames()


class Webhook(Frozen):
    """An address that takes batches as JSON, by POST."""

    kind: Literal["webhook"]
    address: Variable
    """The variable with the URL."""
    token: Variable | None = None
    """The variable with what is sent as `Authorization: Bearer …`."""
    columns: ColumnNames = ColumnNames()
    batch: int = Field(500, ge=1, le=10_000)
    """Rows at most in a request."""
    timeout: float = Field(10.0, gt=0, le=600)
    """Seconds until an answer."""
    attempts: int = Field(6, ge=1, le=20)
    """Of a batch that fails or is not answered."""
    wait: float = Field(0.5, gt=0, le=60)
    """Seconds before the second attempt; twice as long before each later one, or as long as Retry-After says."""


Destination = Annotated[PostgresTable | DuckdbTable | ObjectFile | Webhook, Field(discriminator="kind")]


class DestinationFile(Frozen):
    """A file of settings."""

    destination: Destination


def read(path: Path) -> Destination:
    """The settings in a file: its section [destination], or all of it."""
    values = config.read(path, "docs/warehouse.md shows one to start from.")
    section = values.get("destination", values)
    _require_no_secret(path, section if isinstance(section, dict) else {})
    return config.build(DestinationFile, {"destination": section}, origin=str(path)).destination


def _require_no_secret(path: Path, section: dict[str, Any]) -> None:
    """Before anything else reads them: a message about settings that do not fit would repeat them."""
    for name in ("connection", "address", "token"):
        value = section.get(name)
        if not isinstance(value, str):
            continue
        if section.get("kind") == "file":
            split = urlsplit(value)
            if "@" in split.netloc or split.query:
                raise ConfigError(f"{path}: {name} has a key or a query in it. Put keys into the environment.")
        elif not re.fullmatch(VARIABLE, value):
            raise ConfigError(
                f"{path}: {name} holds something that is no name of an environment variable. Put the address or secret "
                f'into a variable, such as CRM_SECRET, and its name here: {name} = "env:CRM_SECRET".'
            )


def title(destination: Destination) -> str:
    """What a destination is called in messages and in the audit log, without a secret."""
    match destination:
        case PostgresTable():
            return f"table {destination.table} of ${destination.connection}"
        case DuckdbTable():
            return f"table {destination.table} of {destination.file}"
        case ObjectFile():
            return destination.address
        case Webhook():
            return f"webhook ${destination.address}"


def postgres_address(variable: str) -> str:
    """The address of a database. One that libpq would read in another way than it is meant is refused here."""
    address = secrets.read(variable, "the address, postgresql://user:password@host:port/database")
    if "=" in address and "://" not in address:
        return address  # a connection string, host=… user=…
    try:
        split = urlsplit(address)
        fits = split.scheme in ("postgresql", "postgres") and split.port != 0 and address.count("@") <= 1
    except ValueError:
        fits = False
    if not fits:
        raise ConfigError(
            f"The environment variable {variable} holds no address of a database. Write it as "
            "postgresql://user:password@host:port/database, with %2F for / and %40 for @ in the password."
        )
    return address


@contextmanager
def refusals(place: str, kinds: type[Exception] | tuple[type[Exception], ...], *values: str) -> Iterator[None]:
    """Turn a driver's error into one sentence without a secret."""
    try:
        yield
    except kinds as error:
        message = secrets.cleared(str(error) or type(error).__name__, *values)[:400].rstrip(".")
        remedy = next((text for word, text in REMEDIES.items() if word in message), "Correct it, and sync again.")
        raise DestinationError(f"{place} refused the rows, and nothing was changed: {message}. {remedy}") from None


REMEDIES = {
    "permission denied": "Grant it: SELECT, INSERT, UPDATE and DELETE on the table, TEMPORARY on the database; and "
    "CREATE on the schema if the table is not there yet.",
    "authentication failed": "Correct user and password in the environment variable.",
    "connect": "Correct the address in the environment variable, or wait until the server is there.",
    "connection": "Correct the address in the environment variable, or wait until the server is there.",
    "lock": "Another program has it open. Wait for it, and sync again.",
    "invalid input syntax": "The column has another type than the values. Map another column, or change its type.",
    "Could not convert": "The column has another type than the values. Map another column, or change its type.",
}


def described(destination: Destination) -> dict[str, Any]:
    """For the audit log: the settings, which hold names of variables and no value of one."""
    return destination.model_dump(mode="json", exclude_defaults=True)
