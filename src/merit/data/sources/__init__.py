"""Where the two tables come from: a literal dict of functions, one per kind of source."""

from __future__ import annotations

from collections.abc import Callable
from typing import Annotated, Any

import polars as pl
from pydantic import Field

from merit.data.schema import SourceTables
from merit.data.sources.amazon_reviews import AmazonReviewsSource, open_amazon_reviews
from merit.data.sources.complete_journey import CompleteJourneySource, open_complete_journey
from merit.data.sources.tables import TablesSource, open_tables
from merit.data.sources.xmc import GIVEN_SPLIT, XmcSource, open_xmc
from merit.privacy import pseudonyms

__all__ = [
    "AmazonReviewsSource",
    "CompleteJourneySource",
    "Source",
    "SourceTables",
    "TablesSource",
    "XmcSource",
    "given_split",
    "open_source",
]

Source = Annotated[TablesSource | CompleteJourneySource | AmazonReviewsSource | XmcSource, Field(discriminator="kind")]

OPEN: dict[str, Callable[[Any], SourceTables]] = {
    "tables": open_tables,
    "complete-journey": open_complete_journey,
    "amazon-reviews": open_amazon_reviews,
    "xmc": open_xmc,
}


def open_source(source: Source) -> SourceTables:
    """The two tables of a source, normalised and still lazy."""
    tables = OPEN[source.kind](source)
    key = getattr(source, "pseudonyms", None)  # documents are no people: their source has none
    return pseudonyms.hide(tables, pseudonyms.read(key)) if key else tables


def given_split(source: Source) -> pl.Expr | None:
    """The split of each user_id where a source says who is tested; null in it, or none at all, leaves that to us."""
    return GIVEN_SPLIT if source.kind == "xmc" else None
