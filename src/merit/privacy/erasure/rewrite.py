"""Files written again without some rows, and a folder that takes the place of another in one step."""

from __future__ import annotations

import csv
import json
import os
import re
import shutil
from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np
import polars as pl
from numpy.typing import NDArray
from safetensors.numpy import load_file, save_file

from merit.core import files
from merit.core.artifacts import Artifact
from merit.core.types import Ints
from merit.data.prepare import shard_files
from merit.retrieval.store import MappedArray, writing

BLOCK = 16_384  # rows of an array at a time
ROW = "row to be dropped"
DRAFT = re.compile(r"\.(?P<name>.+)\.erased-(?P<number>[0-9a-f]+)(-old)?")


# --- rows of a file ---------------------------------------------------------------------------------------------------


def drop_rows(file: Path, out: Path, rows: Ints, numbered: str | None = None) -> None:
    """Write a file again without some rows. The column `numbered` of a table counts its rows and is counted anew."""
    if file.suffix == ".npy":
        array = MappedArray(file).array
        with writing(out, array.dtype.str, (len(array) - len(rows), *array.shape[1:])) as write:
            for start in range(0, len(array), BLOCK):
                block = np.arange(start, min(start + BLOCK, len(array)))
                write(array[block[~np.isin(block, rows)]])
    elif file.suffix == ".safetensors":
        save_file({name: np.delete(array, rows, axis=0) for name, array in load_file(file).items()}, out)
    else:
        kept = pl.scan_parquet(file).with_row_index(ROW).filter(~pl.col(ROW).is_in(rows.tolist())).drop(ROW)
        if numbered:
            kept = kept.with_columns(pl.int_range(pl.len(), dtype=pl.UInt32).alias(numbered))
        metadata = {key: text for key, text in pl.read_parquet_metadata(file).items() if not key.startswith("ARROW")}
        kept.sink_parquet(out, metadata=metadata or None)


def drop_lines(file: Path, out: Path, column: str, values: frozenset[str]) -> None:
    """Write CSV or JSON lines again without the records that have one of the values in the column."""
    with out.open("w", encoding="utf-8", newline="") as lines:
        lines.writelines(record for record, value in records(file, column) if value not in values)


def records(file: Path, column: str) -> Iterator[tuple[str, str]]:
    """Each record of a CSV or JSON lines file as it stands, and its value in a column as text; "" of a header."""
    with file.open(encoding="utf-8", newline="") as lines:
        if file.suffix == ".jsonl":
            yield from ((line, str(json.loads(line)[column])) for line in lines)
            return
        header = _csv_record(lines)
        place = next(csv.reader([header])).index(column)
        yield header, ""
        while record := _csv_record(lines):
            yield record, next(csv.reader([record]))[place]


def _csv_record(lines: Iterator[str]) -> str:
    """The next record. A cell may hold line breaks: the quotes of a whole record are even."""
    record = ""
    for line in lines:
        record += line
        if record.count('"') % 2 == 0:
            break
    return record


# --- shards of examples: users are numbers within a shard, and histories are ranges of rows; both move up -------------


def write_shard(examples: Artifact, number: int, erased: pl.DataFrame, out: Path) -> None:
    """Write the three files of a shard without these users."""
    users, events, built = (pl.read_parquet(examples.file(name)) for name in shard_files(number))
    stay = ~np.isin(np.arange(len(users)), erased["user"].to_numpy())
    event_stays = stay[events["user"].to_numpy()]
    moved_users, moved_rows = _moved(stay), _moved(event_stays)
    frames = (
        _renumber(users.filter(stay), user=moved_users),
        _renumber(events.filter(event_stays), user=moved_users),
        _renumber(
            built.filter(stay[built["user"].to_numpy()]),
            user=moved_users,
            history_start=moved_rows,
            history_stop=moved_rows,
        ),
    )
    for name, frame in zip(shard_files(number), frames, strict=True):
        frame.write_parquet(out / name)


def _moved(stay: NDArray[np.bool_]) -> Ints:
    """The new number of each row when only those that stay are left; with one more, for the end of a range."""
    return np.concatenate([[0], np.cumsum(stay)]).astype(np.int64)


def _renumber(frame: pl.DataFrame, **moved: Ints) -> pl.DataFrame:
    return frame.with_columns(
        pl.Series(name, numbers[frame[name].to_numpy()], dtype=pl.Int64).cast(frame.schema[name])
        for name, numbers in moved.items()
    )


# --- folders ----------------------------------------------------------------------------------------------------------


def exchange(draft: Path, place: Path) -> None:
    """Swap the names of two folders. Where the file system cannot, one steps aside: `mend` knows both."""
    if not files.exchange(draft, place):
        aside = draft.with_name(f"{draft.name}-old")
        place.rename(aside)
        draft.rename(place)
        aside.rename(draft)
        files.sync_folder(place.parent)


def mend(roots: Sequence[Path]) -> None:
    """Finish swaps of folders that a kill interrupted, and remove drafts.

    The new folder is complete, or the old one would not have stepped aside.
    """
    for root in roots:
        for folder, inside, _ in os.walk(root if root.exists() else root.parent):
            for name in inside:
                if match := DRAFT.fullmatch(name):
                    draft, place = Path(folder, name.removesuffix("-old")), Path(folder, match["name"])
                    if not place.exists() and draft.exists():
                        draft.rename(place)
                    for left in (draft, draft.with_name(f"{draft.name}-old")):
                        shutil.rmtree(left, ignore_errors=True)
            inside[:] = [name for name in inside if not name.startswith(".")]
