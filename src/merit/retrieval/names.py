"""Where an id is among a million: by its hash, in an array that is searched by halving.

    names = Names.of(ids)
    names.find(pl.Series(["1042", "nobody"]))        # [row, -1]

A join would hash all of them for every question; a dict of Python texts takes ten times the memory.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import polars as pl
from numpy.typing import NDArray

from merit.core.types import Ints


@dataclass(frozen=True)
class Names:
    """Ids, none of them twice, in the order of their hashes."""

    ids: pl.Series
    hashes: NDArray[np.uint64]  # ascending
    rows: Ints  # beside them

    @staticmethod
    def of(ids: pl.Series) -> Names:
        """Of different ids. Their hashes are the same within this process only, and are kept nowhere else."""
        hashes = _hashes(ids)
        rows = np.argsort(hashes, kind="stable")
        return Names(ids, hashes[rows], rows)

    def find(self, wanted: pl.Series) -> Ints:
        """The row of each; -1 for one that is not there."""
        asked = _hashes(wanted)
        place, end = (np.searchsorted(self.hashes, asked, side) for side in ("left", "right"))
        found = np.full(len(asked), -1, np.int64)
        while len(left := np.flatnonzero((place < end) & (found < 0))):  # once, unless two ids have one hash
            rows = self.rows[place[left]]
            same = (self.ids.gather(rows) == wanted.gather(left)).to_numpy()
            found[left[same]] = rows[same]
            place[left] += 1
        return found


def _hashes(ids: pl.Series) -> NDArray[np.uint64]:
    return ids.hash().to_numpy()
