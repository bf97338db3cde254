"""What must be answered for, line by line: exports, overrides of the policy, erasures, keys. Nobody's id is in it.

    audit.append(Path("runs/shop"), "export", rows=5000, sha256="…")
    audit.verify(Path("runs/shop")).fault              # None, or the first line that is not what was written

Every line carries the hash of the one before it, so that a line that was changed, taken out or moved is found. The head
beside the log knows its last line, so that lines missing at the end are found too. Whoever may write to the folder can
write both anew: keep the head elsewhere as well.
"""

from __future__ import annotations

import fcntl
import json
import os
from contextlib import suppress
from hashlib import sha256
from pathlib import Path
from typing import Any, Literal

from pydantic import Field, ValidationError

from merit.core import files, provenance
from merit.core.config import Frozen
from merit.core.errors import DamagedArtifact, MissingArtifact, StorageError
from merit.core.files import storage_errors

FILE, HEAD = "audit.jsonl", "audit.head"
START = "0" * 64  # what the first line has for a line before it
Event = Literal["export", "override", "erasure", "key created", "key revoked", "mended"]


class AuditEntry(Frozen):
    """One line of the log: numbered from 1, with its time in UTC to the second."""

    number: int
    at: str
    event: Event
    told: dict[str, Any]
    before: str
    """The hash of the line before."""
    hash: str
    """Of all the rest of this line."""


class AuditHead(Frozen):
    """What the file beside the log knows of the last line. It is written anew after every entry."""

    number: int = Field(ge=1)
    hash: str


class AuditVerdict(Frozen):
    """How far a log is what was written, and what is wrong behind that."""

    entries: int
    """That are as they were written, from the first on."""
    head: str
    """The hash of the last of them. Kept elsewhere, it proves later what the log was."""
    fault: str | None = None
    """The first line that is not what was written, and why."""
    torn: int = 0
    """Bytes of a last line that a crash cut short. The next entry mends it."""


def append(folder: Path, event: Event, **details: Any) -> AuditEntry:
    """Write a line. It is on the disk when this returns."""
    place = folder / FILE
    with storage_errors(place):
        folder.mkdir(parents=True, exist_ok=True)
        descriptor = os.open(place, os.O_RDWR | os.O_CREAT | os.O_APPEND, 0o600)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX)
            return _append(descriptor, place, event, details)
        finally:
            os.close(descriptor)


def read(folder: Path) -> list[AuditEntry]:
    """All entries, whether or not they are what was written: `verify` tells."""
    lines, _ = _lines(_content(folder))
    try:
        return [AuditEntry.model_validate_json(line) for line in lines]
    except ValidationError:
        raise DamagedArtifact(f"{folder / FILE} holds a line that is no entry. See `merit audit verify`.") from None


def logs(folder: Path) -> list[Path]:
    """The folders below this one that have a log, itself too."""
    if not folder.is_dir():
        raise MissingArtifact(f"There is no folder {folder}. Name the folder of a run, an audience or a service.")
    folders = sorted(place.parent for place in folder.rglob(FILE))
    if not folders:
        raise MissingArtifact(f"There is no {FILE} in {folder}. One begins with the first export, override or erasure.")
    return folders


def holds(folder: Path, noted: str) -> bool:
    """Whether a line has this hash, be the others what they may."""
    lines, _ = _lines(_content(folder))
    for line in lines:
        with suppress(ValidationError):
            if AuditEntry.model_validate_json(line).hash == noted:
                return True
    return False


def verify(folder: Path) -> AuditVerdict:
    """Whether the log is what was written."""
    lines, torn = _lines(_content(folder))
    before, number = START, 0
    for place, line in enumerate(lines, 1):
        fault = _fault(line, number, before)
        if fault:
            return AuditVerdict(entries=number, head=before, fault=f"line {place} {fault}", torn=torn)
        entry = AuditEntry.model_validate_json(line)
        before, number = entry.hash, entry.number
    return AuditVerdict(entries=number, head=before, fault=_missing_at_the_end(folder, lines, number), torn=torn)


def _append(descriptor: int, place: Path, event: Event, details: dict[str, Any]) -> AuditEntry:
    lines, torn = _lines(place.read_bytes())
    number, before = _last(lines)
    made = []
    if torn:
        os.ftruncate(descriptor, place.stat().st_size - torn)
        made.append(_entry(number + 1, "mended", {"bytes": torn}, before))
        number, before = number + 1, made[-1].hash
    made.append(_entry(number + 1, event, details, before))
    os.write(descriptor, "".join(f"{entry.model_dump_json()}\n" for entry in made).encode())
    os.fsync(descriptor)
    files.write(place.with_name(HEAD), AuditHead(number=made[-1].number, hash=made[-1].hash).model_dump_json() + "\n")
    return made[-1]


def _last(lines: list[bytes]) -> tuple[int, str]:
    """What the next line follows. Behind a line that is no entry, `verify` finds the fault: nothing is held up."""
    if not lines:
        return 0, START
    try:
        last = AuditEntry.model_validate_json(lines[-1])
        return last.number, last.hash
    except ValidationError:
        return len(lines), sha256(lines[-1]).hexdigest()


def _entry(number: int, event: Event, details: dict[str, Any], before: str) -> AuditEntry:
    rest: dict[str, Any] = {
        "number": number,
        "at": provenance.now(),
        "event": event,
        "told": json.loads(json.dumps(details)),
        "before": before,
    }
    return AuditEntry(**rest, hash=_hash(rest))


def _hash(rest: dict[str, Any]) -> str:
    return sha256(json.dumps(rest, sort_keys=True).encode()).hexdigest()


def _fault(line: bytes, number: int, before: str) -> str | None:
    """What is wrong with a line that comes after entry `number`."""
    try:
        entry = AuditEntry.model_validate_json(line)
    except ValidationError:
        return "was altered: it is no entry"
    if entry.hash != _hash(entry.model_dump(exclude={"hash"})):
        return "was altered: its own hash does not fit"
    if entry.number > number + 1:
        return f"is entry {entry.number}, but entry {number + 1} belongs there: lines were removed or reordered"
    if entry.number <= number:
        return f"is entry {entry.number} and comes after entry {number}: lines were repeated or reordered"
    return None if entry.before == before else f"does not follow from entry {number}: that one was replaced"


def _missing_at_the_end(folder: Path, lines: list[bytes], number: int) -> str | None:
    """The head is written after the line: a crash between them leaves it one behind."""
    try:
        head = AuditHead.model_validate_json((folder / HEAD).read_bytes())
    except (OSError, ValidationError):
        return f"{HEAD} is missing or altered" if number > 1 else None
    if head.number > number:
        return f"line {number + 1} was removed, and all after it: {HEAD} knows of {head.number} entries"
    if head.number < number - 1 or AuditEntry.model_validate_json(lines[head.number - 1]).hash != head.hash:
        return f"{HEAD} is of another log: it was altered, or the log was written anew"
    return None


def _lines(content: bytes) -> tuple[list[bytes], int]:
    """Whole lines, and the bytes of one that was cut short."""
    *lines, rest = content.split(b"\n")
    return lines, len(rest)


def _content(folder: Path) -> bytes:
    try:
        return (folder / FILE).read_bytes()
    except FileNotFoundError:
        raise MissingArtifact(f"There is no {FILE} in {folder}. Name a folder that has one.") from None
    except PermissionError:
        raise StorageError(f"{folder / FILE} may not be read. Mend its permissions (chmod u+r).") from None
    except IsADirectoryError:
        raise DamagedArtifact(f"{folder / FILE} is a folder, and no log. Put the log back in its place.") from None
