"""Two tables of a shop: interactions and items."""

from __future__ import annotations

from collections.abc import Callable
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
from merit.privacy.pseudonyms import WithPseudonyms

Normalise = Callable[[pl.LazyFrame, Path], pl.LazyFrame]
Opened = tuple[pl.LazyFrame, list[Path], Path]  # a table, its files, and the path that was given for it


class TablesSource(WithPseudonyms, ParseOptions):
    """Interactions and items from files or folders of Parquet, CSV or JSON lines."""

    kind: Literal["tables"] = "tables"
    interactions: Path
    items: Path
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


def open_tables(source: TablesSource) -> SourceTables:
    """Find the files, map their columns, normalise them lazily."""

    def interactions(frame: pl.LazyFrame, file: Path) -> pl.LazyFrame:
        mapping = resolve(files.columns_of(frame), INTERACTION_NAMES, source.columns, str(file), "source.columns")
        return normalise.interactions(frame, mapping, str(file), source, files.is_text(file))

    return source_tables(
        open_table(source.interactions, "source.interactions", interactions), _open_items(source), source.max_bad_share
    )


def open_catalogue(source: TablesSource) -> SourceTables:
    """The items alone; of interactions there are none."""
    nothing = pl.LazyFrame(schema=dict.fromkeys(("user_id", "item_id"), pl.String))
    return source_tables((nothing, [], source.items), _open_items(source), source.max_bad_share)


def has_tags(source: TablesSource) -> bool:
    """Whether the items have a column that tags are taken from."""
    if source.extra_tags or "tags" in source.item_columns:
        return True
    scans = files.scan_all(files.find(source.items, "--set source.items=PATH"), source.items)
    return any(matching(files.columns_of(frame), ("tags", *ITEM_NAMES["tags"])) for frame, _ in scans)


def _open_items(source: TablesSource) -> Opened:
    def items(frame: pl.LazyFrame, file: Path) -> pl.LazyFrame:
        columns = files.columns_of(frame)
        mapping = resolve(columns, ITEM_NAMES, source.item_columns, str(file), "source.item_columns")
        extra = resolve_extra(columns, source.extra_tags, str(file))
        texts = resolve_extra(columns, source.text_columns, str(file), "source.text_columns")
        named = (source.brand_column,) if source.brand_column else ()
        brand = resolve_extra(columns, named, str(file), "source.brand_column")
        brand = brand or [name for name in [matching(columns, ("brand",))] if name]
        further = {"text": texts, "brand": brand}
        return normalise.items(frame, mapping, extra, str(file), source, files.is_text(file), further)

    return open_table(source.items, "source.items", items)


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
