"""Delta tables: which Parquet files of the folder make up the newest version."""

from __future__ import annotations

from pathlib import Path
from urllib.parse import unquote, urlsplit

from merit.core.errors import DataError, MissingDependency

REWRITTEN = ("deletionVectors", "columnMapping")  # under these, a file alone does not tell its rows or its columns


def files(place: Path) -> list[Path]:
    """The data files of the newest version, in a fixed order."""
    try:
        from deltalake import DeltaTable
        from deltalake.exceptions import DeltaError
    except ImportError:
        install = "pip install 'merit-interests[delta]'"
        raise MissingDependency(f"{place} is a Delta table. Run: {install}") from None
    try:
        table = DeltaTable(place)
        features, uris = table.protocol().reader_features or [], table.file_uris()
    except (DeltaError, OSError) as error:
        raise DataError(f"{place} is no readable Delta table: {str(error)[:200]}. Copy or export it again.") from None
    if used := [feature for feature in REWRITTEN if feature in features]:
        raise DataError(
            f"{place} is a Delta table with {' and '.join(used)}, which its files do not show by themselves. Export it "
            "to Parquet, or rewrite it without (REORG TABLE … APPLY (PURGE))."
        )
    if not uris:
        raise DataError(f"{place} is a Delta table without rows. Name another.")
    return sorted(Path(unquote(urlsplit(uri).path)) if "://" in uri else Path(uri) for uri in uris)
