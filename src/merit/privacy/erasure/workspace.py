"""What there is to be purged: every finished artifact below some folders, and what unfinished runs left beside them."""

from __future__ import annotations

import os
import re
import shutil
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

from merit.core import artifacts
from merit.core.artifacts import MANIFEST, Artifact
from merit.core.errors import MissingArtifact, StorageError

DRAFT = re.compile(r"\..+\.tmp-(?P<process>\d+)(-old)?")  # of artifacts.writing
LEFT = re.compile(r"\..+\.(parts-\w+|checkpoints)")  # of stages that go on where they were stopped


def require(roots: Sequence[Path]) -> None:
    """A MissingArtifact for the first of these that is no folder."""
    for root in roots:
        if not root.is_dir():
            raise MissingArtifact(f"There is no folder {root}. Name the folders of runs and services with --folder.")


def find(roots: Sequence[Path]) -> list[Artifact]:
    """The artifacts below the folders, or these themselves; of one inside another only the outer one."""
    require(roots)
    places = dict.fromkeys(place.resolve() for root in roots for place in _finished(root))
    return [artifacts.load(place, verify=False) for place in places]


def shelves(found: Iterable[Artifact]) -> list[Path]:
    """The folders that artifacts stand in."""
    return list(dict.fromkeys(artifact.path.parent for artifact in found))


def home_of(roots: Sequence[Path]) -> Path:
    """Where the lists, locks and certificates of an erasure are: in the first folder, or beside it if it is a model."""
    first = roots[0].resolve()
    return first.parent if (first / MANIFEST).exists() else first


def sweep(places: Iterable[Path]) -> None:
    """Remove what killed processes left: rows by number that would be another's after the purge.

    What a living process writes may hold the users: it must come to its end first.
    """
    for place in places:
        for entry in [entry for entry in place.iterdir() if entry.is_dir()]:
            draft = DRAFT.fullmatch(entry.name)
            if draft and Path(f"/proc/{draft['process']}").exists():
                raise StorageError(
                    f"{entry} is being written by process {draft['process']}. The users are hidden already; give the "
                    "same command again when it has ended."
                )
            if draft or LEFT.fullmatch(entry.name):
                shutil.rmtree(entry)
        for report in place.glob("*.poisoned.jsonl"):  # shards that could not be done, with their users
            report.unlink()


def _finished(root: Path) -> Iterator[Path]:
    for place, inside, files in os.walk(root):
        if MANIFEST in files:
            inside.clear()
            yield Path(place)
        inside[:] = sorted(name for name in inside if not name.startswith("."))
