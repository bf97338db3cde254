"""Who is being erased: a list beside the artifacts that every reader looks at before it answers.

    hidden = Hidden(artifact.path.parent)
    hidden.users()                       # one look at the file's time, unless it changed

The list lies there from the first moment of an erasure until the last byte is gone. Then it goes too, for it names the
users; whoever opened an artifact before that learns by `Purged` to open it again.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from contextlib import suppress
from pathlib import Path

from merit.core import files
from merit.core.artifacts import MANIFEST, Artifact, Manifest

FILE = ".erasing.json"


class Hidden:
    """The users of one folder of artifacts who must not be shown."""

    def __init__(self, folder: Path) -> None:
        self._file = folder / FILE
        self._version: files.Version | None = None
        self._users: frozenset[str] = frozenset()

    def users(self) -> frozenset[str]:
        """They grow only: what was opened before the purge still holds them after it."""
        if (version := files.version(self._file)) != self._version:
            with suppress(FileNotFoundError):
                self._users |= frozenset(json.loads(self._file.read_text(encoding="utf-8"))["users"])
            self._version = version
        return self._users


class Nobody(Hidden):
    """Of users who are stored nowhere: none of them can be in erasure, whatever their ids are."""

    def __init__(self) -> None:
        pass

    def users(self) -> frozenset[str]:
        """Always nobody."""
        return frozenset()


class Purged:
    """Whether users were erased from an artifact since it was opened."""

    def __init__(self, artifact: Artifact) -> None:
        self._file, self._erased = artifact.path / MANIFEST, len(artifact.manifest.erased)
        self._version: files.Version | None = None  # read at the first call: it may change while the artifact is opened

    def since(self) -> bool:
        """Costs one look at the manifest's time, unless it changed; False while the manifest cannot be read."""
        if (version := files.version(self._file)) == self._version:
            return False
        try:
            erased = len(Manifest.model_validate_json(self._file.read_bytes()).erased)
        except (OSError, ValueError):
            return False  # removed, or being replaced: what is open is whole
        self._version = version if erased <= self._erased else None
        return erased > self._erased


def hide(folders: Iterable[Path], number: str, users: Iterable[str], home: Path) -> None:
    """Hide users from now on. `home` is where the erasure is run from, should somebody have to finish it."""
    content = json.dumps({"number": number, "home": str(home), "users": sorted(users)})
    for folder in folders:
        files.write(folder / FILE, content)


def others(folders: Iterable[Path]) -> Iterator[tuple[Path, frozenset[str]]]:
    """Where erasures were begun that have not come to their end, and whose users they are to erase."""
    for folder in folders:
        if (folder / FILE).exists():
            listed = json.loads((folder / FILE).read_text(encoding="utf-8"))
            yield Path(listed["home"]), frozenset(listed["users"])


def unhide(folders: Iterable[Path]) -> None:
    """Remove the lists, after the purge."""
    for folder in folders:
        (folder / FILE).unlink(missing_ok=True)
