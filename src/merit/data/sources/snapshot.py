"""The copy of tables that are not files on this disk: an artifact, from which everything reads as from any tables.

    merit data pull shop.toml           # read what is new; everything, the first time
    merit data pull shop.toml --full    # read everything again

A run never goes back to the database or the store by itself: it reads the snapshot, which is made where there is none.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any, TypeGuard

from merit.core import artifacts, console
from merit.core.artifacts import Artifact
from merit.core.config import Frozen, digest
from merit.core.errors import ConfigError, DamagedArtifact, MissingArtifact
from merit.data.schema import SourceTables
from merit.data.sources import addresses, sql
from merit.data.sources.sql import TABLES, SqlSource
from merit.data.sources.tables import TablesSource, open_places
from merit.privacy import pseudonyms

KIND = "snapshot"
DEFAULT = Path(".cache/merit/snapshots")
COLUMNS = ("columns", "item_columns", "extra_tags")


class SnapshotConfig(Frozen):
    """What a snapshot is a copy of. Addresses of databases and their passwords are no part of it."""

    kind: str
    tables: dict[str, str]
    """The query or the address of each table that was copied."""
    connection: str | None = None
    watermark: str | None = None
    columns: dict[str, Any] = {}
    """The settings that decide which columns of a query are kept."""
    key: str | None = None
    """The number of the key of the pseudonyms in it."""


def needed(source: object) -> TypeGuard[SqlSource | TablesSource]:
    """Whether the tables of a source have to be copied before they can be read."""
    return isinstance(source, SqlSource | TablesSource) and bool(described(source).tables)


def opened(source: SqlSource | TablesSource) -> SourceTables:
    """The two tables of the snapshot, which is made unless it is there."""
    folder, config = folder_of(source), described(source)
    snapshot = held(folder, config) or pull(source)
    places = {table: folder / table if table in config.tables else Path(getattr(source, table)) for table in TABLES}
    tables = open_places(places["interactions"], places["items"], source)
    copied = {table: _inputs(snapshot, table) for table in config.tables}
    return replace(tables, inputs=tables.inputs | copied, names=tables.names | _names(source, config))


def pull(source: object, full: bool = False) -> Artifact:
    """The snapshot as of now. What an earlier one has is kept as far as it can be, unless `full`."""
    if not needed(source):
        raise ConfigError("The tables of this source are files on this disk, which are read where they are.")
    folder, config = folder_of(source), described(source)
    earlier = None if full else held(folder, config)
    before = earlier.manifest.summary if earlier else None
    with artifacts.writing(folder, KIND, config=config) as draft:
        if isinstance(source, SqlSource):
            draft.summary |= sql.read(source, draft.path, before, folder)
        else:
            draft.summary |= _copied(source, draft.path, before, folder)
    made = artifacts.load(folder, KIND, verify=False)
    new = not earlier or earlier.manifest.hash != made.manifest.hash
    console.tell(f"snapshot {folder}: {_counts(made) if new else 'nothing new'}", folder=str(folder), new=new)
    return made


def held(folder: Path, config: SnapshotConfig) -> Artifact | None:
    """The snapshot in a folder, if it is one of the same tables."""
    try:
        snapshot = artifacts.load(folder, KIND)
    except (MissingArtifact, DamagedArtifact):
        return None
    return snapshot if snapshot.manifest.config == config.model_dump(mode="json") else None


def folder_of(source: SqlSource | TablesSource) -> Path:
    """Where the snapshot of a source is."""
    return source.snapshot or DEFAULT / digest(described(source))


def described(source: SqlSource | TablesSource) -> SnapshotConfig:
    """What the snapshot of a source is a copy of; no tables where they are all on this disk."""
    if isinstance(source, TablesSource):
        places = {table: getattr(source, table) for table in TABLES}
        far = {table: place for table, place in places.items() if addresses.is_address(place)}
        if far and source.pseudonyms:
            raise ConfigError(
                f"source.pseudonyms: a copy of {next(iter(far.values()))} would hold real ids. Read it with "
                'source.kind=sql instead, which replaces ids as it reads: connection to "duckdb://" and the query '
                "SELECT * FROM read_parquet(…)."
            )
        return SnapshotConfig(kind=source.kind, tables=far)
    return SnapshotConfig(
        kind=source.kind,
        tables={table: getattr(source, table) for table in TABLES},
        connection=source.connection,
        watermark=source.watermark,
        columns=source.model_dump(mode="json", include={*COLUMNS}),
        key=pseudonyms.read(source.pseudonyms).number if source.pseudonyms else None,
    )


def _copied(source: TablesSource, out: Path, before: Any, folder: Path) -> dict[str, Any]:
    """Copies of the tables at addresses; which versions of which files they are."""
    summary = {}
    for table, address in described(source).tables.items():
        earlier = before[table]["versions"] if before else {}
        option = f"--set source.{table}=ADDRESS"
        versions = addresses.copy(address, option, out / table, earlier, folder / table if before else None)
        summary[table] = {"address": address, "files": len(versions), "versions": versions}
    return summary


def _inputs(snapshot: Artifact, table: str) -> dict[str, Any]:
    """Fingerprints of copied files by their content: a copy made again is the same input."""
    records = snapshot.manifest.files.items()
    return {
        name.removeprefix(f"{table}/"): [file.bytes, file.sha256]
        for name, file in records
        if name.startswith(f"{table}/")
    }


def _names(source: SqlSource | TablesSource, config: SnapshotConfig) -> dict[str, str]:
    if isinstance(source, SqlSource):
        return {table: f"The query of {table}" for table in TABLES}
    return config.tables


def _counts(snapshot: Artifact) -> str:
    parts = snapshot.manifest.summary
    return ", ".join(
        f"{parts[table]['rows']:,} {table}" if "rows" in parts[table] else f"{parts[table]['files']:,} files of {table}"
        for table in TABLES
        if table in parts
    )
