"""How large a table is once it is decoded, as far as that has to be known to refuse it."""

from __future__ import annotations

from pathlib import Path

import polars as pl
import pyarrow.parquet as pq
from pyarrow import ArrowException

from merit.core.errors import DataError
from merit.data.sources import files

BATCH = 1_000  # rows that are decoded at once
CELL = 16  # bytes of a text's place in memory, beside those of the text itself


def require_small(file: Path, rows: int, size: int) -> None:
    """Refuse a file of more rows, or of more bytes once it is decoded; it is decoded part by part, and only so far."""
    large = DataError(
        f"{file} has more than {rows:,} rows, or unpacks to more than {size / 2**20:,.0f} MiB. Send its statistics, or "
        "a smaller table."
    )
    with files.reading((file,)):
        if files.kind_of(file) != "parquet":
            frame = files.scan(file, file.parent)
            count, columns = frame.select(pl.len()).collect(engine="streaming").item(), len(frame.collect_schema())
            if count > rows or count * columns * CELL > size:
                raise large
            return
        try:
            with pq.ParquetFile(file, pre_buffer=False, memory_map=True) as table:
                if table.metadata.num_rows > rows:
                    raise large
                decoded = 0
                for batch in table.iter_batches(BATCH, use_threads=False):
                    decoded += batch.nbytes
                    if decoded > size:
                        raise large
        except (ArrowException, ValueError) as error:
            raise DataError(f"{file} is damaged: {str(error)[:200]}. Copy or export it again.") from None
