"""The certificate of an erasure: what was erased, where, and what is left, without a word about who it was."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from pathlib import Path

from merit import __version__
from merit.core.artifacts import Artifact
from merit.core.config import Frozen
from merit.privacy.audit import AuditEntry

FITTED = ("factors", "generator", "propensity", "model")  # kinds with weights or probabilities learnt from users

REMAINS = (
    "Source tables outside these folders. A run that reads them again brings the users back: erase them there first.",
    "Weights: those listed under models were fitted when the users were there. Training them again without the users, "
    "by `merit run` on the mended tables, is the remedy.",
    "Figures over many users (counts of labels, results, reports, figures of audiences) as they were computed.",
    "Backups, snapshots and copies outside these folders; files that were sent, as listed under exports.",
    "Ids in a form that was not searched: in other letter cases, in encodings other than UTF-8, UTF-16 and UTF-32, "
    "inside longer words, in pictures, encrypted, or hashed with a key or by other functions than MD5, SHA-1, SHA-256 "
    "and BLAKE2b. Short numbers in columns of merit's own tables that are not columns of users.",
    "Blocks of the disk that the file system has freed and not yet used again.",
)


class FileChange(Frozen):
    """A file that was written again; `rows` are those of all files that were written together with it."""

    name: str
    rows: int
    before: str
    """sha256 of the file."""
    after: str


class ArtifactRecord(Frozen):
    """An artifact that held the users."""

    path: str
    """From the folder of the certificate's workspace."""
    kind: str
    hash: str
    """As children name it; the files' hashes from before make it."""
    rows: int
    parts: dict[str, int] = {}
    """Users by split (of examples) or by arm (of audiences and assignments)."""
    files: tuple[FileChange, ...]

    def __str__(self) -> str:
        return f"{self.path} ({self.kind}): {self.rows:,} rows in {len(self.files)} files"


class SentExport(Frozen):
    """An export that held the users, wherever it is now."""

    at: str
    audience: str
    """The hash of the audience."""
    arm: str
    form: str
    rows: int
    sha256: str
    users: int | None
    """Of those erased; None where the audience is gone, so that it is unknown."""

    def __str__(self) -> str:
        users = "an unknown number" if self.users is None else f"{self.users:,}"
        return f"{self.at}: {users} of {self.rows:,} rows, sha256 {self.sha256}"


class FittedModel(Frozen):
    """Weights that were fitted when the users were there. They are not changed."""

    path: str
    kind: str
    hash: str
    fitted: int
    """Users among those the weights were trained on."""
    calibrated: int
    """Users among those its probabilities were calibrated on."""

    def __str__(self) -> str:
        seen = f"fitted on {self.fitted:,}, calibrated on {self.calibrated:,}"
        return f"{self.path} ({self.kind} {self.hash[:16]}): {seen}"


class SearchFinding(Frozen):
    """How often something of the users is in a file; `how` tells an id from a hash, and never whose."""

    file: str
    how: str
    times: int

    def __str__(self) -> str:
        return f"{self.file}: {self.how}, {self.times:,} times"


class SearchResult(Frozen):
    """What a search through every file after the purge found, and how much was searched."""

    files: int
    bytes: int
    held: tuple[SearchFinding, ...] = ()
    """Where an id or a hash of one still is."""
    alike: tuple[SearchFinding, ...] = ()
    """Where bytes like a short id occur that may mean something else."""
    unsearched: tuple[str, ...] = ()
    """Files whose content cannot be read, and why."""


