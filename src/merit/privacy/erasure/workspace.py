"""What there is to be purged below some folders: finished artifacts, leftovers of killed runs, and the forms of ids."""

from __future__ import annotations

import os
import re
import shutil
from collections.abc import Iterable, Sequence
from pathlib import Path

import polars as pl

from merit.core import artifacts
from merit.core.artifacts import MANIFEST, Artifact
from merit.core.errors import ConfigError, MissingArtifact, StorageError
from merit.data.sources.files import reading
from merit.privacy import pseudonyms

USER = "user_id"
DRAFT = re.compile(r"\..+\.tmp-(?P<process>\d+)(-old)?")  # of artifacts.writing
RESUMABLE = re.compile(r"\..+\.(parts-\w+|checkpoints)")  # of stages that go on where they were stopped


def find(roots: Sequence[Path]) -> list[Artifact]:
    """The artifacts below the folders, or these themselves; of one inside another only the outer one."""
    folders: dict[Path, None] = {}
    for root in roots:
        if not root.is_dir():
            raise MissingArtifact(f"There is no folder {root}. Name the folders of runs and services with --folder.")
    _require_no_way_out(roots)
    for root in roots:
        for folder, inside, files in os.walk(root):
            if MANIFEST in files:
                folders[Path(folder).resolve()] = None
                inside.clear()
            inside[:] = sorted(name for name in inside if not name.startswith("."))
    return [artifacts.load(folder, verify=False) for folder in folders]


def _require_no_way_out(roots: Sequence[Path]) -> None:
    """Refuse links to what is not below the folders: it would neither be purged nor searched."""
    inside = [root.resolve() for root in roots]
    for folder, folders, files in (entry for root in inside for entry in os.walk(root)):
        for place in (Path(folder, name) for name in (*folders, *files)):
            target = place.resolve() if place.is_symlink() else inside[0]
            if target.exists() and not any(target.is_relative_to(root) for root in inside):
                near = target if target.is_dir() else target.parent
                raise ConfigError(
                    f"{place} is a link to {target}, which is in none of the folders, so it would be passed over. "
                    f"Name it too, with --folder {near}, or remove the link."
                )


def parents(present: Iterable[Artifact]) -> list[Path]:
    """The folders that artifacts lie in."""
    return list(dict.fromkeys(artifact.path.parent for artifact in present))


def home_of(roots: Sequence[Path]) -> Path:
    """Where the lists, locks and certificates of an erasure are: in the first folder, or beside it if it is a model."""
    first = roots[0].resolve()
    return first.parent if (first / MANIFEST).exists() else first


def sweep(folders: Iterable[Path]) -> None:
    """Remove what killed processes left: rows by number that would be another's after the purge.

    What a living process writes may hold the users: it must come to its end first.
    """
    for folder in folders:
        for entry in [entry for entry in folder.iterdir() if entry.is_dir()]:
            draft = DRAFT.fullmatch(entry.name)
            if draft and Path(f"/proc/{draft['process']}").exists():
                raise StorageError(
                    f"{entry} is being written by process {draft['process']}. The users are hidden already; give the "
                    "same command again when it has ended."
                )
            if draft or RESUMABLE.fullmatch(entry.name):
                shutil.rmtree(entry)
        for report in folder.glob("*.poisoned.jsonl"):  # shards that could not be done, with their users
            report.unlink()


def id_forms(users: Sequence[str], folders: Sequence[Path]) -> list[str]:
    """The users in every form that occurs in the folders: as ids, as pseudonyms, or, in different runs, as both.

    Refused where a form cannot be made: an erasure must not miss anybody.
    """
    examples = {pseudonyms.number_of(user): user for artifact in find(folders) for user in _some_users(artifact)}
    numbers = sorted(number for number in examples if number)
    if len(numbers) > 1:
        raise ConfigError(
            f"These folders hold pseudonyms of {len(numbers)} keys ({', '.join(numbers)}). Erase them folder by "
            "folder, each with its key."
        )
    stored = pseudonyms.stored_ids(users, [examples[number] for number in numbers])
    return list(dict.fromkeys([*users, *stored] if None in examples else stored))


def _some_users(artifact: Artifact) -> list[str]:
    """The first user of every table of users."""
    users: list[str] = []
    for table in (artifact.file(name) for name in artifact.manifest.files if name.endswith(".parquet")):
        with reading((table,)):
            rows = pl.scan_parquet(table)
            if USER in rows.collect_schema():
                users += rows.select(USER).head(1).collect()[USER].drop_nulls().to_list()
    return users
