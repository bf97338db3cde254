"""One artifact without some users: a new folder beside it, complete, then in its place."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

from merit.core import artifacts
from merit.core.artifacts import MANIFEST, Artifact, Erased, FileRecord, Manifest
from merit.core.errors import DamagedArtifact
from merit.privacy.erasure.certificate import FileChange, Record
from merit.privacy.erasure.holdings import Held, Holding
from merit.privacy.erasure.replace import linked


def draft_of(place: Path, number: str) -> Path:
    """Beside the artifact, under a hidden name by which `journal.mend` knows it after a kill."""
    return place.with_name(f".{place.name}.erased-{number}")


def changes(held: Held) -> list[Holding]:
    """What must be written again: files with rows of these users, and those written whoever is erased."""
    return [each for each in held.files if each.rows or each.always]


def write_draft(artifact: Artifact, held: Held, number: str, at: str, home: Path) -> Record:
    """The folder that will take the artifact's place, and what is different about it."""
    draft = draft_of(artifact.path, number)
    shutil.rmtree(draft, ignore_errors=True)
    changed = changes(held)
    rows = {name: each.rows for each in changed for name in each.files}
    _require_whole(artifact, rows)
    draft.mkdir()
    for file in (path for path in artifact.path.rglob("*") if path.is_file()):
        name = str(file.relative_to(artifact.path))
        if name != MANIFEST and name not in rows:
            linked(file, draft / name)
    for each in changed:
        each.write(draft)
    told = artifact.manifest
    records = dict(told.files)
    for name in rows:
        file = draft / name
        records[name] = FileRecord(sha256=artifacts.hash_file(file, sync=True), bytes=file.stat().st_size)
    note = Erased(number=number, at=at, rows=held.rows)
    update = {"files": records, "summary": told.summary | dict(held.summary), "erased": (*told.erased, note)}
    _write_manifest(draft / MANIFEST, told.model_copy(update=update))
    return Record(
        path=os.path.relpath(artifact.path, home),
        kind=told.kind,
        hash=told.hash,
        rows=held.rows,
        parts=dict(held.parts),
        files=tuple(
            FileChange(name=name, rows=rows[name], before=told.files[name].sha256, after=records[name].sha256)
            for name in rows
        ),
    )


def _require_whole(artifact: Artifact, names: dict[str, int]) -> None:
    """What is already damaged must not get a fresh hash."""
    for name in names:
        if artifacts.hash_file(artifact.file(name)) != artifact.manifest.files[name].sha256:
            raise DamagedArtifact(f"{artifact.file(name)} is damaged. Make it again with `merit run`, or remove it.")


def _write_manifest(file: Path, manifest: Manifest) -> None:
    file.write_text(manifest.model_dump_json(indent=2) + "\n", encoding="utf-8")
    artifacts.hash_file(file, sync=True)
