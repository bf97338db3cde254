"""Tables of users named in a request or on the command line: scanned lazily, and their columns as types."""

from __future__ import annotations

import difflib
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import polars as pl

from merit.core.errors import DataError
from merit.data import times
from merit.data.schema import FILE, ROW
from merit.data.sources import files


@contextmanager
def scanning(
    place: Path, option: str, needed: Sequence[str], select: Callable[[pl.LazyFrame, str], pl.LazyFrame]
) -> Iterator[pl.LazyFrame]:
    """All files at a path, which must have the `needed` columns. `select` gets scans with the name of their first file,
    and gives equal columns of them."""
    paths = files.find(place, f"{option} PATH")
    with files.reading(paths):
        scans = [(frame, str(file)) for frame, file in files.scan_all(paths, place)]
        for frame, file in scans:
            for name in needed:
                column_type(frame, name, file)
        yield pl.concat([select(frame, file) for frame, file in scans])


def column_type(frame: pl.LazyFrame, name: str, file: str) -> pl.DataType:
    """The type of a column that must be there."""
    schema = frame.collect_schema()
    if name not in schema:
        names = [other for other in schema if other not in (ROW, FILE)]
        near = difflib.get_close_matches(name, names, n=1, cutoff=0.4)
        remedy = f"Rename '{near[0]}' if that is the one." if near else "Add it."
        raise DataError(f"{file} has no column '{name}'. Columns found: {', '.join(names[:30])}. {remedy}")
    return schema[name]


def numbers(frame: pl.LazyFrame, name: str, file: str) -> pl.Expr:
    """A column as Float64: text is parsed, and null where it is no number."""
    dtype = column_type(frame, name, file)
    if isinstance(dtype, pl.String):
        text = pl.col(name).str.strip_chars().str.to_lowercase()
        return text.replace({"true": "1", "false": "0"}).cast(pl.Float64, strict=False)
    if dtype.is_numeric() or isinstance(dtype, pl.Boolean | pl.Null):
        return pl.col(name).cast(pl.Float64)
    raise DataError(f"{file}: column '{name}' holds {dtype}, but numbers are needed. Convert it.")


def instants(frame: pl.LazyFrame, name: str, file: str) -> pl.Expr:
    """A column as times in UTC."""
    dtype = column_type(frame, name, file)
    if not times.readable(dtype):
        raise DataError(f"{file}: column '{name}' holds {dtype}, but times are needed. Convert it.")
    return times.instants(pl.col(name), dtype, "UTC")


def duplicates(frame: pl.LazyFrame, column: str) -> pl.DataFrame:
    """Values of a text column that come more than once: value, rows. Holds eight bytes a row, not the texts."""
    hashes = np.sort(frame.select(pl.col(column).hash()).collect(engine="streaming")[column].to_numpy())
    suspects = pl.Series(np.unique(hashes[1:][hashes[1:] == hashes[:-1]]))
    if suspects.is_empty():
        return pl.DataFrame(schema={column: pl.String, "rows": pl.UInt32})
    counts = frame.filter(pl.col(column).hash().is_in(suspects.implode())).group_by(column).agg(rows=pl.len())
    return counts.filter(pl.col("rows") > 1).collect(engine="streaming")  # two values may share a hash
