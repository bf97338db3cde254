"""erase: users who are to be forgotten → every file without them, and a certificate.

    erase([Path("runs/shop"), Path("service")], ["u42"], reason="request of 2027-03-01")

First the users are hidden: from then on no reader tells of them, in no process. Then every artifact below the folders
is written again without their rows, one after the other, each in one step. A journal knows how far that has come: after
a kill, the same command goes on. Last, every byte is searched, and the certificate says what was found.

The artifact: certificate.json, and the same as a text in certificate.txt.
"""

from __future__ import annotations

import os
import secrets
import shutil
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from merit.core import artifacts, console, files, provenance, signing
from merit.core.artifacts import MANIFEST, Artifact, Erased, FileRecord
from merit.core.config import Frozen
from merit.core.errors import ConfigError, DamagedArtifact, DataError, MeritError, MissingArtifact, StorageError
from merit.privacy import audit, hidden
from merit.privacy.erasure import certificate, rewrite, search, workspace
from merit.privacy.erasure.certificate import ArtifactRecord, Certificate, FileChange
from merit.privacy.erasure.holdings import ExampleOwners, Holdings, holdings, require_users_left

KIND, MODEL, FOLDER, LOCK, JOURNAL = "erasure", "model", "erasures", ".erase.lock", ".erasure.json"
LAST = {"corpus": 1, "examples": 2}  # by which others know whose their rows are


class Journal(Frozen):
    """How far an erasure has come, on disk before every step. It names the users, so it is removed last."""

    number: str
    began: str
    reason: str
    users: tuple[str, ...]
    roots: tuple[Path, ...]
    found: tuple[str, ...] = ()
    unlinked: tuple[str, ...] = ()
    records: tuple[ArtifactRecord, ...] = ()

    def updated(self, home: Path, **changes: object) -> Journal:
        """The journal with these changes, on disk."""
        journal = self.model_copy(update=changes)
        files.write(home / JOURNAL, journal.model_dump_json())
        return journal


def read_journal(home: Path) -> Journal | None:
    """The journal of an erasure that was begun here and has not come to its end."""
    try:
        return Journal.model_validate_json((home / JOURNAL).read_bytes())
    except FileNotFoundError:
        return None
    except ValidationError:
        raise DamagedArtifact(
            f"{home / JOURNAL} is damaged. Remove it and give the whole `merit erase` again."
        ) from None


def erase(folders: Sequence[Path], users: Sequence[str], reason: str = "") -> Artifact:
    """The certificate of an erasure of these users. What an earlier erasure left undone is done first."""
    if unfinished := read_journal(home := workspace.home_of(folders)):
        try:
            finished = finish(folders)
        except MeritError as error:
            remedy = f"Mend that, or take it back: `merit erase --take-back --folder {os.path.relpath(home)}`."
            raise type(error)(f"An erasure was begun here and cannot be finished. {error} {remedy}") from None
        users = [user for user in users if user not in set(unfinished.users)]
        if not users:
            return finished
    with begin(folders, users, reason) as home:
        return purge(home)


def finish(folders: Sequence[Path]) -> Artifact:
    """The certificate of an erasure that was begun from the first of these folders, and is brought to its end."""
    home = workspace.home_of(folders)
    if not (journal := read_journal(home)):
        raise ConfigError(f"No users are named, and no erasure in {home} waits for its end. Name users, or --file.")
    with _locked(journal.roots):
        return purge(home)


def plan(folders: Sequence[Path], users: Sequence[str]) -> list[Holdings]:
    """What the artifacts hold of these users; nothing is changed."""
    present = workspace.find(folders)
    owners = ExampleOwners(present)
    held = [holdings(artifact, frozenset(users), owners) for artifact in present]
    return [one for one in held if one.rows]


@contextmanager
def begin(folders: Sequence[Path], users: Sequence[str], reason: str = "") -> Iterator[Path]:
    """Hide these users from every reader; the folder of the journal. No other erasure can begin meanwhile.

    What is refused leaves nothing behind, and hides nobody.
    """
    if not users or not all(users):
        raise ConfigError("Name the users to be erased: `merit erase USER`, or --file with an id in each line.")
    if search.mentioned(reason, users):
        raise ConfigError("The reason names a user, and it is kept in the certificate. Write it without.")
    workspace.find(folders)  # before a lock makes a folder that is not there
    roots = tuple(dict.fromkeys(folder.resolve() for folder in folders))
    with _locked(roots):
        yield _hide(roots, users, reason)


