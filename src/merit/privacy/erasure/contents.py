"""What there is to read in a file: its bytes, what these unpack to, and the cells of its tables.

What a file is, its first bytes tell and not its name: a copy may be called anything.
"""

from __future__ import annotations

import bz2
import gzip
import io
import lzma
import zipfile
import zlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any, cast

import polars as pl

from merit.core.errors import DamagedArtifact

HEAD = 8  # bytes that tell a format
PARQUET, ARROW, ZIP = b"PAR1", b"ARROW1", b"PK\x03\x04"
PACKED: dict[bytes, Callable[..., Any]] = {b"\x1f\x8b": gzip.open, b"BZh": bz2.open, b"\xfd7zXZ": lzma.open}
CLOSED = {
    b"PARE": "encrypted Parquet",
    b"FEA1": "Feather of version 1",
    b"ORC": "ORC",
    b"Obj\x01": "Avro",
    b"\x28\xb5\x2f\xfd": "zstandard",
    b"\x04\x22\x4d\x18": "LZ4",
    b"7z\xbc\xaf": "7-Zip",
    b"Rar!": "RAR",
    b"%PDF": "PDF",
}
ROWS = 1 << 18  # of a table at a time


def closed(head: bytes) -> str | None:
    """The format of a file whose texts cannot be read here; None for all others."""
    return next((name for start, name in CLOSED.items() if head.startswith(start)), None)


def streams(file: Path) -> Iterator[tuple[IO[bytes], str | None]]:
    """The bytes of a file, and what they unpack to; with a format where this cannot be read further."""
    with file.open("rb") as raw:
        head = raw.read(HEAD)
        raw.seek(0)
        yield raw, closed(head)
        raw.seek(0)
        if head.startswith(ZIP):
            with zipfile.ZipFile(raw) as archive:
                for member in archive.infolist():
                    if member.flag_bits & 1:
                        yield io.BytesIO(), "an encrypted archive"
                    else:
                        with archive.open(member) as content:
                            yield _inside(content)
        for start, unpack in PACKED.items():
            if head.startswith(start):
                with unpack(raw) as packed:
                    yield _inside(packed)


def _inside(content: IO[bytes]) -> tuple[IO[bytes], str | None]:
    buffered = io.BufferedReader(cast(io.RawIOBase, content))
    head = buffered.peek(HEAD)[:HEAD]
    deeper = any(head.startswith(start) for start in (PARQUET, ARROW, ZIP, *PACKED))
    return buffered, "packed twice" if deeper else closed(head)


def columns(file: Path) -> Iterator[tuple[str, pl.Series]]:
    """The values of every column of a table, those inside lists and structures too; none of a file that is no table."""
    with file.open("rb") as raw:
        head = raw.read(HEAD)
    if head.startswith(PARQUET):
        table = pl.scan_parquet(file, hive_partitioning=False)
    elif head.startswith(ARROW):
        table = pl.scan_ipc(file)
    else:
        return
    for start in range(0, table.select(pl.len()).collect().item(), ROWS):
        for column in table.slice(start, ROWS).collect():
            yield from _leaves(column.name, column)


def _leaves(name: str, column: pl.Series) -> Iterator[tuple[str, pl.Series]]:
    if column.dtype.is_extension():
        column = column.ext.storage()
    if isinstance(column.dtype, pl.Map):
        column = column.map.entries()
    if isinstance(column.dtype, pl.Struct):
        for part in column.struct.unnest():
            yield from _leaves(f"{name}.{part.name}", part)
    elif column.dtype.is_nested():
        yield from _leaves(name, column.explode())
    else:
        yield name, column.drop_nulls()


@contextmanager
def reading(file: Path) -> Iterator[None]:
    """Name a file that is cut off or damaged, and the remedy."""
    try:
        yield
    except (pl.exceptions.PolarsError, OSError, EOFError, zlib.error, lzma.LZMAError, zipfile.BadZipFile) as error:
        raise DamagedArtifact(f"{file} cannot be read ({type(error).__name__}). Remove it, or make it again.") from None
