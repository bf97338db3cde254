"""An artifact is a folder with a manifest, and the manifest is written last.

    with artifacts.writing(Path("runs/demo/examples"), "examples", config=..., seed=7) as draft:
        table.write_parquet(draft.path / "examples.parquet")
        draft.summary["users"] = 801

The files go to a hidden sibling folder. Only when all of them are written, flushed and hashed does the folder get its
manifest and its name, in one rename. Whatever happens before, no folder of that name appears.
"""

from __future__ import annotations

import errno
import json
import os
import shutil
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime
from hashlib import sha256
from pathlib import Path
from typing import Any

from pydantic import BaseModel, ValidationError

from merit import __version__
from merit.config import Frozen
from merit.errors import DamagedArtifact, MissingArtifact, StorageError

FORMAT = 1  # raised when a reader of this version could misread an older folder
MANIFEST = "manifest.json"


class FileRecord(Frozen):
    sha256: str
    bytes: int


class Parent(Frozen):
    kind: str
    hash: str
    path: str


class Manifest(Frozen):
    """What a folder is and where it came from."""

    kind: str
    format: int = FORMAT
    version: str = __version__
    created: str
    hash: str
    """Of kind, config, seed, parents' hashes and file contents: equal for equal results, wherever and whenever made."""
    seed: int | None = None
    config: dict[str, Any] = {}
    parents: dict[str, Parent] = {}
    inputs: dict[str, Any] = {}
    """Fingerprints of raw files read. Outside the hash: a copied file keeps its content but not its time."""
    summary: dict[str, Any] = {}
    files: dict[str, FileRecord]


@dataclass(frozen=True)
class Artifact:
    """A finished folder."""

    path: Path
    manifest: Manifest

    def file(self, name: str) -> Path:
        return self.path / name


@dataclass
class Draft:
    """A folder being written."""

    path: Path
    summary: dict[str, Any] = field(default_factory=dict)


@contextmanager
def writing(
    folder: Path,
    kind: str,
    *,
    config: BaseModel | None = None,
    seed: int | None = None,
    parents: Mapping[str, Artifact] | None = None,
    inputs: Mapping[str, Any] | None = None,
) -> Iterator[Draft]:
    """Write an artifact; it appears under `folder` complete, or not at all."""
    with storage_errors(folder):
        _refuse_foreign(folder)
        folder.parent.mkdir(parents=True, exist_ok=True)
        _sweep(folder)
        draft = Draft(folder.parent / f".{folder.name}.tmp-{os.getpid()}")
        draft.path.mkdir()
        try:
            yield draft
            manifest = _describe(draft, kind, config, seed, parents or {}, inputs or {})
            _write_synced(draft.path / MANIFEST, manifest.model_dump_json(indent=2))
            _swap(draft.path, folder)
        finally:
            shutil.rmtree(draft.path, ignore_errors=True)


def load(folder: Path, kind: str | None = None, verify: bool = True) -> Artifact:
    """Open a finished artifact. With `verify`, every byte is checked against the manifest first."""
    wanted = kind or "merit"
    try:
        text = (folder / MANIFEST).read_text(encoding="utf-8")
    except (FileNotFoundError, NotADirectoryError):
        make = f"Make it with `merit run CONFIG`{f' (stage {kind})' if kind else ''}."
        raise MissingArtifact(f"{folder} is not a finished {wanted} artifact (no {MANIFEST}). {make}") from None
    except (OSError, UnicodeDecodeError) as error:
        raise DamagedArtifact(f"{folder / MANIFEST} cannot be read: {error}. Make the artifact again.") from None
    manifest = _parse(folder, text)
    if kind and manifest.kind != kind:
        raise MissingArtifact(f"{folder} is a {manifest.kind} artifact, but a {kind} artifact is needed here.")
    for name, record in manifest.files.items():
        _check_file(folder / name, record, verify)
    return Artifact(folder, manifest)


def is_current(
    folder: Path, kind: str, config: BaseModel, seed: int, parents: Mapping[str, Artifact], inputs: Mapping[str, Any]
) -> bool:
    """Whether `folder` already holds what a run with these settings, parents and inputs would make."""
    try:
        manifest = load(folder, kind).manifest
    except (MissingArtifact, DamagedArtifact):
        return False
    return (
        manifest.version == __version__
        and manifest.seed == seed
        and manifest.config == _plain(config)
        and {name: parent.hash for name, parent in manifest.parents.items()}
        == {name: parent.manifest.hash for name, parent in parents.items()}
        and manifest.inputs == json.loads(json.dumps(dict(inputs)))
    )


@contextmanager
def storage_errors(place: Path) -> Iterator[None]:
    """Turn what the file system says into one sentence and a remedy. Polars hides the errno in a text of its own."""
    try:
        yield
    except OSError as error:
        if remedy := _REMEDIES.get(error.errno or 0) or _remedy_in(str(error)):
            raise StorageError(f"{error.filename or place}: {remedy} Nothing was left behind.") from error
        raise
    except Exception as error:
        if type(error).__module__.startswith("polars") and (remedy := _remedy_in(str(error))):
            raise StorageError(f"{place}: {remedy} Nothing was left behind.") from error
        raise


