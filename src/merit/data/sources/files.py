"""Raw files: finding them, scanning them lazily, and saying what is wrong with one that cannot be read."""

from __future__ import annotations

import csv
import errno
import gzip
import json
import os
import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from io import TextIOWrapper
from pathlib import Path, PurePath
from typing import IO, Any

import polars as pl
import pyarrow.parquet as pq

from merit.core.errors import DataError, StorageError
from merit.data.schema import FILE, ROW
from merit.data.sources import delta

FORMATS = dict.fromkeys((".parquet", ".pq"), "parquet") | {".csv": "csv", ".tsv": "tsv"}
FORMATS |= dict.fromkeys((".jsonl", ".ndjson", ".json"), "json")
SUFFIXES = ".parquet, .csv, .tsv, .jsonl, .ndjson or .json (one object a line); the text ones also as .gz"


def find(place: Path, option: str) -> list[Path]:
    """The data files at a path given with `option`, in a fixed order. Names that begin with . or _ are no data."""
    if not place.exists():
        raise DataError(f"{place} does not exist. Name the table with {option}.")
    if place.is_file():
        kind_of(place)
        return [place]
    if (place / "_delta_log").is_dir():
        return delta.files(place)
    if next(place.glob("metadata/*.metadata.json"), None):
        raise DataError(
            f"{place} is an Iceberg table, whose files alone do not tell which rows are valid. Read it with SQL "
            f"(source.kind=sql, docs/warehouse.md), or export it to Parquet and name that with {option}."
        )
    inside = [path for path in place.rglob("*") if is_data(path.relative_to(place))]
    if files := sorted(path for path in inside if path.is_file()):
        return files
    raise DataError(f"{place} holds no data files. Needed: {SUFFIXES}. Name another folder with {option}.")


def is_data(name: PurePath) -> bool:
    """Whether a file of this relative name belongs to a table. Names that begin with . or _ are no data."""
    return _suffix(name) in FORMATS and not re.search(r"(^|/)[._]", name.as_posix())


def fingerprint(files: Sequence[Path], place: Path) -> dict[str, list[int]]:
    """Relative name → size and time of change, enough to notice that the input is not what it was."""
    stats = {path.relative_to(_root(place)).as_posix(): path.stat() for path in files}
    return {name: [stat.st_size, stat.st_mtime_ns] for name, stat in stats.items()}


def kind_of(file: Path) -> str:
    """parquet, csv, tsv or json, by the suffix alone; any other, and Parquet inside .gz, is refused."""
    kind = FORMATS.get(_suffix(file))
    if kind is None or (kind == "parquet" and file.name.endswith(".gz")):
        raise DataError(f"{file}: its suffix does not tell the format. Rename it to end in {SUFFIXES}.")
    return kind


def scan_all(files: Sequence[Path], place: Path) -> list[tuple[pl.LazyFrame, Path]]:
    """All files of the table at a path in as few scans as possible, each with the first of its files.

    Parquet files of one schema share a scan: a plan of a thousand scans takes longer to plan than to run. Text files do
    not know how many rows they hold, so each needs a scan of its own.
    """
    groups, root = dict[str, list[Path]](), _root(place)
    for file in files:
        kind = kind_of(file)
        _check_start(file, kind)
        with reading((file,)):
            schema = str(pl.read_parquet_schema(file)) if kind == "parquet" else str(file)
        groups.setdefault(schema, []).append(file)
    return [
        (scan(group[0], root) if len(group) == 1 else _scan_parquets(group, root), group[0])
        for group in groups.values()
    ]


def _scan_parquets(files: Sequence[Path], root: Path) -> pl.LazyFrame:
    """Row numbers run through the whole scan; each file's begin after the rows of the files before it."""
    before, offsets = 0, {}
    for file in files:
        offsets[str(file)] = before
        before += pq.read_metadata(file).num_rows
    frame = pl.scan_parquet(
        [*files], hive_partitioning=False, row_index_name=ROW, row_index_offset=1, include_file_paths=FILE
    )
    row = pl.col(ROW).cast(pl.Int64) - pl.col(FILE).replace_strict(offsets, return_dtype=pl.Int64)
    inside = pl.col(FILE).str.strip_prefix(str(root))
    keys = {key: inside.str.extract(rf"(?:^|/){re.escape(key)}=([^/]*)/") for key in _hive(files[0], root)}
    columns = frame.collect_schema()
    return frame.with_columns(row.alias(ROW), *[value.alias(key) for key, value in keys.items() if key not in columns])


