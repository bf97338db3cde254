"""Rows by id, of users or of label names."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import polars as pl
from numpy.typing import NDArray

from merit.core.types import Ints


@dataclass(frozen=True)
class IdIndex:
    """Finds the rows of ids among millions, by their hashes.

    A join would hash all of them for every question; a dict of Python strings takes ten times the memory.
    """

    ids: pl.Series
    hashes: NDArray[np.uint64]  # ascending
    rows: Ints  # beside them

    @staticmethod
    def of(ids: pl.Series) -> IdIndex:
        """Of distinct ids. Their hashes are the same within this process only, and are stored nowhere."""
        hashes = _hashes(ids)
        rows = np.argsort(hashes, kind="stable")
        return IdIndex(ids, hashes[rows], rows)

    def find(self, wanted: pl.Series) -> Ints:
        """The row of each id; -1 for one that is not there."""
        hashes = _hashes(wanted)
        position, end = (np.searchsorted(self.hashes, hashes, side) for side in ("left", "right"))
        row_of = np.full(len(hashes), -1, np.int64)
        while len(left := np.flatnonzero((position < end) & (row_of < 0))):  # once, unless two ids have one hash
            rows = self.rows[position[left]]
            same = (self.ids[rows] == wanted[left]).to_numpy()  # `gather` would start a query
            row_of[left[same]] = rows[same]
            position[left] += 1
        return row_of


def _hashes(ids: pl.Series) -> NDArray[np.uint64]:
    return ids.to_frame().hash_rows().to_numpy()
