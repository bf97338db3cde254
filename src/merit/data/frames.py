"""Tables in memory, as callers have them: polars, pandas, Arrow, DuckDB, or whatever speaks Arrow."""

from __future__ import annotations

from typing import Any

import polars as pl

from merit.core.errors import DataError


def polars(table: Any, what: str = "The events") -> pl.DataFrame:
    """The table as a polars frame; `what` it is is for the message."""
    if isinstance(table, pl.LazyFrame):
        return table.collect()
    if isinstance(table, pl.DataFrame):
        return table
    if is_pandas(table):
        return pl.from_pandas(table)
    if hasattr(table, "__arrow_c_stream__"):  # Arrow tables, and relations of newer DuckDB
        frame = pl.DataFrame(table)
        return frame
    if callable(convert := getattr(table, "pl", None)):  # DuckDB
        converted: pl.DataFrame = convert()
        return converted
    raise DataError(f"{what}: a table of polars, pandas, Arrow or DuckDB is needed, not {type(table).__name__}.")


def is_pandas(table: Any) -> bool:
    """Whether it is a pandas frame; pandas is not imported to tell."""
    return type(table).__module__.split(".")[0] == "pandas"