_REMEDIES = {
    errno.ENOSPC: "the disk is full. Free some space, or write elsewhere with --out.",
    errno.EDQUOT: "the disk quota is used up. Free some space, or write elsewhere with --out.",
    errno.EFBIG: "the file would be larger than this system allows. Raise the limit (ulimit -f), or use more shards.",
    errno.EACCES: "permission denied. Choose a folder you may write to with --out.",
    errno.EROFS: "the file system is read-only. Choose another folder with --out.",
}


def _remedy_in(message: str) -> str | None:
    return next((remedy for code, remedy in _REMEDIES.items() if os.strerror(code) in message), None)


def _refuse_foreign(folder: Path) -> None:
    """Never replace something that is not ours: a typing mistake in --out must not delete a home folder."""
    if folder.exists() and not (folder / MANIFEST).exists() and (not folder.is_dir() or any(folder.iterdir())):
        raise StorageError(
            f"{folder} exists and is not a merit artifact. Choose another folder, or remove it yourself."
        )


def _sweep(folder: Path) -> None:
    """Remove drafts of this folder whose process is gone (killed before it could tidy up)."""
    for stale in folder.parent.glob(f".{folder.name}.tmp-*"):
        pid = stale.name.rpartition("-")[2]
        if (pid.isdigit() and not Path(f"/proc/{pid}").exists()) or pid == str(os.getpid()):
            shutil.rmtree(stale, ignore_errors=True)


def _describe(
    draft: Draft,
    kind: str,
    config: BaseModel | None,
    seed: int | None,
    parents: Mapping[str, Artifact],
    inputs: Mapping[str, Any],
) -> Manifest:
    files = {str(path.relative_to(draft.path)): path for path in sorted(draft.path.rglob("*")) if path.is_file()}
    records = {
        name: FileRecord(sha256=hash_file(path, sync=True), bytes=path.stat().st_size) for name, path in files.items()
    }
    family = {
        name: Parent(
            kind=parent.manifest.kind, hash=parent.manifest.hash, path=os.path.relpath(parent.path, draft.path.parent)
        )
        for name, parent in parents.items()
    }
    essence = {
        "kind": kind,
        "format": FORMAT,
        "config": _plain(config),
        "seed": seed,
        "parents": {name: parent.hash for name, parent in family.items()},
        "files": {name: record.sha256 for name, record in records.items()},
    }
    return Manifest(
        kind=kind,
        created=datetime.now(UTC).isoformat(timespec="seconds"),
        hash=sha256(json.dumps(essence, sort_keys=True).encode()).hexdigest(),
        seed=seed,
        config=_plain(config),
        parents=family,
        inputs=dict(inputs),
        summary=draft.summary,
        files=records,
    )


def _plain(config: BaseModel | None) -> dict[str, Any]:
    return json.loads(config.model_dump_json()) if config else {}


def hash_file(path: Path, sync: bool = False) -> str:
    """sha256 of a file; with `sync`, its bytes are on the disk when this returns."""
    digest = sha256()
    with path.open("rb") as file:
        while block := file.read(1 << 20):
            digest.update(block)
        if sync:
            os.fsync(file.fileno())
    return digest.hexdigest()


def _write_synced(path: Path, text: str) -> None:
    with path.open("w", encoding="utf-8") as file:
        file.write(text + "\n")
        file.flush()
        os.fsync(file.fileno())


def _swap(draft: Path, folder: Path) -> None:
    """Give the finished draft its name. A previous version steps aside first: no folder is renamed over another."""
    old = folder.parent / f".{folder.name}.tmp-{os.getpid()}-old"
    if folder.exists():
        folder.rename(old)
    draft.rename(folder)
    shutil.rmtree(old, ignore_errors=True)
    with suppress(OSError):  # not every file system lets a folder be synced
        descriptor = os.open(folder.parent, os.O_RDONLY)
        os.fsync(descriptor)
        os.close(descriptor)


def _parse(folder: Path, text: str) -> Manifest:
    try:
        values = json.loads(text)
        if isinstance(values, dict) and values.get("format", 0) > FORMAT:
            raise DamagedArtifact(
                f"{folder} was written by merit {values.get('version')} in format {values['format']}; "
                f"this is {__version__}, which reads up to {FORMAT}. Upgrade merit, or make the artifact again."
            )
        return Manifest.model_validate(values)
    except (json.JSONDecodeError, ValidationError, TypeError):
        raise DamagedArtifact(f"{folder / MANIFEST} is damaged. Make the artifact again with `merit run`.") from None


def _check_file(path: Path, record: FileRecord, verify: bool) -> None:
    try:
        damaged = path.stat().st_size != record.bytes or (verify and hash_file(path) != record.sha256)
    except FileNotFoundError:
        raise DamagedArtifact(
            f"{path} is missing from its artifact. Make the artifact again with `merit run`."
        ) from None
    except PermissionError:
        raise StorageError(f"{path} may not be read. Mend its permissions.") from None
    if damaged:
        raise DamagedArtifact(f"{path} is damaged (not the bytes its manifest names). Make it again with `merit run`.")
