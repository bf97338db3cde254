"""Rows on their way to a destination, and how many of them it takes."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

import polars as pl

from merit.campaigns.sync.destination import Mode
from merit.core import provenance
from merit.core.config import Frozen

SCHEMA = {"external_id": pl.String, "payload": pl.String}


class SyncCounts(Frozen):
    """Rows of one audience at a destination: what a sync adds, updates and removes, and what it leaves as it is."""

    added: int
    updated: int
    removed: int
    unchanged: int

    @property
    def written(self) -> int:
        """Rows that change at the destination."""
        return self.added + self.updated + self.removed

    def under(self, mode: Mode) -> SyncCounts:
        """What of these differences the mode makes: append adds, upsert updates as well, mirror removes, too."""
        updated, removed = (self.updated if mode != "append" else 0), (self.removed if mode == "mirror" else 0)
        left = self.unchanged + (self.updated - updated) + (self.removed - removed)
        return SyncCounts(added=self.added, updated=updated, removed=removed, unchanged=left)


Proceed = Callable[[SyncCounts], bool]
"""Gets the counts before anything is written, and says whether it is to be written."""


@dataclass(frozen=True)
class Outgoing:
    """The rows of one audience: frames of external_id and payload, to be read once."""

    audience: str
    """What stands in the column of that name."""
    frames: Iterator[pl.DataFrame]
    folder: Path
    """What they were made from. The audit log and the record of a webhook are beside it."""
    at: str = field(default_factory=provenance.now)
    """updated_at of the rows that are written."""

    def table(self) -> pl.DataFrame:
        """All rows in memory, by id."""
        return pl.concat([pl.DataFrame(schema=SCHEMA), *self.frames]).sort("external_id")