def _hive(file: Path, root: Path) -> dict[str, str]:
    """The keys of a partitioned folder: `day=2024-01-01/part-0.parquet`."""
    return dict(part.split("=", 1) for part in file.relative_to(root).parts[:-1] if "=" in part)


def scan(file: Path, root: Path, typed: Sequence[str] = ()) -> pl.LazyFrame:
    """One file, lazily, with its name, its row numbers and the keys of its hive partitions.

    Formats without types are read as text: what a value means is decided once, in `normalise`, for all formats.
    `typed` names columns of JSON that keep their type where they are lists.
    """
    kind = kind_of(file)
    _check_start(file, kind)
    number: Any = {"row_index_name": ROW, "row_index_offset": 1}
    with reading((file,)):
        if kind == "parquet":
            frame = pl.scan_parquet(file, hive_partitioning=False, **number)
        elif kind == "json":
            schema = pl.scan_ndjson(file, infer_schema_length=10_000).collect_schema()
            lists = {name: schema[name] for name in typed if isinstance(schema.get(name), pl.List)}
            frame = pl.scan_ndjson(file, schema={**dict.fromkeys(schema, pl.String()), **lists}, **number)
        else:
            frame = pl.scan_csv(file, separator=_separator(file, kind), infer_schema=False, glob=False, **number)
        columns = frame.collect_schema()
    keys = [pl.lit(value).alias(key) for key, value in _hive(file, root).items() if key not in columns]
    return frame.with_columns(pl.lit(str(file)).alias(FILE), *keys)


def column(file: Path, name: str) -> list[str]:
    """One column of a small table, as texts, none of them empty."""
    require_file(file)
    frame = scan(file, file.parent)
    with reading((file,)):
        names = columns_of(frame)
        if name not in names:
            raise DataError(f"{file} has no column '{name}', only {', '.join(names) or 'none'}. Rename the one it is.")
        values = frame.select(pl.col(name).cast(pl.String)).collect()[name]
    if values.is_empty():
        raise DataError(f"{file} has no rows. Name a table with values in its column '{name}'.")
    if len(empty := (values.fill_null("") == "").arg_true()):
        raise DataError(f"{file}, row {empty[0] + 1}: {name} is empty. Fill it in, or remove the row.")
    return values.to_list()


def columns_of(frame: pl.LazyFrame) -> list[str]:
    """The columns of a scan, without the row number and the file name that were added to them."""
    return [name for name in frame.collect_schema() if name not in (ROW, FILE)]


def require_file(file: Path) -> None:
    """Refuse a folder, and a path where nothing is."""
    if file.is_dir():
        raise DataError(f"{file} is a folder. Name a file in it.")
    if not file.exists():
        raise DataError(f"{file} does not exist. Name another file.")


def is_text(file: Path) -> bool:
    """Whether the format has no types of its own, so that values come as text: all but Parquet."""
    return kind_of(file) != "parquet"


@contextmanager
def reading(files: Sequence[Path]) -> Iterator[None]:
    """Turn a reader's complaint into one that names the file, the row where there is one, and the remedy."""
    try:
        yield
    except (pl.exceptions.PolarsError, OSError, UnicodeDecodeError) as error:
        if any(os.strerror(code) in str(error) for code in (errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EROFS)):
            raise  # about a file being written, not about these
        for file in files:
            _diagnose(file, str(error))
        if isinstance(error, OSError):
            raise
        others = f" or one of {len(files) - 1:,} further files" if len(files) > 1 else ""
        raise DataError(f"{files[0]}{others} cannot be read: {_first_line(error)}. Convert it to Parquet.") from error


def _suffix(file: PurePath) -> str:
    return Path(file.name.lower().removesuffix(".gz")).suffix


def _root(place: Path) -> Path:
    return place if place.is_dir() else place.parent


def _first_line(error: object) -> str:
    return str(error).strip().splitlines()[0][:200].rstrip(".") if str(error).strip() else type(error).__name__