def purge(home: Path) -> Artifact:
    """The certificate, after the users of the journal were taken out of everything."""
    journal = read_journal(home)
    if journal is None:
        raise ConfigError(f"No erasure was begun in {home}. Begin one with `merit erase USER`.")
    rewrite.mend(journal.roots)
    present = workspace.find(journal.roots)
    workspace.sweep({*journal.roots, *workspace.parents(present)})
    journal = _purge_all(home, journal, present)
    if not journal.found and not journal.records:
        _forget(home, workspace.parents(present))
        users = "This user is" if len(journal.users) == 1 else f"These {len(journal.users):,} users are"
        raise DataError(
            f"{users} nowhere in {', '.join(os.path.relpath(root) for root in journal.roots)}. Nothing was erased. "
            "Check the ids: they are written as in the interactions."
        )
    return _certify(home, journal)


@contextmanager
def _locked(roots: Sequence[Path]) -> Iterator[None]:
    busy = "Another erasure is at work in these folders, or a refresh. Give the same command again when it has ended."
    with ExitStack() as locks:
        for home in sorted({workspace.home_of([root]) for root in roots}):
            locks.enter_context(files.locked(home / LOCK, busy))
        yield


def _hide(roots: tuple[Path, ...], users: Sequence[str], reason: str) -> Path:
    home, present = workspace.home_of(roots), workspace.find(roots)
    if not (parents := workspace.parents(present)):
        raise MissingArtifact(f"There is nothing of merit in {', '.join(map(str, roots))}. Name the folder of a run.")
    number, once = secrets.token_hex(8), tuple(dict.fromkeys(users))
    for other, theirs in hidden.others([home, *parents]):
        if (other / JOURNAL).exists():
            raise StorageError(f"An erasure has not come to its end. Finish it first: `merit erase --folder {other}`.")
        if not theirs <= set(once):
            raise StorageError(
                f"An erasure was begun in {other} whose journal is gone. Give it again, with all {len(theirs):,} users "
                f"that {hidden.FILE} names."
            )
    for artifact in present:
        if artifact.manifest.kind == MODEL:
            require_users_left(artifact, frozenset(once))
    try:
        Journal(number=number, began=provenance.now(), reason=reason, users=once, roots=roots).updated(home)
        hidden.hide([home, *parents], number, once, home)
    except MeritError:
        _forget(home, parents)
        raise
    return home


def take_back(folders: Sequence[Path]) -> int:
    """The number of users who are shown again: those of an erasure that was begun and has purged nothing yet."""
    home = workspace.home_of(folders)
    if not (journal := read_journal(home)):
        raise ConfigError(f"No erasure in {home} waits for its end, so there is nothing to take back.")
    roots = [root for root in journal.roots if root.exists()] or [home]  # a folder may have been removed since
    with _locked(roots):
        rewrite.mend(roots)
        present = workspace.find(roots)
        if any(journal.number == erased.number for artifact in present for erased in artifact.manifest.erased):
            raise DataError(
                f"The first rows of this erasure are gone, and cannot be brought back. Finish it: `merit erase "
                f"--folder {home}`."
            )
        _forget(home, workspace.parents(present))
        audit.append(home, "erasure taken back", number=journal.number, users=len(journal.users))
    return len(journal.users)


def cancel(home: Path, roots: Sequence[Path]) -> None:
    """Show the users again whom `begin` has hidden just now, while its lock is still held."""
    _forget(home, workspace.parents(workspace.find(roots)))


def _forget(home: Path, parents: Sequence[Path]) -> None:
    """Remove the lists of users, the journal last: as long as it is there, somebody can go on."""
    hidden.unhide([home, *parents])
    (home / JOURNAL).unlink(missing_ok=True)


# --- purging ---------------------------------------------------------------------------------------------------------


def _purge_all(home: Path, journal: Journal, present: Sequence[Artifact]) -> Journal:
    """Purge every artifact. Examples come last: they know whose the rows of other artifacts are."""
    users, owners = frozenset(journal.users), ExampleOwners(present)
    left = [one for one in present if journal.number not in {erased.number for erased in one.manifest.erased}]
    held = [holdings(artifact, users, owners) for artifact in left]
    named = {*journal.found}.union(*(one.found for one in held))
    if not named:
        return journal
    unlinked = {*journal.unlinked, *(os.path.relpath(one.artifact.path, home) for one in held if one.unlinked)}
    journal = journal.updated(home, found=tuple(sorted(named)), unlinked=tuple(sorted(unlinked)))
    work = sorted((one for one in held if one.changes), key=lambda one: LAST.get(one.artifact.manifest.kind, 0))
    for one in console.track(work, "purging", total=len(work)):
        folder = one.artifact.path
        draft = folder.with_name(f".{folder.name}.erased-{journal.number}")  # as `rewrite.mend` knows it
        record = write_draft(draft, one, journal.number, home)
        others = (other for other in journal.records if other.path != record.path)
        journal = journal.updated(home, records=(*others, record))
        rewrite.exchange(draft, folder)
        shutil.rmtree(draft)
    return journal


