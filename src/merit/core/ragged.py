"""Lists of different lengths in two flat arrays. Row i is `values[offsets[i]:offsets[i + 1]]`."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import polars as pl
import pyarrow as pa
from numpy.typing import NDArray

from merit.core.types import Ints


@dataclass(frozen=True)
class Ragged:
    """Rows of whole numbers. One row, or a part of them, is a view of the same memory."""

    offsets: Ints
    values: NDArray[np.int32]

    def __len__(self) -> int:
        return len(self.offsets) - 1

    def __getitem__(self, row: int) -> NDArray[np.int32]:
        return self.values[self.offsets[row] : self.offsets[row + 1]]

    def lengths(self) -> Ints:
        """(rows,): how many values each row has."""
        return np.diff(self.offsets)

    def sizes(self, rows: NDArray[np.integer]) -> Ints:
        """How many values each of these rows has."""
        first = np.asarray(rows, dtype=np.int64)
        sizes: Ints = self.offsets[first + 1] - self.offsets[first]
        return sizes

    def take(self, rows: NDArray[np.integer]) -> tuple[NDArray[np.int32], Ints]:
        """The values of these rows, row after row, and the length of each."""
        places, sizes = ranges(self.offsets[rows], self.offsets[np.asarray(rows) + 1])
        return self.values[places], sizes

    def gather(self, rows: NDArray[np.integer]) -> Ragged:
        """These rows, in this order."""
        values, sizes = self.take(rows)
        return Ragged(offsets_of(sizes), values)

    def beside(self, values: NDArray[Any], rows: NDArray[np.integer]) -> NDArray[Any]:
        """Of an array that stands beside all values, what stands beside those of these rows."""
        places, _ = ranges(self.offsets[rows], self.offsets[np.asarray(rows) + 1])
        chosen: NDArray[Any] = values[places]
        return chosen

    def backwards(self) -> Ragged:
        """Every row from its last value to its first."""
        ends = self.offsets[:-1] + self.offsets[1:] - 1
        return Ragged(self.offsets, self.values[np.repeat(ends, self.lengths()) - np.arange(len(self.values))])

    def tail(self, most: int) -> Ragged:
        """The last values of every row, at most so many."""
        places, sizes = ranges(np.maximum(self.offsets[:-1], self.offsets[1:] - most), self.offsets[1:])
        return Ragged(offsets_of(sizes), self.values[places])

    def mapped(self, table: Ints) -> Ragged:
        """The different values of `table` at each row's values, ascending."""
        width = 1 + int(table.max(initial=0))
        keys = np.unique(owners(self) * width + table[self.values])
        return Ragged(offsets_of(np.bincount(keys // width, minlength=len(self))), (keys % width).astype(np.int32))

    @staticmethod
    def empty(rows: int) -> Ragged:
        """So many rows without values."""
        return Ragged(np.zeros(rows + 1, np.int64), np.zeros(0, np.int32))

    def padded(self, fill: int = -1) -> Ints:
        """(rows, longest): a rectangle with one column at least, filled up on the right."""
        filled: Ints = np.full((len(self), int(self.lengths().max(initial=1))), fill, dtype=np.int64)
        filled[owners(self), ranks(self)] = self.values
        return filled

    @staticmethod
    def of(rows: Sequence[Sequence[int]]) -> Ragged:
        """From lists in Python. For a column with millions of rows there is `column_lists`."""
        sizes = np.fromiter((len(row) for row in rows), dtype=np.int64, count=len(rows))
        flat = np.fromiter((value for row in rows for value in row), dtype=np.int32, count=int(sizes.sum()))
        return Ragged(offsets_of(sizes), flat)


def owners(lists: Ragged) -> Ints:
    """The row of every value."""
    return np.repeat(np.arange(len(lists)), lists.lengths())


def ranks(lists: Ragged) -> Ints:
    """The place of every value in its row, from 0."""
    return np.arange(len(lists.values)) - np.repeat(lists.offsets[:-1], lists.lengths())


def pair_keys(lists: Ragged, width: int) -> Ints:
    """A number for every pair of row and value, as long as values are below `width`."""
    return owners(lists) * width + lists.values


def counts_of(wanted: Ints, keys: Ints, counts: NDArray[np.int32]) -> NDArray[np.int32]:
    """The count beside each wanted key, 0 where it is not among the keys, which ascend."""
    if not len(keys):
        return np.zeros(wanted.shape, np.int32)
    place = np.minimum(np.searchsorted(keys, wanted), len(keys) - 1)
    return np.where(keys[place] == wanted, counts[place], 0).astype(np.int32)


def select(lists: Ragged, keep: NDArray[np.bool_]) -> Ragged:
    """The values that are kept, in the same rows and order."""
    sizes = np.bincount(owners(lists)[keep], minlength=len(lists))
    return Ragged(offsets_of(sizes), lists.values[keep])


def head(lists: Ragged, length: int | Ints) -> Ragged:
    """At most the first `length` values of each row; one length for all rows, or one for each."""
    return select(lists, ranks(lists) < (length if isinstance(length, int) else length[owners(lists)]))


def stacked(parts: Sequence[Ragged]) -> Ragged:
    """The rows of all parts, one part after the other."""
    sizes = np.concatenate([part.lengths() for part in parts])
    return Ragged(offsets_of(sizes), np.concatenate([part.values for part in parts]))


def column_lists(column: pl.Series) -> Ragged:
    """A list column as flat arrays."""
    offsets, values = column_arrays(column)
    return Ragged(offsets, values.astype(np.int32))


def column_arrays(column: pl.Series) -> tuple[Ints, NDArray[Any]]:
    """Offsets and flat values of a list column, read from its Arrow buffers: polars would start a query for each."""
    lists = column.to_arrow()
    offsets = lists.offsets.to_numpy().astype(np.int64)
    return offsets - offsets[0], lists.flatten().to_numpy(zero_copy_only=False)


def offsets_of(sizes: Ints) -> Ints:
    """Where each row starts, and where the last one stops."""
    return np.concatenate([[0], np.cumsum(sizes)]).astype(np.int64)


def ranges(start: Ints, stop: Ints) -> tuple[Ints, Ints]:
    """All of range(start, stop), range after range, and the length of each."""
    sizes = stop - start
    before = np.cumsum(sizes) - sizes
    return np.arange(int(sizes.sum())) + np.repeat(start - before, sizes), sizes


def matrix(lists: Ragged, values: NDArray[Any], width: int) -> Any:
    """(rows, width), sparse: `values` stand beside `lists.values`, which are their columns."""
    from scipy.sparse import csr_matrix  # most of what reads lists never makes one

    return csr_matrix((values.astype(np.float32), lists.values, lists.offsets), shape=(len(lists), width))


def indicators(lists: Ragged, width: int) -> Any:
    """(rows, width), sparse: 1 where a value is in the row."""
    return matrix(lists, np.ones(len(lists.values)), width)


def list_column(values: NDArray[Any], sizes: Ints) -> pl.Series:
    """A polars column of lists from flat values, without a Python object per row."""
    return pl.Series(pl.from_arrow(pa.LargeListArray.from_arrays(offsets_of(sizes), values)))
