"""restore: an export with pseudonyms → the same rows with real ids, in a file outside every run."""

from __future__ import annotations

from pathlib import Path

import polars as pl

from merit.campaigns import tables
from merit.campaigns.audiences import export
from merit.core.errors import ConfigError, DataError
from merit.core.files import drafted
from merit.data import normalise
from merit.data.schema import FILE, ROW
from merit.data.sources import files
from merit.privacy import pseudonyms
from merit.privacy.pseudonyms import PseudonymKey

USER = "user_id"


def restore(exported: Path, listed: Path, out: Path, column: str = USER) -> int:
    """Write all rows or none, to a file that its owner alone can read; the number of rows."""
    key, form = pseudonyms.in_use(), out.suffix.removeprefix(".")
    if form not in export.WRITERS:
        raise ConfigError(f"{out}: files with ids end in .{', .'.join(export.WRITERS)}. Rename it.")
    pseudonyms.require_apart(out)
    files.require_file(exported)
    rows = files.scan(exported, exported.parent).drop(ROW, FILE)
    tables.column_type(rows, USER, str(exported))
    ids = _ids(listed, column)
    with files.reading((exported,)):
        restored = with_ids(rows.with_columns(pl.col(USER).cast(pl.String)), ids, key)
    with drafted(out) as draft:
        export.WRITERS[form](restored.lazy(), draft)
    return len(restored)


def with_ids(rows: pl.LazyFrame, ids: pl.Series, key: PseudonymKey) -> pl.DataFrame:
    """Rows with real ids in place of pseudonyms, looked up among `ids`. All of them, or an error."""
    distinct = ids.drop_nulls().unique().cast(pl.String)
    book = pl.LazyFrame({USER: pl.Series(key.of(distinct.to_list()), dtype=pl.String), "real": distinct})
    joined = rows.join(book, on=USER, how="left", maintain_order="left").collect(engine="streaming")
    if missing := joined["real"].null_count():
        raise DataError(
            f"{missing:,} of {len(joined):,} users are no pseudonyms of key {key.number} of any id in that list. "
            "Give all ids of the run's source, and its key."
        )
    return joined.with_columns(pl.col("real").alias(USER)).drop("real")


def _ids(place: Path, column: str) -> pl.Series:
    """Different ids of a table, read as `prepare` reads them."""

    def select(frame: pl.LazyFrame, file: str) -> pl.LazyFrame:
        return frame.select(normalise.identity(frame, column, files.is_text(Path(file))).alias(column))

    with tables.scanning(place, "--ids", [column], select) as ids:
        return ids.unique().collect(engine="streaming")[column]