def write_draft(draft: Path, held: Holdings, number: str, home: Path) -> ArtifactRecord:
    """Write the folder that will take the artifact's place; what is different about it."""
    shutil.rmtree(draft, ignore_errors=True)
    artifact, rows = held.artifact, {name: group.rows for group in held.changes for name in group.files}
    manifest = artifact.manifest
    for name in rows:  # what is already damaged must not get a fresh hash
        if artifacts.hash_file(artifact.file(name)) != manifest.files[name].sha256:
            raise DamagedArtifact(f"{artifact.file(name)} is damaged. Make it again with `merit run`, or remove it.")
    draft.mkdir()
    for file in (path for path in artifact.path.rglob("*") if path.is_file()):
        name = str(file.relative_to(artifact.path))
        if name != MANIFEST and name not in rows:
            files.link(file, draft / name)
    for group in held.changes:
        group.write(draft)
    after = {
        name: FileRecord(sha256=artifacts.hash_file(draft / name, sync=True), bytes=(draft / name).stat().st_size)
        for name in rows
    }
    erased = (*manifest.erased, Erased(number=number, at=provenance.now(), rows=held.rows))
    update = {"files": manifest.files | after, "summary": manifest.summary | held.summary, "erased": erased}
    (draft / MANIFEST).write_text(manifest.model_copy(update=update).model_dump_json(indent=2) + "\n", encoding="utf-8")
    artifacts.hash_file(draft / MANIFEST, sync=True)
    signing.renew(artifact.path, draft)
    changes = tuple(
        FileChange(name=name, rows=rows[name], before=manifest.files[name].sha256, after=after[name].sha256)
        for name in rows
    )
    path, parts = os.path.relpath(artifact.path, home), dict(held.parts)
    return ArtifactRecord(path=path, kind=manifest.kind, hash=manifest.hash, rows=held.rows, parts=parts, files=changes)


# --- the certificate -------------------------------------------------------------------------------------------------


def _certify(home: Path, journal: Journal) -> Artifact:
    present = workspace.find(journal.roots)
    parents = workspace.parents(present)
    lists = {home / JOURNAL, *(folder / hidden.FILE for folder in (home, *parents))}
    with console.spinner("searching every byte"):
        wanted = search.patterns(journal.users, sorted(_salts([artifact.manifest.config for artifact in present])))
        result = search.search(journal.roots, wanted, lists, home)
    made = Certificate(
        number=journal.number,
        began=journal.began,
        ended=provenance.now(),
        reason=journal.reason,
        requested=len(journal.users),
        found=len(journal.found),
        artifacts=journal.records,
        exports=tuple(certificate.sent_exports(_log_entries(journal.roots), journal.records, present)),
        models=tuple(certificate.fitted_models(present, journal.records, home)),
        unlinked=journal.unlinked,
        search=result,
    )
    written = _write(home / FOLDER / journal.number, made)
    if not any(entry.details.get("number") == journal.number for entry in _log_entries([home])):
        rows = sum(record.rows for record in journal.records)
        figures = {"users": made.found, "artifacts": len(journal.records), "rows": rows, "clean": made.clean}
        audit.append(home, "erasure", number=journal.number, **figures, certificate=written.manifest.hash)
    _forget(home, parents)
    return written


def _write(out: Path, made: Certificate) -> Artifact:
    with artifacts.writing(out, KIND) as draft:
        (draft.path / "certificate.json").write_text(made.model_dump_json(indent=1) + "\n", encoding="utf-8")
        (draft.path / "certificate.txt").write_text(made.text(), encoding="utf-8")
        draft.summary |= {"users": made.found, "artifacts": len(made.artifacts), "clean": made.clean}
    return artifacts.load(out, KIND)


def certificate_of(artifact: Artifact) -> Certificate:
    """The certificate of a finished erasure."""
    return Certificate.model_validate_json(artifact.file("certificate.json").read_text(encoding="utf-8"))


def _log_entries(folders: Sequence[Path]) -> list[audit.AuditEntry]:
    logs = dict.fromkeys(log.parent.resolve() for folder in folders for log in folder.rglob(audit.FILE))
    return [entry for folder in logs for entry in audit.read(folder)]


def _salts(config: Any) -> set[str]:
    """The salts of holdouts, controls and experiments in some settings: arms are drawn by hashes of ids under them."""
    values = config.values() if isinstance(config, dict) else config if isinstance(config, list) else []
    salts = {salt for value in values for salt in _salts(value)}
    salt = config.get("salt") if isinstance(config, dict) else None
    return salts | {salt} if isinstance(salt, str) else salts