def _check_start(file: Path, kind: str) -> None:
    """Refuse what the readers report badly or not at all."""
    try:
        with file.open("rb") as raw:
            start = raw.read(8)
            raw.seek(max(-4, -file.stat().st_size), 2)
            end = raw.read(4)
    except PermissionError:
        raise StorageError(f"{file} may not be read. Mend its permissions (chmod u+r).") from None
    if not start:
        raise DataError(f"{file} is empty. Export the table again, or name another file.")
    if kind == "parquet" and not (start.startswith(b"PAR1") and end == b"PAR1"):
        cut = start.startswith(b"PAR1")
        fault = "truncated Parquet (its end is missing)" if cut else "not Parquet in spite of its name"
        raise DataError(f"{file} is {fault}. Copy or export it again.")
    if kind != "parquet" and start.startswith(b"PAR1"):
        raise DataError(f"{file} is Parquet in spite of its name. Rename it to end in .parquet.")
    if file.name.endswith(".gz") and not start.startswith(b"\x1f\x8b"):
        raise DataError(f"{file} is not compressed in spite of its name. Rename it without .gz.")
    if kind == "json" and start.lstrip().startswith(b"["):
        raise DataError(f"{file} is one JSON array; one object a line is needed: `jq -c '.[]' {file} > table.jsonl`.")
    if kind in ("csv", "tsv"):
        _check_quotes(file)


def _separator(file: Path, kind: str) -> str:
    """A comma, a tab in .tsv; a header without any comma is one of spreadsheets that write semicolons, tabs or bars."""
    if kind == "tsv":
        return "\t"
    with unpacked(file) as raw:
        header = raw.readline(1 << 16)
    return "," if b"," in header else next((mark for mark in ";\t|" if mark.encode() in header), ",")


def _check_quotes(file: Path) -> None:
    """A reader that skips the column with an open quote loses every row after it without a word."""
    with unpacked(file) as raw:
        odd = sum(block.count(b'"') for block in iter(lambda: raw.read(1 << 20), b"")) % 2
    if not odd:
        return
    with unpacked(file) as raw:
        row = next(number for number, line in enumerate(raw) if line.count(b'"') % 2)
    raise DataError(
        f"{file}, row {row}: a double quote is never closed, so the rows after it cannot be told apart. "
        'Close it, or double it ("") where it belongs to the text.'
    )


def _diagnose(file: Path, complaint: str) -> None:
    """Look at one file with slow and simple means; raise if something is wrong with it."""
    kind = kind_of(file)
    if kind == "parquet":
        try:
            pl.scan_parquet(file).select(pl.all().null_count()).collect(engine="streaming")
        except pl.exceptions.PolarsError as error:
            raise DataError(f"{file} is damaged: {_first_line(error)}. Copy or export it again.") from None
        return
    with unpacked(file) as raw:
        for number, line in enumerate(raw, 1 if kind == "json" else 0):  # the header of a CSV file is no row
            _check_line(file, number, line, kind)
    if kind != "json":
        _count_fields(file, _separator(file, kind))
        if "malformed" in complaint or "could not parse" in complaint:
            raise DataError(f"{file}: a quoted field is damaged ({_first_line(complaint)}). Mend the quotes in it.")


def _check_line(file: Path, row: int, line: bytes, kind: str) -> None:
    try:
        text = line.decode("utf-8")
    except UnicodeDecodeError as error:
        raise DataError(
            f"{file}, row {row}: byte {line[error.start]:#04x} is not UTF-8. "
            f"Convert the file: `iconv -f WINDOWS-1252 -t UTF-8 {file} > converted{_suffix(file)}`."
        ) from None
    if kind != "json" or not text.strip():
        return
    try:
        value = json.loads(text.removeprefix("\ufeff"))
    except (json.JSONDecodeError, RecursionError) as error:
        raise DataError(f"{file}, row {row} is not JSON: {_first_line(error)}. Mend or remove that line.") from None
    if not isinstance(value, dict):
        raise DataError(f"{file}, row {row} is no JSON object but {str(value)[:40]}. Each line must be one object.")


def _count_fields(file: Path, separator: str) -> None:
    with unpacked(file) as raw, TextIOWrapper(raw, encoding="utf-8", newline="") as lines:
        csv.field_size_limit(1 << 30)
        rows = csv.reader(lines, delimiter=separator)
        width = len(next(rows, []))
        for number, fields in enumerate(rows, 1):
            if len(fields) > width:
                raise DataError(
                    f"{file}, row {number} has {len(fields)} fields, but the header names {width} columns. "
                    f"Put fields that hold a {separator!r} in double quotes."
                )


@contextmanager
def unpacked(file: Path) -> Iterator[IO[bytes]]:
    """The bytes of a file, unpacked as they are read where its name ends in .gz."""
    with gzip.open(file, "rb") if file.name.endswith(".gz") else file.open("rb") as raw:
        try:
            yield raw  # type: ignore[misc]
        except (EOFError, gzip.BadGzipFile, OSError) as error:
            raise DataError(
                f"{file} is cut off or damaged ({_first_line(error)}). Copy or compress it again."
            ) from None
