"""The files of a table that was read from a database.

Equal rows make equal files, whenever they were read: every file has the same number of rows but the last, and rows
come in the order of their watermark and then of all other columns.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import polars as pl
import pyarrow.parquet as pq

from merit.core.errors import ConfigError, DataError

PART_ROWS = 500_000


@dataclass(frozen=True)
class KeptRows:
    """Rows of the snapshot before that are below its watermark. Those that equal it are read again: more may have come
    with the same value."""

    value: Any = None
    """The watermark of the snapshot before."""
    files: tuple[Path, ...] = ()
    """Whole files that stay as they are."""
    rest: pl.DataFrame | None = None
    """Rows of the file after these."""
    types: Mapping[str, str] | None = None

    @staticmethod
    def of(folder: Path, watermark: str | None, held: Mapping[str, Any] | None) -> KeptRows:
        """The rows in a folder that go on; none where the table has no watermark."""
        if not held or not watermark:
            return KeptRows()
        paths, column = sorted(folder.glob("*.parquet")), pl.col(watermark)
        value = pl.read_parquet(paths[-1], columns=[watermark])[watermark].max()
        if value is None:  # all its users were erased
            return KeptRows()
        below = [pl.scan_parquet(path).select((column < value).sum()).collect().item() for path in paths]
        whole = [path for path, rows in zip(paths, below, strict=True) if rows == pq.read_metadata(path).num_rows]
        return KeptRows(value, tuple(whole), pl.read_parquet(paths[len(whole)]).filter(column < value), held["columns"])


def write(
    frames: Iterator[pl.DataFrame], folder: Path, table: str, watermark: str | None, kept: KeptRows
) -> dict[str, Any]:
    """Write what is kept and then the rows that come; what a manifest says of them."""
    for path in kept.files:
        os.link(path, folder / path.name)
    types, waiting = kept.types, [kept.rest] if kept.rest is not None else []
    number, rows = len(kept.files), sum(pq.read_metadata(path).num_rows for path in kept.files)
    for frame in frames:
        types = types or types_of(frame)
        require_same(table, types, types_of(frame))
        _require_watermark(frame, watermark)
        waiting.append(frame)
        while sum(map(len, waiting)) >= PART_ROWS:
            joined = pl.concat(waiting)
            number, rows = _part(joined.head(PART_ROWS), folder, number, rows)
            waiting = [joined.slice(PART_ROWS)]
    if any(map(len, waiting)):
        number, rows = _part(pl.concat(waiting), folder, number, rows)
    if not rows:
        raise DataError(
            f"The query of {table} returns no rows. Mend it (source.{table}), or see whether its role may read them."
        )
    summary = {"rows": rows, "columns": dict(types or {}), "watermark": None}
    if watermark:
        newest = pl.read_parquet(folder / _name(number - 1), columns=[watermark]).max().item()
        summary["watermark"] = {"column": watermark, "value": str(newest)}
    return summary


def _part(frame: pl.DataFrame, folder: Path, number: int, rows: int) -> tuple[int, int]:
    frame.rechunk().write_parquet(folder / _name(number), row_group_size=PART_ROWS)
    return number + 1, rows + len(frame)


def _name(number: int) -> str:
    return f"part-{number:05}.parquet"


def types_of(frame: pl.DataFrame) -> dict[str, str]:
    """Column → type."""
    return {name: str(kind) for name, kind in frame.schema.items()}


def require_same(table: str, before: Mapping[str, str], now: Mapping[str, str | None]) -> None:
    """Refuse other columns or types than those that were read before; None is a type that is not known yet."""
    gone, new = [name for name in before if name not in now], [name for name in now if name not in before]
    kinds = {name: kind for name, kind in now.items() if kind not in (None, before.get(name))}
    other = [f"{name} was {before[name]} and is {kind}" for name, kind in kinds.items() if name in before]
    if gone or new or other:
        changes = [*(f"{name} is gone" for name in gone), *(f"{name} is new" for name in new)] or other
        raise DataError(
            f"The query of {table} returns other columns than before: {'; '.join(changes)}. Read the tables anew with "
            "`merit data pull CONFIG --full`."
        )


def _require_watermark(frame: pl.DataFrame, watermark: str | None) -> None:
    if not watermark:
        return
    values = frame[watermark]
    if not (values.dtype.is_integer() or values.dtype in (pl.Date, pl.Datetime)):
        raise ConfigError(
            f"source.watermark: {watermark} is {values.dtype}, and a whole number, a date or a time is needed. Cast it "
            "in the query (source.interactions)."
        )
    if values.null_count():
        raise DataError(
            f"The column {watermark} (source.watermark) is empty in {values.null_count():,} rows, so that it cannot "
            "tell which rows are new. Leave them out of the query (source.interactions), or take another column."
        )
