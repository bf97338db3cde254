"""A route about the tables that rules may name: their names and columns, never a row of them."""

from __future__ import annotations

from pathlib import Path

import polars as pl

from merit.campaign import tables as campaign_tables
from merit.data.schema import FILE, ROW
from merit.data.sources.files import FORMATS
from merit.errors import MeritError
from merit.serving import places, shapes
from merit.serving.asking import TheService
from merit.serving.limits import MOST_TABLES


def tables(service: TheService) -> shapes.Tables:
    """The tables that a rule may name. Files that cannot be read are left out."""
    if service.tables is None:
        return shapes.Tables(offered=False, items=[])
    root = service.tables.resolve()
    names = [file.relative_to(root) for file in sorted(root.rglob("*")) if file.name.endswith(tuple(FORMATS))]
    rows = [row for name in names[:MOST_TABLES] if (row := _row(name, root))]
    return shapes.Tables(offered=True, items=rows)


def columns_of(place: Path) -> list[str] | None:
    """None of what cannot be read as a table."""
    try:
        columns = campaign_tables.scans([place], place)[0][0].collect_schema().names()
    except (MeritError, pl.exceptions.PolarsError, OSError):
        return None
    return [each for each in columns if each not in (ROW, FILE)]


def _row(name: Path, root: Path) -> shapes.TableRow | None:
    try:
        columns = columns_of(places.found(name, root))
    except MeritError:
        return None
    return None if columns is None else shapes.TableRow(name=name.as_posix(), columns=columns)
