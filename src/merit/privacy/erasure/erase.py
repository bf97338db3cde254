"""erase: users who are to be forgotten → every file without them, and a certificate.

    erase([Path("runs/shop"), Path("service")], ["u42"], reason="request of 2027-03-01")

First the users are hidden: from then on no reader tells of them, in no process. Then every artifact below the folders
is written again without their rows, one after the other, each in one step. A journal knows how far that has come: after
a kill, the same command goes on. Last, every byte is searched, and the certificate says what was found.

The artifact: certificate.json, and the same for people as certificate.txt.
"""

from __future__ import annotations

import os
import secrets
import shutil
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from merit.core import artifacts, console, files
from merit.core.artifacts import Artifact
from merit.core.errors import ConfigError, DataError, MissingArtifact, StorageError
from merit.privacy import audit, hidden
from merit.privacy.erasure import certificate, journal, purge, replace, search, workspace
from merit.privacy.erasure.certificate import Certificate, Record, Sent, Trained
from merit.privacy.erasure.holdings import Held, held
from merit.privacy.erasure.journal import Journal
from merit.privacy.erasure.orders import Orders

KIND, FOLDER, LOCK = "erasure", "erasures", ".erase.lock"
SAW = ("generator", "propensity", "model")  # kinds with weights or probabilities learnt from users


def erase(folders: Sequence[Path], users: Sequence[str], reason: str = "") -> Artifact:
    """Hide and purge these users. What an earlier erasure left undone is done first."""
    if unfinished := journal.read(workspace.home_of(folders)):
        finished = finish(folders)
        users = [user for user in users if user not in set(unfinished.users)]
        if not users:
            return finished
    with begun(folders, users, reason) as home:
        return purged(home)


def finish(folders: Sequence[Path]) -> Artifact:
    """Bring an erasure to its end that was begun from the first of these folders."""
    home = workspace.home_of(folders)
    if not (left := journal.read(home)):
        raise ConfigError(f"No users are named, and no erasure in {home} waits for its end. Name users, or --file.")
    with _locked(left.roots):
        return purged(home)


def planned(folders: Sequence[Path], users: Sequence[str]) -> list[tuple[Artifact, Held]]:
    """What holds these users, and nothing changed."""
    found = workspace.find(folders)
    return [(artifact, told) for artifact, told in _held(found, found, frozenset(users)) if told.rows]


@contextmanager
def begun(folders: Sequence[Path], users: Sequence[str], reason: str = "") -> Iterator[Path]:
    """Hide these users from every reader; no other erasure can begin meanwhile. Where the journal is."""
    _require_users(users, reason)
    workspace.require(folders)
    roots = tuple(dict.fromkeys(folder.resolve() for folder in folders))
    with _locked(roots):
        yield _hide(roots, users, reason)


def purged(home: Path) -> Artifact:
    """Take the users of the journal out of everything, and certify it."""
    told = journal.read(home)
    if told is None:
        raise ConfigError(f"No erasure was begun in {home}. Begin one with `merit erase USER`.")
    journal.mend(told.roots)
    found = workspace.find(told.roots)
    workspace.sweep({*told.roots, *workspace.shelves(found)})
    told = _rewritten(home, told, found)
    if not told.found and not told.records:
        _forget(home, told, workspace.shelves(found))
        raise DataError(
            f"{_some(len(told.users))} nowhere in {', '.join(os.path.relpath(root) for root in told.roots)}. Nothing "
            "was erased. Check the ids: they are written as in the interactions."
        )
    return _certified(home, told)


# --- hiding ----------------------------------------------------------------------------------------------------------


@contextmanager
def _locked(roots: Sequence[Path]) -> Iterator[None]:
    busy = "Another erasure is at work in these folders. Give the same command again when it has ended."
    with ExitStack() as locks:
        for home in sorted({workspace.home_of([root]) for root in roots}):
            locks.enter_context(files.locked(home / LOCK, busy))
        yield


