"""Members of an audience as a file for other programs, and for people who open it in a spreadsheet.

A cell that begins with =, +, −, @ or a tab is run as a formula by spreadsheets: an id such as =HYPERLINK(…) would send
away what stands beside it. In CSV such a cell gets an apostrophe in front, and every text stands in quotes, so that a
spreadsheet with another separator does not cut a formula out of its middle. Parquet and JSONL keep texts as they are.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Literal

import polars as pl

Form = Literal["parquet", "csv", "jsonl"]
MARK = "'"
# What begins a formula, in the widths that spreadsheets fold together, behind anything a spreadsheet skips or strips.
DANGEROUS = r"^[\s\p{C}\p{Z}]*[=+\-−@＝＋－＠|%'\"]|^[\t\r\n]"


def safe(texts: pl.Expr) -> pl.Expr:
    """The texts as cells that no spreadsheet runs. A leading apostrophe is doubled, so the mark can be taken off."""
    return pl.when(texts.str.contains(DANGEROUS)).then(pl.concat_str(pl.lit(MARK), texts)).otherwise(texts)


def marked(members: pl.LazyFrame) -> int:
    """How many ids differ in CSV from what they are."""
    return int(members.select(pl.col("user_id").str.contains(DANGEROUS).sum()).collect(engine="streaming").item())


def _csv(members: pl.LazyFrame, file: Path) -> None:
    texts = [name for name, dtype in members.collect_schema().items() if dtype in (pl.String, pl.Enum)]
    safe_texts = members.with_columns(safe(pl.col(name).cast(pl.String)).alias(name) for name in texts)
    safe_texts.sink_csv(file, quote_style="non_numeric")


WRITERS: dict[Form, Callable[[pl.LazyFrame, Path], None]] = {
    "parquet": lambda members, file: members.sink_parquet(file),
    "csv": _csv,
    "jsonl": lambda members, file: members.sink_ndjson(file),
}
