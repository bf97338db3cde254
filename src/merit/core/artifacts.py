"""An artifact is a folder with a manifest, and the manifest is written last.

    with artifacts.writing(Path("runs/demo/examples"), "examples", config=..., seed=7) as draft:
        table.write_parquet(draft.path / "examples.parquet")
        draft.summary["users"] = 801

The files go to a hidden sibling folder. Only when all of them are written, flushed and hashed does the folder get its
manifest and its name, in one rename. Whatever happens before, no folder of that name appears.
"""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, suppress
from dataclasses import dataclass, field
from functools import wraps
from hashlib import sha256
from pathlib import Path, PurePath
from typing import Any, Concatenate, ParamSpec, TypeVar

from pydantic import BaseModel, Field, SerializationInfo, model_serializer, model_validator
from pydantic_core import to_json

from merit import __version__
from merit.core import files, provenance
from merit.core.config import Frozen
from merit.core.errors import DamagedArtifact, MissingArtifact, StorageError
from merit.core.files import storage_errors

P = ParamSpec("P")
T = TypeVar("T")

# By kind, else 1; raised when a stored name or its meaning changes.
FORMATS = dict.fromkeys(
    ("bench-results", "data-report", "erasure", "lift", "mined", "model", "pooled-lift", "results"), 2
)
FORMATS |= {"corpus": 4, "propensity": 3}
MAKERS = {  # by kind, else a stage of `merit run`
    "audience": "merit audience build MODEL --request FILE --out FOLDER",
    "experiment-design": "merit experiment design DESIGN.toml --out FOLDER",
    "assignment": "merit experiment assign DESIGN --users TABLE --out FOLDER",
    "lift": "merit experiment analyze DESIGN --table TABLE --out FOLDER",
}
MANIFEST = "manifest.json"
SEAL = "seal"


class FileRecord(Frozen):
    """What `load` checks: the size of a file always, its content where `verify` is set."""

    sha256: str
    bytes: int


class Parent(Frozen):
    """An artifact that another was made from. `path` leads there from the folder that the other lies in."""

    kind: str
    hash: str
    path: str


class Erased(Frozen):
    """Rows of users that were taken out of a finished folder."""

    number: str
    """Of the erasure. Its certificate has the files' hashes from before."""
    at: str
    rows: int


class Manifest(Frozen):
    """What a folder is and where it came from. As JSON it is sealed with a hash of its content."""

    kind: str
    format: int = 1
    version: str = __version__
    created: str
    hash: str
    """Of kind, config, seed, parents' hashes and file contents: equal for equal results, wherever and whenever made.
    It names what was made: it stays when users are erased, so that all that was made from it still finds it."""
    seed: int | None = None
    config: dict[str, Any] = {}
    parents: dict[str, Parent] = {}
    inputs: dict[str, Any] = {}
    """Fingerprints of raw files read. Outside the hash: a copied file keeps its content but not its time."""
    summary: dict[str, Any] = {}
    files: dict[str, FileRecord]
    erased: tuple[Erased, ...] = Field((), exclude_if=lambda value: not value)

    @model_serializer(mode="wrap")
    def _seal(self, plain: Any, info: SerializationInfo) -> dict[str, Any]:
        values: dict[str, Any] = plain(self)
        return values | {SEAL: sha256(to_json(values)).hexdigest()} if info.mode == "json" else values

    @model_validator(mode="before")
    @classmethod
    def _unseal(cls, given: Any) -> Any:
        if not isinstance(given, dict) or SEAL not in given:  # a new one; of a folder, `load` requires it
            return given
        values = {name: value for name, value in given.items() if name != SEAL}
        if sha256(to_json(values)).hexdigest() != given[SEAL]:
            raise ValueError("the seal is broken")
        return values


@dataclass(frozen=True)
class Artifact:
    """A finished folder."""

    path: Path
    manifest: Manifest

    def file(self, name: str) -> Path:
        """Where a file of that name belongs in the folder; whether it is there is not looked at."""
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
    sealed: Callable[[Path], object] | None = None,
) -> Iterator[Draft]:
    """Write an artifact; it appears under `folder` complete, or not at all. `sealed` is called right before it does."""
    with storage_errors(folder):
        _refuse_foreign(folder)
        with _locked(folder):
            _sweep(folder)
            draft = Draft(folder.parent / f".{folder.name}.tmp-{os.getpid()}")
            try:
                draft.path.mkdir()  # in here: a signal may come between any two lines
                yield draft
                manifest = _describe(draft, kind, config, seed, parents or {}, inputs or {})
                _write_synced(draft.path / MANIFEST, manifest.model_dump_json(indent=2))
                if sealed:
                    sealed(draft.path)
                _swap(draft.path, folder)
            finally:
                files.remove_folder(draft.path)


