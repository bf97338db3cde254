"""Bytes under an address: a folder on disk, or whatever fsspec understands (s3://bucket/folder, gs://, memory://).

A file is complete or not there: it is written under a name of its own and then given its real one. On disk, it is
flushed before that. Keys and endpoints of object stores are fsspec's own settings, in its files or in the environment.
"""

from __future__ import annotations

import shutil
import uuid
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import fsspec

from merit.core import files
from merit.core.errors import MissingDependency, StorageError
from merit.core.files import storage_errors

MODE = 0o644


def local(address: str) -> Path | None:
    """The path of an address on disk."""
    return None if "://" in address else Path(address)


def put(address: str, data: bytes) -> None:
    """Write a file in one step."""
    if path := local(address):
        files.write(path, data, MODE)
        return
    system, path_there = _open(address)
    draft = f"{path_there}.tmp-{uuid.uuid4().hex}"
    with _told(address):
        system.makedirs(system._parent(path_there), exist_ok=True)
        try:
            system.pipe_file(draft, data)
            system.mv(draft, path_there)
        finally:
            if system.exists(draft):
                system.rm_file(draft)


def create(address: str, data: bytes) -> bool:
    """Write a file only if there is none of that name; whether there was none. Not for the disk, which has locks."""
    system, path_there = _open(address)
    with _told(address):
        system.makedirs(system._parent(path_there), exist_ok=True)
        try:
            system.pipe_file(path_there, data, mode="create")
        except FileExistsError:
            return False
    return True


def get(address: str) -> bytes | None:
    """What a file holds; nothing where there is none."""
    if path := local(address):
        with storage_errors(path):
            try:
                return path.read_bytes()
            except (FileNotFoundError, NotADirectoryError):
                return None
    system, path_there = _open(address)
    system.invalidate_cache()  # other processes write there too
    with _told(address):
        try:
            found: bytes = system.cat_file(path_there)
        except FileNotFoundError:
            return None
    return found


def names(address: str) -> list[str]:
    """The names of the files in a folder, in order, drafts left out."""
    if path := local(address):
        found = [each.name for each in path.iterdir()] if path.is_dir() else []
    else:
        system, path_there = _open(address)
        system.invalidate_cache()
        with _told(address):
            try:
                found = [str(each).rpartition("/")[2] for each in system.ls(path_there, detail=False)]
            except FileNotFoundError:
                return []
    return sorted(name for name in found if not name.startswith(".") and ".tmp-" not in name)


def remove(address: str) -> None:
    """A file or a whole folder; nothing happens where there is none."""
    if path := local(address):
        if path.is_dir():
            shutil.rmtree(path, ignore_errors=True)
        else:
            path.unlink(missing_ok=True)
        return
    system, path_there = _open(address)
    system.invalidate_cache()
    with _told(address), suppress(FileNotFoundError):
        system.rm(path_there, recursive=True)


def sweep(address: str) -> None:
    """Remove what a killed worker was just writing into a folder. Nobody may be at work there."""
    if path := local(address):
        for draft in path.glob(".*.parquet*"):
            draft.unlink(missing_ok=True)
        return
    system, path_there = _open(address)
    with _told(address):
        for draft in system.glob(f"{path_there}/*.tmp-*"):
            system.rm_file(draft)


def within(address: str, name: str) -> str:
    """The address of a file in a folder, on disk or in a store; a slash at its end does not matter."""
    return f"{address.rstrip('/')}/{name}"


def _open(address: str) -> tuple[Any, str]:
    try:
        system, path_there = fsspec.core.url_to_fs(address)
    except ImportError as error:
        raise MissingDependency(f"{address} needs another package. {error}.") from None
    except ValueError as error:
        raise StorageError(f"{address} is no address of a file system ({error}). Write s3://bucket/folder.") from None
    return system, str(path_there)


@contextmanager
def _told(address: str) -> Iterator[None]:
    """What a store refuses, in one sentence."""
    try:
        yield
    except OSError as error:
        told = str(error) or type(error).__name__
        raise StorageError(f"{address} cannot be used: {told}. Nothing was left half-written.") from error
