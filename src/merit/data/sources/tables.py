"""Two tables of a shop: interactions and items."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Annotated, Literal

import polars as pl
from pydantic import Field

from merit.core.errors import DataError
from merit.data import normalise
from merit.data.schema import INTERACTION_NAMES, ITEM_NAMES, ParseOptions, SourceTables, resolve, resolve_extra
from merit.data.sources import files
from merit.data.sources.addresses import TablePlace
from merit.privacy.pseudonyms import WithPseudonyms

Normalise = Callable[[pl.LazyFrame, Path], pl.LazyFrame]
Opened = tuple[pl.LazyFrame, list[Path], Path]  # a table, its files, and the path that was given for it


class TableOptions(WithPseudonyms, ParseOptions):
    """What the columns of the two tables mean, wherever these are."""

    columns: dict[str, str] = {}
    """Ours → theirs, for interactions. Usual names are recognised without."""
    item_columns: dict[str, str] = {}
    """Ours → theirs, for items."""
    extra_tags: tuple[str, ...] = ()
    """Further item columns whose text becomes tags, such as brand."""
    max_bad_share: Annotated[float, Field(ge=0, le=1)] = 0.001
    """Go on without bad rows up to this share of a table. More of them means a mistake in the export."""
    snapshot: Path | None = Field(None, exclude_if=lambda value: value is None)
    """The folder of the copy of tables that are not on this disk; by default one in .cache/merit/snapshots that is
    named after the settings. It has user ids: `merit erase` has to be given it with --folder."""


class TablesSource(TableOptions):
    """Interactions and items from files or folders of Parquet, CSV or JSON lines, or from an object store."""

    kind: Literal["tables"] = "tables"
    interactions: TablePlace
    """A path; or an address (s3://, gs://, az://, https://), which is copied to the snapshot first."""
    items: TablePlace


def open_tables(source: TablesSource) -> SourceTables:
    """Find the files, map their columns, normalise them lazily."""
    return open_places(Path(source.interactions), Path(source.items), source)


def open_places(interactions: Path, items: Path, options: TableOptions) -> SourceTables:
    """The same of two paths."""

    def normalised_interactions(frame: pl.LazyFrame, file: Path) -> pl.LazyFrame:
        mapping = interaction_columns(files.columns_of(frame), options, str(file))
        return normalise.interactions(frame, mapping, str(file), options, files.is_text(file))

    def normalised_items(frame: pl.LazyFrame, file: Path) -> pl.LazyFrame:
        mapping, extra = item_columns(files.columns_of(frame), options, str(file))
        return normalise.items(frame, mapping, extra, str(file), options, files.is_text(file))

    return source_tables(
        open_table(interactions, "source.interactions", normalised_interactions),
        open_table(items, "source.items", normalised_items),
        options.max_bad_share,
    )


def interaction_columns(columns: Sequence[str], options: TableOptions, where: str) -> dict[str, str]:
    """Our names → theirs, of the interactions `where`."""
    return resolve(columns, INTERACTION_NAMES, options.columns, where, "source.columns")


def item_columns(columns: Sequence[str], options: TableOptions, where: str) -> tuple[dict[str, str], list[str]]:
    """Our names → theirs, of the items `where`; and the further columns whose text becomes tags."""
    mapping = resolve(columns, ITEM_NAMES, options.item_columns, where, "source.item_columns")
    extra = resolve_extra(columns, options.extra_tags, where)
    if "tags" not in mapping and not extra:
        raise DataError(
            f"{where} has no column for 'tags', and without tags there are no interests. "
            f"Columns found: {', '.join(columns[:30])}. Name it with --set source.item_columns.tags=THEIRS, "
            "or take other text with --set 'source.extra_tags=[\"brand\"]'."
        )
    return mapping, extra


def open_table(place: Path, setting: str, normalised: Normalise) -> Opened:
    """All files of one table. Files that differ in their columns or types are normalised by themselves."""
    paths = files.find(place, f"--set {setting}=PATH")
    return pl.concat([normalised(frame, file) for frame, file in files.scan_all(paths, place)]), paths, place


def source_tables(interactions: Opened, items: Opened, max_bad_share: float) -> SourceTables:
    """The two tables of a source, with the files that they were read from."""
    opened = {"interactions": interactions, "items": items}
    return SourceTables(
        interactions=interactions[0],
        items=items[0],
        inputs={table: files.fingerprint(paths, place) for table, (_, paths, place) in opened.items()},
        names={table: str(place) for table, (_, _, place) in opened.items()},
        max_bad_share=max_bad_share,
        files=(*interactions[1], *items[1]),
    )