def tidy(folder: Path) -> None:
    """Remove what processes left beside a folder when they were killed, unless somebody is making it anew right now."""
    if any(_left_beside(folder)):
        with suppress(StorageError), _locked(folder):
            _sweep(folder)


def load(folder: Path, kind: str | None = None, verify: bool = True) -> Artifact:
    """Open a finished artifact. With `verify`, every byte is checked against the manifest first."""
    wanted = kind or "merit"
    try:
        text = (folder / MANIFEST).read_text(encoding="utf-8")
    except (FileNotFoundError, NotADirectoryError):
        stage = f" (stage {kind})" if kind and kind not in MAKERS else ""
        make = f"Make it with `{MAKERS.get(wanted, 'merit run CONFIG')}`{stage}."
        raise MissingArtifact(f"{folder} is not a finished {wanted} artifact (no {MANIFEST}). {make}") from None
    except (OSError, UnicodeDecodeError) as error:
        raise DamagedArtifact(f"{folder / MANIFEST} cannot be read: {error}. Make the artifact again.") from None
    manifest = _parse(folder, text)
    if kind and manifest.kind != kind:
        raise MissingArtifact(f"{folder} is a {manifest.kind} artifact, but a {kind} artifact is needed here.")
    _check_identity(folder, manifest)
    for name, record in manifest.files.items():
        _check_file(folder / name, record, verify)
    return Artifact(folder, manifest)


def opens(read: Callable[Concatenate[Artifact, P], T]) -> Callable[Concatenate[Artifact, P], T]:
    """The same reader of an artifact, its first argument, but what a strange file makes it say is one sentence."""

    @wraps(read)
    def guarded(artifact: Artifact, /, *args: P.args, **options: P.kwargs) -> T:
        with files.opening(artifact.path):
            return read(artifact, *args, **options)

    return guarded


def current(
    folder: Path, kind: str, config: BaseModel, seed: int, parents: Mapping[str, Artifact], inputs: Mapping[str, Any]
) -> Artifact | None:
    """What `folder` holds, if it is just what a run with these settings, parents and inputs would make."""
    try:
        artifact = load(folder, kind)
    except (MissingArtifact, DamagedArtifact):
        return None
    manifest = artifact.manifest
    same = (
        manifest.version == __version__
        and manifest.seed == seed
        and manifest.config == _plain(config)
        and {name: parent.hash for name, parent in manifest.parents.items()}
        == {name: parent.manifest.hash for name, parent in parents.items()}
        and manifest.inputs == json.loads(json.dumps(dict(inputs)))
    )
    return artifact if same else None


def family(folder: Path, verify: bool = True) -> list[Artifact]:
    """The artifact in `folder` and all it was made from, nearest first; or the artifacts inside a run's folder."""
    inside = sorted(path.parent for path in folder.glob(f"*/{MANIFEST}"))
    if inside and not (folder / MANIFEST).exists():
        return [load(path, verify=verify) for path in inside]
    members = [load(folder, verify=verify)]
    for parent in members[0].manifest.parents.values():
        place = folder.parent / parent.path
        if (place / MANIFEST).exists() and load(place, verify=False).manifest.hash == parent.hash:
            paths = {member.path for member in members}
            members += [other for other in family(place, verify) if other.path not in paths]
    return members


def describe(artifact: Artifact) -> str:
    """The manifest as a text."""
    manifest = artifact.manifest
    size = sum(record.bytes for record in manifest.files.values())
    lines = [
        f"{artifact.path}: {manifest.kind}, {len(manifest.files)} files, {size / 2**20:,.1f} MiB",
        f"  made {manifest.created} by merit {manifest.version}, seed {manifest.seed}, hash {manifest.hash[:16]}",
        *(f"  from {name}: {parent.path} (hash {parent.hash[:16]})" for name, parent in manifest.parents.items()),
        *(f"  read {name}" for name in manifest.inputs),
        *(f"  {note.rows:,} rows erased {note.at} (erasure {note.number})" for note in manifest.erased),
        *(
            f"  {name}: {value:,}" if isinstance(value, int) else f"  {name}: {value}"
            for name, value in manifest.summary.items()
        ),
    ]
    return "\n".join(lines)


def _refuse_foreign(folder: Path) -> None:
    """Never replace something that is not ours: a typing mistake in --out must not delete a home folder."""
    if folder.exists() and not (folder / MANIFEST).exists() and (not folder.is_dir() or any(folder.iterdir())):
        raise StorageError(
            f"{folder} exists and is not a merit artifact. Choose another folder, or remove it yourself."
        )


def _locked(folder: Path) -> AbstractContextManager[None]:
    busy = f"Another run is making {folder}. Wait for it, or stop it."
    return files.locked(folder.parent / f".{folder.name}.lock", busy, fleeting=True)


def _left_beside(folder: Path) -> Iterator[Path]:
    """Drafts, and previous versions that stepped aside."""
    return folder.parent.glob(f".{folder.name}.tmp-*")


