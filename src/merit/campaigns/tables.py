"""Tables of users named on the command line: found, opened lazily, and asked for a column."""

from __future__ import annotations

import difflib
from pathlib import Path

import numpy as np
import polars as pl

from merit.core.errors import DataError
from merit.data.schema import FILE, ROW
from merit.data.sources import files


def find(place: Path, option: str) -> list[Path]:
    """The data files at a path that was given with `option`."""
    try:
        return files.find(place, "table")
    except DataError as error:
        raise DataError(str(error).replace("--set table=PATH", f"{option} PATH")) from None


def scans(found: list[Path], place: Path) -> list[tuple[pl.LazyFrame, str]]:
    """Files that share columns and types share a scan; each comes with the name of its first file."""
    root = place if place.is_dir() else place.parent
    return [(frame, str(file)) for frame, file in files.scan_all(found, root)]


def column_in(frame: pl.LazyFrame, name: str, file: str) -> pl.DataType:
    """The type of a column that must be there."""
    schema = frame.collect_schema()
    if name not in schema:
        theirs = [each for each in schema if each not in (ROW, FILE)]
        near = difflib.get_close_matches(name, theirs, n=1, cutoff=0.4)
        told = f" Rename '{near[0]}' if that is the one." if near else " Add it."
        raise DataError(f"{file} has no column '{name}'. Columns found: {', '.join(theirs[:30])}.{told}")
    return schema[name]


def repeated(frame: pl.LazyFrame, column: str) -> pl.DataFrame:
    """Values of a text column that come more than once: value, rows. Holds eight bytes a row, not the texts."""
    hashes = frame.select(pl.col(column).hash()).collect(engine="streaming")[column].to_numpy()
    hashes = np.sort(hashes)
    suspects = pl.Series(np.unique(hashes[1:][hashes[1:] == hashes[:-1]]))
    if suspects.is_empty():
        return pl.DataFrame(schema={column: pl.String, "rows": pl.UInt32})
    found = frame.filter(pl.col(column).hash().is_in(suspects.implode())).group_by(column).agg(rows=pl.len())
    return found.filter(pl.col("rows") > 1).collect(engine="streaming")  # two values may share a hash