def _require_users(users: Sequence[str], reason: str) -> None:
    if not users or not all(users):
        raise ConfigError("Name the users to be erased: `merit erase USER`, or --file with an id in each line.")
    if search.mentioned(reason, users):
        raise ConfigError("The reason names a user, and it is kept in the certificate. Write it without.")


def _hide(roots: tuple[Path, ...], users: Sequence[str], reason: str) -> Path:
    home, shelves = workspace.home_of(roots), workspace.shelves(workspace.find(roots))
    if not shelves:
        raise MissingArtifact(f"There is nothing of merit in {', '.join(map(str, roots))}. Name the folder of a run.")
    if other := hidden.another([home, *shelves]):
        raise StorageError(f"An erasure has not come to its end. Finish it first: `merit erase --folder {other}`.")
    number = secrets.token_hex(8)
    once = tuple(dict.fromkeys(users))
    journal.write(home, Journal(number=number, began=_now(), reason=reason, users=once, roots=roots))
    hidden.hide([home, *shelves], number, once, home)
    return home


def _forget(home: Path, told: Journal, shelves: Sequence[Path]) -> None:
    """The lists of users, the journal last: as long as it is there, somebody can go on."""
    hidden.unhide([home, *shelves])
    journal.remove(home)


# --- purging ---------------------------------------------------------------------------------------------------------


def _held(
    some: Sequence[Artifact], found: Sequence[Artifact], users: frozenset[str]
) -> Iterator[tuple[Artifact, Held]]:
    orders = Orders({artifact.manifest.hash: artifact for artifact in found})
    for artifact in some:
        yield artifact, held(artifact, users, orders)


def _rewritten(home: Path, told: Journal, found: Sequence[Artifact]) -> Journal:
    """Every artifact without the users. Examples come last: they know whose the rows of other artifacts are."""
    left = [each for each in found if told.number not in {erased.number for erased in each.manifest.erased}]
    plan = list(_held(left, found, frozenset(told.users)))
    named = frozenset(told.found).union(*(each.found for _, each in plan))
    unlinked = {os.path.relpath(artifact.path, home) for artifact, each in plan if each.unlinked}
    told = told.model_copy(
        update={"found": tuple(sorted(named)), "unlinked": tuple(sorted({*told.unlinked, *unlinked}))}
    )
    if not named:
        return told
    journal.write(home, told)
    work = [each for each in plan if purge.changes(each[1])]
    work.sort(key=lambda each: each[0].manifest.kind == "examples")
    for artifact, theirs in console.track(work, "purging", total=len(work)):
        record = purge.write_draft(artifact, theirs, told.number, _now(), home)
        told = journal.with_record(told, record)
        journal.write(home, told)
        draft = purge.draft_of(artifact.path, told.number)
        replace.exchange(draft, artifact.path)
        shutil.rmtree(draft)
    return told


# --- the certificate -------------------------------------------------------------------------------------------------


def _certified(home: Path, told: Journal) -> Artifact:
    found = workspace.find(told.roots)
    shelves = workspace.shelves(found)
    lists = {home / journal.FILE, *(place / hidden.FILE for place in (home, *shelves))}
    with console.spinner("searching every byte"):
        wanted = search.patterns(told.users, _salts([each.manifest.config for each in found]))
        result = search.search(told.roots, wanted, lists, home)
    made = Certificate(
        number=told.number,
        began=told.began,
        ended=_now(),
        reason=told.reason,
        asked=len(told.users),
        found=len(told.found),
        artifacts=told.records,
        exports=tuple(_sent(told)),
        models=tuple(_trained(found, told.records, home)),
        unlinked=told.unlinked,
        search=result,
        remains=certificate.REMAINS,
    )
    written = _write(home / FOLDER / told.number, made)
    if not any(each.told.get("number") == told.number for each in _entries([home])):
        rows = sum(record.rows for record in told.records)
        figures = {"users": made.found, "artifacts": len(told.records), "rows": rows, "clean": made.clean}
        audit.append(home, "erasure", number=told.number, **figures, certificate=written.manifest.hash)
    _forget(home, told, shelves)
    return written


