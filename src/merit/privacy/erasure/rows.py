"""A file again, without some of its rows; all others as they were."""

from __future__ import annotations

import csv
import json
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import polars as pl
from safetensors.numpy import load_file, save_file

from merit.core.types import Ints
from merit.retrieval.store import ArrayWriter, MappedArray

BLOCK = 16_384  # rows of an array at a time


def drop_from_table(file: Path, out: Path, rows: Ints, numbered: str | None = None) -> None:
    """A Parquet file, in a stream. The column `numbered` counts its rows and is counted anew."""
    kept = pl.scan_parquet(file).with_row_index(ROW).filter(~pl.col(ROW).is_in(rows.tolist())).drop(ROW)
    if numbered:
        kept = kept.with_columns(pl.int_range(pl.len(), dtype=pl.UInt32).alias(numbered))
    ours = {name: value for name, value in pl.read_parquet_metadata(file).items() if not name.startswith("ARROW")}
    kept.sink_parquet(out, metadata=ours or None)


ROW = "row to be dropped"


def drop_from_array(file: Path, out: Path, rows: Ints) -> None:
    """A .npy file, block by block."""
    array = MappedArray(file).array
    with ArrayWriter(out, array.dtype.str, (len(array) - len(rows), *array.shape[1:])) as writer:
        for start in range(0, len(array), BLOCK):
            block = np.arange(start, min(start + BLOCK, len(array)))
            writer.add(array[block[~np.isin(block, rows)]])


def drop_from_arrays(file: Path, out: Path, rows: Ints) -> None:
    """Every array of a safetensors file."""
    save_file({name: np.delete(array, rows, axis=0) for name, array in load_file(file).items()}, out)


def csv_records(file: Path) -> Iterator[tuple[str, list[str]]]:
    """Each record as it stands, and its cells. A cell may hold line breaks: quotes of a whole record are even."""
    with file.open(encoding="utf-8", newline="") as lines:
        record = ""
        for line in lines:
            record += line
            if record.count('"') % 2 == 0:
                yield record, next(csv.reader([record]))
                record = ""


def drop_from_csv(file: Path, out: Path, column: str, values: frozenset[str]) -> None:
    """Without the records that have one of the values in the column; the header stays."""
    _write(out, (record for record, value in _csv_values(file, column) if value not in values))


def drop_from_json_lines(file: Path, out: Path, column: str, values: frozenset[str]) -> None:
    """Without the lines that have one of the values under the key `column`; numbers are compared as text."""
    _write(out, (line for line, value in _line_values(file, column) if value not in values))


def found_in_csv(file: Path, column: str, values: frozenset[str]) -> list[str]:
    """Those of the values that are there, as often as they are."""
    return [value for _, value in _csv_values(file, column) if value in values]


def found_in_json_lines(file: Path, column: str, values: frozenset[str]) -> list[str]:
    """Those of the values that are there, as text, once for each line that has one."""
    return [value for _, value in _line_values(file, column) if value in values]


def _csv_values(file: Path, column: str) -> Iterator[tuple[str, str]]:
    """Records and their value of a column; none of the header."""
    records = csv_records(file)
    header, names = next(records)
    yield header, ""
    place = names.index(column)
    for record, cells in records:
        yield record, cells[place]


def _line_values(file: Path, column: str) -> Iterator[tuple[str, str]]:
    with file.open(encoding="utf-8", newline="") as lines:
        for line in lines:
            yield line, str(json.loads(line)[column])


def _write(out: Path, texts: Iterator[str]) -> None:
    with out.open("w", encoding="utf-8", newline="") as file:
        file.writelines(texts)
