"""Where the two tables come from: a literal dict of functions, one per kind of source."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any

from pydantic import Field

from merit.data.schema import SourceTables
from merit.data.sources.amazon_reviews import AmazonReviewsSource, open_amazon_reviews
from merit.data.sources.complete_journey import CompleteJourneySource, open_complete_journey
from merit.data.sources.snapshot import needed, opened
from merit.data.sources.sql import SqlSource
from merit.data.sources.tables import TablesSource, has_tags, open_catalogue, open_tables
from merit.privacy import pseudonyms

__all__ = [
    "AmazonReviewsSource",
    "CompleteJourneySource",
    "Source",
    "SourceTables",
    "SqlSource",
    "TablesSource",
    "brings_tags",
    "open_items",
    "open_source",
]

Source = Annotated[TablesSource | SqlSource | CompleteJourneySource | AmazonReviewsSource, Field(discriminator="kind")]

OPEN: dict[str, Callable[[Any], SourceTables]] = {
    "tables": open_tables,
    "complete-journey": open_complete_journey,
    "amazon-reviews": open_amazon_reviews,
}


def open_source(source: Source) -> SourceTables:
    """The two tables of a source, normalised and still lazy."""
    tables = opened(source) if needed(source) else OPEN[source.kind](source)
    return pseudonyms.hide(tables, pseudonyms.read(source.pseudonyms)) if source.pseudonyms else tables


def open_items(source: Source) -> SourceTables:
    """The same with items alone, where these can be read alone."""
    if needed(source):
        return opened(source)
    return open_catalogue(source) if isinstance(source, TablesSource) else OPEN[source.kind](source)


def brings_tags(source: Source) -> bool:
    """Whether the source has tags of items at all, by its columns; of tables that are not on this disk it has."""
    if needed(source) or not isinstance(source, TablesSource) or not Path(source.items).exists():
        return True
    return has_tags(source)
