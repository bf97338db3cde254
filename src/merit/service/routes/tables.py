"""A route about the tables that rules may name: their names and columns, never a row of them."""

from __future__ import annotations

from pathlib import Path

import polars as pl

from merit.campaigns import tables as campaign_tables
from merit.core.errors import MeritError
from merit.data.schema import FILE, ROW
from merit.data.sources.files import FORMATS
from merit.service import places, schemas
from merit.service.asking import TheService
from merit.service.limits import MOST_TABLES


def tables(service: TheService) -> schemas.Tables:
    """The tables that a rule may name. Files that cannot be read are left out."""
    if service.tables is None:
        return schemas.Tables(offered=False, items=[])
    root = service.tables.resolve()
    names = [file.relative_to(root) for file in sorted(root.rglob("*")) if file.name.endswith(tuple(FORMATS))]
    rows = [row for name in names[:MOST_TABLES] if (row := _row(name, root))]
    return schemas.Tables(offered=True, items=rows)


def columns_of(place: Path) -> list[str] | None:
    """None of what cannot be read as a table."""
    try:
        columns = campaign_tables.scans([place], place)[0][0].collect_schema().names()
    except (MeritError, pl.exceptions.PolarsError, OSError):
        return None
    return [each for each in columns if each not in (ROW, FILE)]


def _row(name: Path, root: Path) -> schemas.TableRow | None:
    try:
        columns = columns_of(places.found(name, root))
    except MeritError:
        return None
    return None if columns is None else schemas.TableRow(name=name.as_posix(), columns=columns)
