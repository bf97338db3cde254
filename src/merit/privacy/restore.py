"""restore: an export with pseudonyms → the same rows with real ids, in a file outside every run."""

from __future__ import annotations

from pathlib import Path

import polars as pl

from merit.campaigns import tables
from merit.campaigns.audiences import export
from merit.core.errors import ConfigError
from merit.core.files import drafted
from merit.data import normalise
from merit.data.schema import FILE, ROW
from merit.data.sources import files
from merit.privacy import pseudonyms

USER = "user_id"


def restore(exported: Path, listed: Path, out: Path, column: str = USER) -> int:
    """All rows or none; the file is its owner's alone. How many rows it has."""
    key, form = pseudonyms.in_use(), out.suffix.removeprefix(".")
    if form not in export.WRITERS:
        raise ConfigError(f"{out}: files with ids end in .{', .'.join(export.WRITERS)}. Rename it.")
    pseudonyms.require_apart(out)
    files.require_file(exported)
    rows = files.scan(exported, exported.parent).drop(ROW, FILE)
    tables.column_type(rows, USER, str(exported))
    ids = _ids(listed, column)
    with files.reading((exported,)):
        found = pseudonyms.restored(rows.with_columns(pl.col(USER).cast(pl.String)), ids, key, USER)
    with drafted(out) as draft:
        export.WRITERS[form](found.lazy(), draft)
    return len(found)


def _ids(place: Path, column: str) -> pl.Series:
    """Different ids of a table, read as `prepare` reads them."""
    with tables.scanning(place, "--ids") as scans:
        parts = [
            frame.select(normalise.identity(frame, column, files.is_text(Path(file))).alias(column))
            for frame, file in scans
            if tables.column_type(frame, column, file)
        ]
        return pl.concat(parts).unique().collect(engine="streaming")[column]
