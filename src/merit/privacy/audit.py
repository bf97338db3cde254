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
Event = Literal[
    "export",
    "sync",
    "users named",
    "override",
    "erasure",
    "erasure taken back",
    "key created",
    "key rotated",
    "key revoked",
    "mended",
]


class AuditEntry(Frozen):
    """One line of the log: numbered from 1, with its time in UTC to the second."""

    number: int
    at: str
    event: Event
    details: dict[str, Any]
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
    path = folder / FILE
    with storage_errors(path):
        folder.mkdir(parents=True, exist_ok=True)
        with open(path, "ab", opener=lambda name, flags: os.open(name, flags, 0o600)) as log:
            fcntl.flock(log, fcntl.LOCK_EX)
            lines, torn = _lines(path.read_bytes())
            log.truncate(path.stat().st_size - torn)
            if torn:
                lines.append(_entry(lines, "mended", {"bytes": torn}).model_dump_json().encode())
                log.write(lines[-1] + b"\n")
            entry = _entry(lines, event, details)
            log.write(entry.model_dump_json().encode() + b"\n")
            log.flush()
            os.fsync(log.fileno())
            head = AuditHead(number=entry.number, hash=entry.hash)
            files.write(path.with_name(HEAD), head.model_dump_json() + "\n")
            return entry


def read(folder: Path) -> list[AuditEntry]:
    """All entries, whether or not they are what was written: `verify` checks that."""
    entries = [_parse(line) for line in _lines(_content(folder))[0]]
    if None in entries:
        raise DamagedArtifact(f"{folder / FILE} holds a line that is no entry. See `merit audit verify`.")
    return [entry for entry in entries if entry]


def logs(folder: Path) -> list[Path]:
    """The folders below this one that have a log, itself too."""
    if not folder.is_dir():
        raise MissingArtifact(f"There is no folder {folder}. Name the folder of a run, an audience or a service.")
    folders = sorted(path.parent for path in folder.rglob(FILE))
    if not folders:
        raise MissingArtifact(f"There is no {FILE} in {folder}. One begins with the first export, override or erasure.")
    return folders


def holds(folder: Path, noted: str) -> bool:
    """Whether a line has this hash, whatever the others are."""
    entries = map(_parse, _lines(_content(folder))[0])
    return any(entry.hash == noted for entry in entries if entry)


def verify(folder: Path) -> AuditVerdict:
    """Whether the log is what was written."""
    lines, torn = _lines(_content(folder))
    entries, before = [_parse(line) for line in lines], START
    for number, entry in enumerate(entries):
        if fault := _fault(entry, number, before):
            return AuditVerdict(entries=number, head=before, fault=f"line {number + 1} {fault}", torn=torn)
        before = entry.hash if entry else before
    hashes = [entry.hash for entry in entries if entry]
    return AuditVerdict(entries=len(hashes), head=before, fault=_missing_at_the_end(folder, hashes), torn=torn)


def _parse(line: bytes) -> AuditEntry | None:
    """None for a line that is no entry."""
    try:
        return AuditEntry.model_validate_json(line)
    except ValidationError:
        return None


def _entry(lines: list[bytes], event: Event, details: dict[str, Any]) -> AuditEntry:
    """The entry after these lines. A last line that is no entry stops nothing: `verify` names it."""
    number, before = len(lines) + 1, sha256(lines[-1]).hexdigest() if lines else START
    if lines and (last := _parse(lines[-1])):
        number, before = last.number + 1, last.hash
    known, plain = {"number": number, "at": provenance.now(), "event": event}, json.loads(json.dumps(details))
    rest: dict[str, Any] = known | {"details": plain, "before": before}
    return AuditEntry(**rest, hash=_hash(rest))


def _hash(rest: dict[str, Any]) -> str:
    return sha256(json.dumps(rest, sort_keys=True).encode()).hexdigest()


def _fault(entry: AuditEntry | None, number: int, before: str) -> str | None:
    """What is wrong with a line that comes after entry `number`."""
    if entry is None:
        return "was altered: it is no entry"
    if entry.hash != _hash(entry.model_dump(exclude={"hash"})):
        return "was altered: its own hash does not fit"
    if entry.number > number + 1:
        return f"is entry {entry.number}, but entry {number + 1} belongs there: lines were removed or reordered"
    if entry.number <= number:
        return f"is entry {entry.number} and comes after entry {number}: lines were repeated or reordered"
    return None if entry.before == before else f"does not follow from entry {number}: that one was replaced"


def _missing_at_the_end(folder: Path, hashes: list[str]) -> str | None:
    """The head is written after the line: a crash between them leaves it one behind."""
    number = len(hashes)
    try:
        head = AuditHead.model_validate_json((folder / HEAD).read_bytes())
    except (OSError, ValidationError):
        return f"{HEAD} is missing or altered" if number > 1 else None
    if head.number > number:
        return f"line {number + 1} was removed, and all after it: {HEAD} knows of {head.number} entries"
    if head.number < number - 1 or hashes[head.number - 1] != head.hash:
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
