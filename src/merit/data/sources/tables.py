"""Two tables of a shop: interactions and items."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Annotated, Literal

import polars as pl
from pydantic import Field

from merit.data import normalise
from merit.data.schema import (
    INTERACTION_NAMES,
    ITEM_NAMES,
    ParseOptions,
    SourceTables,
    matching,
    resolve,
    resolve_extra,
)
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
    text_columns: tuple[str, ...] = Field((), exclude_if=lambda value: not value)
    """Further item columns that tags are read from, such as a description (docs/tags.md)."""
    brand_column: str | None = Field(None, exclude_if=lambda value: value is None)
    """The item column with the brand, which the tagger keeps apart from interests. By default one called brand."""
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

    opened = open_table(interactions, "source.interactions", normalised_interactions)
    return source_tables(opened, _open_items(items, options), options.max_bad_share)


def open_catalogue(source: TablesSource) -> SourceTables:
    """The items alone; of interactions there are none."""
    nothing = pl.LazyFrame(schema=dict.fromkeys(("user_id", "item_id"), pl.String))
    items = Path(source.items)
    return source_tables((nothing, [], items), _open_items(items, source), source.max_bad_share)


def has_tags(source: TablesSource) -> bool:
    """Whether the items have a column that tags are taken from."""
    if source.extra_tags or "tags" in source.item_columns:
        return True
    items = Path(source.items)
    scans = files.scan_all(files.find(items, "--set source.items=PATH"), items)
    return any(matching(files.columns_of(frame), ("tags", *ITEM_NAMES["tags"])) for frame, _ in scans)


def _open_items(place: Path, options: TableOptions) -> Opened:
    def normalised(frame: pl.LazyFrame, file: Path) -> pl.LazyFrame:
        columns = files.columns_of(frame)
        mapping, extra = item_columns(columns, options, str(file))
        texts = resolve_extra(columns, options.text_columns, str(file), "source.text_columns")
        named = (options.brand_column,) if options.brand_column else ()
        brand = resolve_extra(columns, named, str(file), "source.brand_column")
        brand = brand or [name for name in [matching(columns, ("brand",))] if name]
        further = {"text": texts, "brand": brand}
        return normalise.items(frame, mapping, extra, str(file), options, files.is_text(file), further)

    return open_table(place, "source.items", normalised)


def interaction_columns(columns: Sequence[str], options: TableOptions, where: str) -> dict[str, str]:
    """Our names → theirs, of the interactions `where`."""
    return resolve(columns, INTERACTION_NAMES, options.columns, where, "source.columns")


def item_columns(columns: Sequence[str], options: TableOptions, where: str) -> tuple[dict[str, str], list[str]]:
    """Our names → theirs, of the items `where`; and the further columns whose text becomes tags."""
    mapping = resolve(columns, ITEM_NAMES, options.item_columns, where, "source.item_columns")
    return mapping, resolve_extra(columns, options.extra_tags, where)


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
