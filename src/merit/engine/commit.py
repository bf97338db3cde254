"""A part counts once its record is beside it; one of which a byte was lost or flipped since then is done again."""

from __future__ import annotations

from collections.abc import Iterable
from hashlib import sha256

from pydantic import ValidationError

from merit.core.artifacts import MANIFEST, FileRecord, Manifest
from merit.engine import storage

RECORD = ".record"


def commit(address: str, data: bytes) -> None:
    """Write a part, then its record."""
    storage.put(address, data)
    storage.put(address + RECORD, record_of(data).model_dump_json().encode())


def record_of(data: bytes) -> FileRecord:
    """Length and SHA-256 of a part, by which a later look tells that it is whole."""
    return FileRecord(sha256=sha256(data).hexdigest(), bytes=len(data))


def committed(folder: str, names: Iterable[str]) -> dict[str, FileRecord]:
    """The parts that are there and whole. Those of a finished job have their records in the manifest."""
    sealed, found = _sealed(folder), {}
    for name in names:
        address = storage.within(folder, name)
        record = _read(storage.get(address + RECORD)) or sealed.get(name)
        data = storage.get(address) if record else None
        if record and data is not None and record_of(data) == record:
            found[name] = record
    return found


def _sealed(folder: str) -> dict[str, FileRecord]:
    try:
        return Manifest.model_validate_json(storage.get(storage.within(folder, MANIFEST)) or b"").files
    except ValidationError:
        return {}


def _read(data: bytes | None) -> FileRecord | None:
    try:
        return FileRecord.model_validate_json(data or b"")
    except ValidationError:
        return None
