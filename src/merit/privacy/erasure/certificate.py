"""The certificate of an erasure: what was erased, where, and what is left, without a word about who it was."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from pathlib import Path

from merit import __version__
from merit.core.artifacts import Artifact
from merit.core.config import Frozen
from merit.privacy.audit import AuditEntry

FITTED = ("generator", "propensity", "model")  # kinds with weights or probabilities learnt from users


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
    """Of those erased; None where the audience is gone and nothing tells."""


class FittedModel(Frozen):
    """Weights that were fitted when the users were there. They are not changed."""

    path: str
    kind: str
    hash: str
    fitted: int
    """Users among those the weights were trained on."""
    calibrated: int
    """Users among those its probabilities were calibrated on."""


class SearchFinding(Frozen):
    """How often something of the users is in a file; `how` tells an id from a hash, and never whose."""

    file: str
    how: str
    times: int


class SearchResult(Frozen):
    """What a search through every file after the purge found, and how much was searched."""

    files: int
    bytes: int
    held: tuple[SearchFinding, ...] = ()
    """Where an id or a hash of one still is."""
    alike: tuple[SearchFinding, ...] = ()
    """Where bytes like a short id occur that may mean something else."""


class Certificate(Frozen):
    """Counts, hashes and places of one erasure; the ids of the users are not in it."""

    number: str
    """Drawn by lot."""
    began: str
    ended: str
    reason: str
    version: str = __version__
    asked: int
    found: int
    artifacts: tuple[ArtifactRecord, ...]
    exports: tuple[SentExport, ...]
    models: tuple[FittedModel, ...]
    unlinked: tuple[str, ...]
    """Artifacts with rows of which nothing tells whose they are: their examples are gone."""
    search: SearchResult
    remains: tuple[str, ...]

    @property
    def clean(self) -> bool:
        """Whether nothing is held any more; bytes that are only like an id do not count."""
        return not self.search.held


REMAINS = (
    "Source tables outside these folders. A run that reads them again brings the users back: erase them there first.",
    "Weights: those listed under models were fitted when the users were there. Training them again without the users, "
    "by `merit run` on the mended tables, is the remedy.",
    "Figures over many users (counts of labels, results, reports, figures of audiences) as they were computed.",
    "Backups, snapshots and copies outside these folders; files that were sent, as listed under exports.",
    "Blocks of the disk that the file system has freed and not yet used again.",
)


def text(certificate: Certificate) -> str:
    """The certificate as a text."""
    made, search = certificate, certificate.search
    lines = [
        f"Erasure {made.number}",
        f"began {made.began}, ended {made.ended}, merit {made.version}",
        f"reason: {made.reason or 'none given'}",
        f"{made.found:,} user{'s' * (made.found != 1)} of {made.asked:,} asked for were found and erased.",
        "",
        f"{sum(record.rows for record in made.artifacts):,} rows in {len(made.artifacts):,} artifacts:",
        *(f"  {each.path} ({each.kind}): {each.rows:,} rows in {len(each.files)} files" for each in made.artifacts),
        "",
        f"Exports that held them: {len(made.exports)}",
        *(
            f"  {sent.at}: {'an unknown number' if sent.users is None else f'{sent.users:,}'} of {sent.rows:,} rows, "
            f"sha256 {sent.sha256}"
            for sent in made.exports
        ),
        "",
        f"Model versions that saw them: {len(made.models)}",
        *(
            f"  {model.path} ({model.kind} {model.hash[:16]}): fitted on {model.fitted:,}, calibrated on "
            f"{model.calibrated:,}"
            for model in made.models
        ),
        *(["", "Nothing tells whose the rows are in:", *(f"  {path}" for path in made.unlinked)] * bool(made.unlinked)),
        "",
        f"Search of {search.files:,} files, {search.bytes:,} bytes, for ids and their hashes: "
        + ("nothing was found." if made.clean else "STILL FOUND in"),
        *_findings(search.held),
        *(["Bytes like a short id, which may mean something else, are in"] * bool(search.alike)),
        *_findings(search.alike),
        "",
        "What remains:",
        *(f"  - {remark}" for remark in made.remains),
    ]
    return "\n".join(lines) + "\n"


def _findings(findings: Sequence[SearchFinding]) -> list[str]:
    return [f"  {finding.file}: {finding.how}, {finding.times:,} times" for finding in findings]


def sent_exports(
    entries: Sequence[AuditEntry], records: Sequence[ArtifactRecord], found: Sequence[Artifact]
) -> Iterator[SentExport]:
    """Exports of the log whose arm of the audience had the users. Those still in the folders are among the records."""
    erased = {record.hash: record.parts for record in records if record.kind == "audience"}
    present = {artifact.manifest.hash for artifact in found if artifact.manifest.kind == "audience"}
    for entry in entries:
        if entry.event == "export":
            audience, arm = str(entry.told["audience"]), str(entry.told["arm"])
            arms = erased.get(audience, {})
            users = sum(arms.values()) if arm == "all" else arms.get(arm, 0)
            if users or audience not in present:
                export = {name: entry.told[name] for name in ("form", "rows", "sha256")}
                count = users if audience in present else None
                yield SentExport(at=entry.at, audience=audience, arm=arm, users=count, **export)


def fitted_models(found: Sequence[Artifact], records: Sequence[ArtifactRecord], home: Path) -> Iterator[FittedModel]:
    """Weights whose ancestors are examples that held the users."""
    by_hash = {artifact.manifest.hash: artifact for artifact in found}
    splits = {record.hash: record.parts for record in records if record.kind == "examples"}
    for artifact in found:
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
    hashes, waiting = set[str](), [artifact]
    while waiting:
        for parent in waiting.pop().manifest.parents.values():
            if parent.hash not in hashes:
                hashes.add(parent.hash)
                waiting += [by_hash[parent.hash]] if parent.hash in by_hash else []
    return hashes