def _write(out: Path, made: Certificate) -> Artifact:
    with artifacts.writing(out, KIND) as draft:
        (draft.path / "certificate.json").write_text(made.model_dump_json(indent=1) + "\n", encoding="utf-8")
        (draft.path / "certificate.txt").write_text(certificate.text(made), encoding="utf-8")
        draft.summary |= {"users": made.found, "artifacts": len(made.artifacts), "clean": made.clean}
    return artifacts.load(out, KIND)


def certificate_of(artifact: Artifact) -> Certificate:
    """From certificate.json of a finished erasure, for the terminal and the service."""
    return Certificate.model_validate_json(artifact.file("certificate.json").read_text(encoding="utf-8"))


def _sent(told: Journal) -> Iterator[Sent]:
    """Exports of the log whose arm of the audience had the users. Those still in the folders are among the records."""
    audiences = {record.hash: record.parts for record in told.records if record.kind == "audience"}
    there = {each.manifest.hash for each in workspace.find(told.roots) if each.manifest.kind == "audience"}
    for entry in _entries(told.roots):
        if entry.event == "export":
            of, arm = str(entry.told["audience"]), str(entry.told["arm"])
            parts = audiences.get(of, {})
            users = sum(parts.values()) if arm == "all" else parts.get(arm, 0)
            if users or of not in there:
                facts = {name: entry.told[name] for name in ("form", "rows", "sha256")}
                yield Sent(at=entry.at, audience=of, arm=arm, users=users if of in there else None, **facts)


def _entries(folders: Sequence[Path]) -> list[audit.AuditEntry]:
    logs = dict.fromkeys(log.parent.resolve() for folder in folders for log in folder.rglob(audit.FILE))
    return [entry for folder in logs for entry in audit.read(folder)]


def _trained(found: Sequence[Artifact], records: Sequence[Record], home: Path) -> Iterator[Trained]:
    """Weights whose ancestors are examples that held the users."""
    by_hash = {artifact.manifest.hash: artifact for artifact in found}
    splits = {record.hash: record.parts for record in records if record.kind == "examples"}
    for artifact in found:
        if artifact.manifest.kind in SAW:
            parts = [splits[each] for each in _ancestors(artifact, by_hash) if each in splits]
            fitted = sum(each.get("train", 0) for each in parts)
            curve = sum(each.get("validation", 0) for each in parts) if artifact.manifest.kind != SAW[0] else 0
            if fitted or curve:
                yield Trained(
                    path=os.path.relpath(artifact.path, home),
                    kind=artifact.manifest.kind,
                    hash=artifact.manifest.hash,
                    fitted=fitted,
                    calibrated=curve,
                )


def _ancestors(artifact: Artifact, by_hash: dict[str, Artifact]) -> set[str]:
    found = set[str]()
    waiting = [artifact]
    while waiting:
        for parent in waiting.pop().manifest.parents.values():
            if parent.hash not in found:
                found.add(parent.hash)
                waiting += [by_hash[parent.hash]] if parent.hash in by_hash else []
    return found


def _salts(config: Any) -> list[str]:
    """The salts of holdouts, controls and experiments: arms are drawn by hashes of ids under them."""
    if isinstance(config, list):
        return [salt for each in config for salt in _salts(each)]
    if not isinstance(config, dict):
        return []
    own = [config["salt"]] if isinstance(config.get("salt"), str) else []
    return sorted({*own, *(salt for each in config.values() for salt in _salts(each))})


def _some(number: int) -> str:
    return "This user is" if number == 1 else f"These {number:,} users are"


def _now() -> str:
    return datetime.now(UTC).isoformat(timespec="seconds")