class Certificate(Frozen):
    """Counts, hashes and places of one erasure; the ids of the users are not in it."""

    number: str
    """Drawn by lot."""
    began: str
    ended: str
    reason: str
    version: str = __version__
    requested: int
    found: int
    artifacts: tuple[ArtifactRecord, ...]
    exports: tuple[SentExport, ...]
    models: tuple[FittedModel, ...]
    unlinked: tuple[str, ...]
    """Artifacts with rows of which nothing tells whose they are: their examples are gone."""
    search: SearchResult
    remains: tuple[str, ...] = REMAINS

    @property
    def clean(self) -> bool:
        """Whether every file was searched and nothing is held; bytes that are only like an id do not count."""
        return not (self.search.held or self.search.unsearched)

    def text(self) -> str:
        """The same for people."""
        search, rows = self.search, sum(record.rows for record in self.artifacts)
        users = f"{self.found:,} user{'s' * (self.found != 1)} of {self.requested:,} requested"
        result = "STILL FOUND in" if search.held else "nothing was found."
        searched = f"Search of {search.files:,} files, {search.bytes:,} bytes, for ids and their hashes: {result}"
        parts = [
            f"Erasure {self.number}\nbegan {self.began}, ended {self.ended}, merit {self.version}\n"
            f"reason: {self.reason or 'none given'}\n{users} were found and erased.\n",
            _listed(f"{rows:,} rows in {len(self.artifacts):,} artifacts:", self.artifacts),
            _listed(f"Exports that held them: {len(self.exports)}", self.exports),
            _listed(f"Model versions that saw them: {len(self.models)}", self.models),
            *([_listed("The owners of the rows are unknown in:", self.unlinked)] if self.unlinked else []),
            _listed(searched, search.held)
            + (
                _listed("Bytes like a short id, which may mean something else, are in", search.alike)
                if search.alike
                else ""
            ),
            *([_listed("NOT SEARCHED, as it cannot be read:", search.unsearched)] if search.unsearched else []),
            _listed("What remains:", [f"- {remark}" for remark in self.remains]),
        ]
        return "\n".join(parts)


def _listed(title: str, rows: Sequence[object]) -> str:
    return "".join(f"{line}\n" for line in (title, *(f"  {row}" for row in rows)))


def sent_exports(
    entries: Sequence[AuditEntry], records: Sequence[ArtifactRecord], present: Sequence[Artifact]
) -> Iterator[SentExport]:
    """Exports of the log whose arm of the audience had the users. Those still in the folders are among the records."""
    erased = {record.hash: record.parts for record in records if record.kind == "audience"}
    kept = {artifact.manifest.hash for artifact in present if artifact.manifest.kind == "audience"}
    for entry in entries:
        if entry.event == "export":
            audience, arm = str(entry.details["audience"]), str(entry.details["arm"])
            arms = erased.get(audience, {})
            users = sum(arms.values()) if arm == "all" else arms.get(arm, 0)
            if users or audience not in kept:
                export = {name: entry.details[name] for name in ("form", "rows", "sha256")}
                count = users if audience in kept else None
                yield SentExport(at=entry.at, audience=audience, arm=arm, users=count, **export)


def fitted_models(present: Sequence[Artifact], records: Sequence[ArtifactRecord], home: Path) -> Iterator[FittedModel]:
    """Weights whose ancestors are examples that held the users."""
    by_hash = {artifact.manifest.hash: artifact for artifact in present}
    splits = {record.hash: record.parts for record in records if record.kind == "examples"}
    for artifact in present:
        kind = artifact.manifest.kind
        if kind in FITTED:
            parts = [splits[ancestor] for ancestor in _ancestors(artifact, by_hash) if ancestor in splits]
            fitted = sum(part.get("train", 0) for part in parts)
            calibrated = sum(part.get("validation", 0) for part in parts) if kind != "generator" else 0
            if fitted or calibrated:
                path = os.path.relpath(artifact.path, home)
                yield FittedModel(
                    path=path, kind=kind, hash=artifact.manifest.hash, fitted=fitted, calibrated=calibrated
                )


def _ancestors(artifact: Artifact, by_hash: dict[str, Artifact]) -> set[str]:
    parents = {parent.hash for parent in artifact.manifest.parents.values()}
    return parents.union(*(_ancestors(by_hash[parent], by_hash) for parent in parents if parent in by_hash))