def _sweep(folder: Path) -> None:
    """Remove what killed processes left. The lock is ours."""
    for stale in _left_beside(folder):
        shutil.rmtree(stale, ignore_errors=True)


def _describe(
    draft: Draft,
    kind: str,
    config: BaseModel | None,
    seed: int | None,
    parents: Mapping[str, Artifact],
    inputs: Mapping[str, Any],
) -> Manifest:
    made_of = {str(path.relative_to(draft.path)): path for path in sorted(draft.path.rglob("*")) if path.is_file()}
    records = {
        name: FileRecord(sha256=hash_file(path, sync=True), bytes=path.stat().st_size) for name, path in made_of.items()
    }
    family = {
        name: Parent(
            kind=parent.manifest.kind, hash=parent.manifest.hash, path=os.path.relpath(parent.path, draft.path.parent)
        )
        for name, parent in parents.items()
    }
    made = Manifest(
        kind=kind,
        format=FORMATS.get(kind, 1),
        created=provenance.now(),
        hash="",
        seed=seed,
        config=_plain(config),
        parents=family,
        inputs=dict(inputs),
        summary=draft.summary,
        files=records,
    )
    return made.model_copy(update={"hash": identity(made)})


def identity(manifest: Manifest, digests: Mapping[str, str] | None = None) -> str:
    """The hash of an artifact with these files, given as the sha256 of each; by default, with those of the manifest."""
    digests = digests or {name: record.sha256 for name, record in manifest.files.items()}
    essence = {
        "kind": manifest.kind,
        "format": manifest.format,
        "config": manifest.config,
        "seed": manifest.seed,
        "parents": {name: parent.hash for name, parent in manifest.parents.items()},
        "files": {name: digest for name, digest in digests.items() if not _dated(name)},
    }
    return sha256(json.dumps(essence, sort_keys=True).encode()).hexdigest()


def _dated(name: str) -> bool:
    """Whether a file holds when or how it was made: pages, results of `merit bench`, logs, manifests inside."""
    path = PurePath(name)
    return path.name in ("index.html", "results.json", MANIFEST) or "log" in path.parts[:-1]


def _plain(config: BaseModel | None) -> dict[str, Any]:
    return json.loads(config.model_dump_json()) if config else {}


def reseal(folder: Path, manifest: Manifest, changed: Iterable[str]) -> None:
    """Write the manifest of a copy of an artifact in which these files are others than in the original."""
    records = {
        name: FileRecord(sha256=hash_file(folder / name, sync=True), bytes=(folder / name).stat().st_size)
        for name in changed
    }
    sealed = manifest.model_copy(update={"files": manifest.files | records})
    sealed = sealed.model_copy(update={"hash": identity(sealed)})
    (folder / MANIFEST).unlink(missing_ok=True)  # it may be a link to that of the original
    _write_synced(folder / MANIFEST, sealed.model_dump_json(indent=2))


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
    """Give the finished draft its name. It swaps names with a previous version; where it cannot, that steps aside."""
    old = folder.parent / f".{folder.name}.tmp-{os.getpid()}-old"
    if folder.exists():
        if files.exchange(draft, folder):
            return  # what has the draft's name now is removed by `writing`
        folder.rename(old)
    draft.rename(folder)
    files.sync_folder(folder.parent)
    shutil.rmtree(old, ignore_errors=True)


def _parse(folder: Path, text: str) -> Manifest:
    try:
        values = json.loads(text)
        if isinstance(values, dict) and SEAL not in values:
            raise ValueError("there is no seal")
        if isinstance(values, dict) and values["format"] != (expected := FORMATS.get(values["kind"], 1)):
            remedy = "Upgrade merit, or make" if values["format"] > expected else "Make"
            raise DamagedArtifact(
                f"{folder} was written by merit {values.get('version')} in format {values['format']}; "
                f"this is {__version__}, which reads format {expected}. {remedy} the artifact again."
            )
        return Manifest.model_validate(values)
    except (ValueError, TypeError, KeyError, RecursionError):
        raise DamagedArtifact(f"{folder / MANIFEST} is damaged. Make the artifact again with `merit run`.") from None


def _check_identity(folder: Path, manifest: Manifest) -> None:
    """Refuse a manifest whose files are not those it was named after, or lie elsewhere. An erasure changes files."""
    for name in manifest.files:
        path = PurePath(name)
        if path.is_absolute() or ".." in path.parts or not path.parts or "\0" in name:
            raise DamagedArtifact(f"{folder / MANIFEST} names a file outside its folder. Do not use this artifact.")
    if not manifest.erased and identity(manifest) != manifest.hash:
        raise DamagedArtifact(
            f"{folder / MANIFEST} was changed: its hash is not that of its files and settings. Make the artifact again "
            "with `merit run`."
        )


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
