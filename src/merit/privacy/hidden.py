"""Who is being erased: a list beside the artifacts that every reader looks at before it answers.

    hidden = Hidden(artifact.path.parent)
    hidden.users()                       # one look at the file's time, unless it changed

The list lies there from the first moment of an erasure until the last byte is gone. Then it goes too, for it names the
users; whoever opened an artifact before that is told by `purged` to open it again.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from pathlib import Path

from merit.core import files
from merit.core.artifacts import MANIFEST, Artifact, Manifest

FILE = ".erasing.json"
Seen = tuple[int, int, int]


class Hidden:
    """The users of one folder of artifacts who must not be told of."""

    def __init__(self, folder: Path) -> None:
        self._file = folder / FILE
        self._seen: Seen | None = None
        self._users: frozenset[str] = frozenset()

    def users(self) -> frozenset[str]:
        """They grow only: what was opened before the purge still holds them after it."""
        seen = look(self._file)
        if seen != self._seen:
            self._users, self._seen = self._users | read(self._file), seen
        return self._users


class Purged:
    """Whether users were erased from an artifact since it was opened."""

    def __init__(self, artifact: Artifact) -> None:
        self._file, self._erased = artifact.path / MANIFEST, len(artifact.manifest.erased)
        self._seen: Seen | None = None  # looked at when it is asked first: it may change while the artifact is opened

    def since(self) -> bool:
        """Costs one look at the manifest's time, unless it changed; False while the manifest cannot be read."""
        if (seen := look(self._file)) == self._seen:
            return False
        try:
            now = Manifest.model_validate_json(self._file.read_bytes())
        except (OSError, ValueError):
            return False  # removed, or being replaced: what is open is whole
        self._seen = seen if len(now.erased) <= self._erased else None
        return len(now.erased) > self._erased


def hide(folders: Iterable[Path], number: str, users: Iterable[str], home: Path) -> None:
    """From the next question on. `home` is where the erasure is run from, should somebody have to finish it."""
    content = json.dumps({"number": number, "home": str(home), "users": sorted(users)})
    for folder in folders:
        files.write(folder / FILE, content)


def another(folders: Iterable[Path], number: str | None = None) -> Path | None:
    """Where an erasure other than this one was begun that has not come to its end."""
    for folder in folders:
        if (folder / FILE).exists():
            told = json.loads((folder / FILE).read_text(encoding="utf-8"))
            if told["number"] != number:
                return Path(told["home"])
    return None


def unhide(folders: Iterable[Path]) -> None:
    """After the purge."""
    for folder in folders:
        (folder / FILE).unlink(missing_ok=True)


def read(file: Path) -> frozenset[str]:
    """The users of a list; nobody where there is no list."""
    try:
        return frozenset(json.loads(file.read_text(encoding="utf-8"))["users"])
    except FileNotFoundError:
        return frozenset()


def look(file: Path) -> Seen | None:
    """What changes whenever the file is replaced."""
    try:
        stat = file.stat()
    except (FileNotFoundError, NotADirectoryError):
        return None
    return stat.st_ino, stat.st_size, stat.st_mtime_ns
