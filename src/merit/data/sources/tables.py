"""Two tables of a shop: interactions and items."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import fields
from datetime import date
from pathlib import Path
from typing import Annotated, Literal
from zoneinfo import ZoneInfo

import polars as pl
from pydantic import AfterValidator, Field

from merit.core.errors import DataError
from merit.core.types import Event
from merit.data import normalise
from merit.data.schema import (
    INTERACTION_NAMES,
    ITEM_NAMES,
    ParseOptions,
    SourceTables,
    resolve,
    resolve_extra,
)
from merit.data.sources import files
from merit.privacy.pseudonyms import WithPseudonyms

Normalise = Callable[[pl.LazyFrame, Path], pl.LazyFrame]


def _time_zone(name: str) -> str:
    try:
        ZoneInfo(name)
    except (KeyError, ValueError, OSError):
        raise ValueError("not a time zone; write one such as UTC or Europe/Berlin") from None
    return name


class TablesSource(WithPseudonyms):
    """Interactions and items from files or folders of Parquet, CSV or JSON lines."""

    kind: Literal["tables"] = "tables"
    interactions: Path
    items: Path
    columns: dict[str, str] = {}
    """Ours → theirs, for interactions. Usual names are recognised without."""
    item_columns: dict[str, str] = {}
    """Ours → theirs, for items."""
    time_zone: Annotated[str, AfterValidator(_time_zone)] = "UTC"
    """Of times that are written without one."""
    time_formats: tuple[str, ...] = Field((), exclude_if=lambda value: not value)
    """Further ways that times are written, such as "%d.%m.%Y %H:%M", tried where no other fits. Not guessed: 03.04. is
    in March or in April."""
    default_event: Event | None = None
    """What every row is, in a table without an event column. Never guessed: a view is no purchase."""
    events: dict[str, Event] = {}
    """Further names of events, theirs → ours."""
    extra_tags: tuple[str, ...] = ()
    """Further item columns whose text becomes tags, such as brand."""
    tag_separator: Annotated[str, Field(min_length=1)] = "|"
    """Between tags given as one text. Not the comma: labels such as "Creams, Gels & Lotions" hold it."""
    max_bad_share: Annotated[float, Field(ge=0, le=1)] = 0.001
    """Go on without bad rows up to this share of a table. More of them means a mistake in the export."""
    max_title_chars: Annotated[int, Field(ge=1)] = 2000
    """A longer title is a bad row: no shop writes one, and it would fill a prompt by itself."""
    earliest: date = date(1990, 1, 1)
    """No shop log is older; epoch zero and swapped units land before it."""
    latest: date | None = None
    """The last plausible day. Without it: two days from now."""


def open_tables(source: TablesSource) -> SourceTables:
    """Find the files, map their columns, normalise them lazily."""
    options = ParseOptions(**{field.name: getattr(source, field.name) for field in fields(ParseOptions)})

    def interactions(frame: pl.LazyFrame, file: Path) -> pl.LazyFrame:
        mapping = resolve(files.columns_of(frame), INTERACTION_NAMES, source.columns, str(file), "source.columns")
        return normalise.interactions(frame, mapping, str(file), options, files.is_text(file))

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
        return normalise.items(frame, mapping, extra, str(file), options, files.is_text(file))

    events, event_files = open_table(source.interactions, "source.interactions", interactions)
    goods, item_files = open_table(source.items, "source.items", items)
    return SourceTables(
        interactions=events,
        items=goods,
        inputs={
            "interactions": files.fingerprint(event_files, source.interactions),
            "items": files.fingerprint(item_files, source.items),
        },
        names={"interactions": str(source.interactions), "items": str(source.items)},
        max_bad_share=source.max_bad_share,
        files=(*event_files, *item_files),
    )


def open_table(place: Path, setting: str, normalised: Normalise) -> tuple[pl.LazyFrame, list[Path]]:
    """All files of one table. Files that differ in their columns or types are normalised by themselves."""
    paths = files.find(place, setting)
    root = place if place.is_dir() else place.parent
    return pl.concat([normalised(frame, file) for frame, file in files.scan_all(paths, root)]), paths
