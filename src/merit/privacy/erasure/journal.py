"""How far an erasure has come, on disk before every step: whatever is killed, the next run goes on from there."""

from __future__ import annotations

import os
import re
import shutil
from collections.abc import Sequence
from pathlib import Path

from pydantic import ValidationError

from merit.core import files
from merit.core.config import Frozen
from merit.core.errors import DamagedArtifact
from merit.privacy.erasure import replace
from merit.privacy.erasure.certificate import Record

FILE = ".erasure.json"
DRAFT = re.compile(r"\.(?P<name>.+)\.erased-(?P<number>[0-9a-f]+)(-old)?")


class Journal(Frozen):
    """It names the users, so it goes when all else is done."""

    number: str
    began: str
    reason: str
    users: tuple[str, ...]
    roots: tuple[Path, ...]
    found: tuple[str, ...] = ()
    unlinked: tuple[str, ...] = ()
    records: tuple[Record, ...] = ()


def read(home: Path) -> Journal | None:
    """Of an erasure that was begun here and has not come to its end."""
    file = home / FILE
    try:
        return Journal.model_validate_json(file.read_bytes())
    except FileNotFoundError:
        return None
    except ValidationError:
        raise DamagedArtifact(f"{file} is damaged. Remove it and give the whole `merit erase` again.") from None


def write(home: Path, journal: Journal) -> None:
    """In one step: a killed process leaves the journal before or the one after, never half of one."""
    files.write(home / FILE, journal.model_dump_json())


def remove(home: Path) -> None:
    """At the very end, when nobody has to go on; one that is gone already is no error."""
    (home / FILE).unlink(missing_ok=True)


def with_record(journal: Journal, record: Record) -> Journal:
    """A new journal with this record, in place of an earlier one about the same artifact."""
    others = tuple(each for each in journal.records if each.path != record.path)
    return journal.model_copy(update={"records": (*others, record)})


def mend(roots: Sequence[Path]) -> None:
    """Bring folders that were being swapped when the process was killed to one of both sides of the swap."""
    for root in roots:
        for place, inside, _ in os.walk(root if root.exists() else root.parent):
            for name in inside:
                if found := DRAFT.fullmatch(name):
                    draft = Path(place, name.removesuffix("-old"))
                    replace.mended(draft, Path(place, found["name"]))
                    shutil.rmtree(draft, ignore_errors=True)
            inside[:] = [name for name in inside if not name.startswith(".")]
