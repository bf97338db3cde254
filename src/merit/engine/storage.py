"""Bytes under an address: a folder on disk, or whatever fsspec understands (s3://bucket/folder, gs://, memory://).

A file is complete or not there: it is written under another name first, and flushed where it is on disk. A part counts
once its record is beside it; one that lost or changed a byte since then is done again. Keys and endpoints of object
stores are settings of fsspec, in its files or in the environment.
"""

from __future__ import annotations

import shutil
import uuid
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from hashlib import sha256
from pathlib import Path
from typing import Any

import fsspec
from pydantic import ValidationError

from merit.core import files
from merit.core.artifacts import MANIFEST, FileRecord, Manifest
from merit.core.config import Model
from merit.core.errors import MissingDependency, StorageError
from merit.core.files import storage_errors

MODE = 0o644
RECORD = ".record"


def local(address: str) -> Path | None:
    """The path of an address on disk."""
    return None if "://" in address else Path(address)


def within(address: str, name: str) -> str:
    """The address of a file in a folder."""
    return f"{address.rstrip('/')}/{name}"


def put(address: str, data: bytes) -> None:
    """Write a file in one step."""
    if path := local(address):
        files.write(path, data, MODE)
        return
    with _store(address) as (system, place):
        draft = f"{place}.tmp-{uuid.uuid4().hex}"
        system.makedirs(system._parent(place), exist_ok=True)
        try:
            system.pipe_file(draft, data)
            system.mv(draft, place)
        finally:
            if system.exists(draft):
                system.rm_file(draft)


def create(address: str, data: bytes) -> bool:
    """Write a file unless there is one; whether there was none. Not for the disk, which has locks."""
    with _store(address) as (system, place):
        system.makedirs(system._parent(place), exist_ok=True)
        try:
            system.pipe_file(place, data, mode="create")
        except FileExistsError:
            return False
    return True


def get(address: str) -> bytes | None:
    """The content of a file, or None where there is none."""
    if path := local(address):
        with storage_errors(path), suppress(FileNotFoundError, NotADirectoryError):
            return path.read_bytes()
        return None
    with _store(address) as (system, place), suppress(FileNotFoundError):
        return bytes(system.cat_file(place))
    return None


def names(address: str) -> list[str]:
    """The names of the files in a folder, sorted, without drafts."""
    entries: list[str] = []
    if path := local(address):
        entries = [entry.name for entry in path.iterdir()] if path.is_dir() else []
    else:
        with _store(address) as (system, place), suppress(FileNotFoundError):
            entries = [str(entry).rpartition("/")[2] for entry in system.ls(place, detail=False)]
    return sorted(name for name in entries if not name.startswith(".") and ".tmp-" not in name)


def remove(address: str) -> None:
    """Remove a file or a folder, if it is there."""
    if path := local(address):
        if path.is_dir():
            shutil.rmtree(path, ignore_errors=True)
        else:
            path.unlink(missing_ok=True)
        return
    with _store(address) as (system, place), suppress(FileNotFoundError):
        system.rm(place, recursive=True)


def sweep(address: str) -> None:
    """Remove drafts that killed workers left in a folder. Nobody may be at work there."""
    if path := local(address):
        for draft in path.glob(".*.parquet*"):
            draft.unlink(missing_ok=True)
        return
    with _store(address) as (system, place):
        for draft in system.glob(f"{place}/*.tmp-*"):
            system.rm_file(draft)


@contextmanager
def _store(address: str) -> Iterator[tuple[Any, str]]:
    """A file system that is no disk, and the path in it. What it refuses becomes one sentence."""
    try:
        system, place = fsspec.core.url_to_fs(address)
    except ImportError as error:
        raise MissingDependency(f"{address} needs another package. {error}.") from None
    except ValueError as error:
        raise StorageError(f"{address} is no address of a file system ({error}). Write s3://bucket/folder.") from None
    system.invalidate_cache()  # other processes write there too
    try:
        yield system, str(place)
    except OSError as error:
        reason = str(error) or type(error).__name__
        raise StorageError(f"{address} cannot be used: {reason}. Nothing was left half-written.") from error


# --- parts and their records ------------------------------------------------------------------------------------------


def commit(address: str, data: bytes) -> None:
    """Write a part, then its record."""
    put(address, data)
    put(address + RECORD, record_of(data).model_dump_json().encode())


def record_of(data: bytes) -> FileRecord:
    """Length and SHA-256 of a part."""
    return FileRecord(sha256=sha256(data).hexdigest(), bytes=len(data))


def committed(folder: str, wanted: Iterable[str]) -> dict[str, FileRecord]:
    """The parts that are there and whole. Those of a finished job have their records in the manifest."""
    sealed = _parse(Manifest, within(folder, MANIFEST))
    records = {}
    for name in wanted:
        address = within(folder, name)
        record = _parse(FileRecord, address + RECORD) or (sealed.files.get(name) if sealed else None)
        data = get(address) if record else None
        if record and data is not None and record_of(data) == record:
            records[name] = record
    return records


def _parse(model: type[Model], address: str) -> Model | None:
    try:
        return model.model_validate_json(get(address) or b"")
    except ValidationError:
        return None
