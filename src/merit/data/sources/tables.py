"""Two tables of a shop: interactions and items."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Literal

import polars as pl
from pydantic import Field

from merit.core.errors import DataError
from merit.data import normalise
from merit.data.schema import INTERACTION_NAMES, ITEM_NAMES, ParseOptions, SourceTables, resolve, resolve_extra
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
    max_bad_share: Annotated[float, Field(ge=0, le=1)] = 0.001
    """Go on without bad rows up to this share of a table. More of them means a mistake in the export."""


def open_tables(source: TablesSource) -> SourceTables:
    """Find the files, map their columns, normalise them lazily."""

    def interactions(frame: pl.LazyFrame, file: Path) -> pl.LazyFrame:
        mapping = resolve(files.columns_of(frame), INTERACTION_NAMES, source.columns, str(file), "source.columns")
        return normalise.interactions(frame, mapping, str(file), source, files.is_text(file))

    def items(frame: pl.LazyFrame, file: Path) -> pl.LazyFrame:
        columns = files.columns_of(frame)
        mapping = resolve(columns, ITEM_NAMES, source.item_columns, str(file), "source.item_columns")
        extra = resolve_extra(columns, source.extra_tags, str(file))
        if "tags" not in mapping and not extra:
            raise DataError(
                f"{file} has no column for 'tags', and without tags there are no interests. "
                f"Columns found: {', '.join(columns[:30])}. Name it with --set source.item_columns.tags=THEIRS, "
                "or take other text with --set 'source.extra_tags=[\"brand\"]'."
            )
        return normalise.items(frame, mapping, extra, str(file), source, files.is_text(file))

    return source_tables(
        open_table(source.interactions, "source.interactions", interactions),
        open_table(source.items, "source.items", items),
        source.max_bad_share,
    )


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
