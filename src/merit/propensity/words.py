"""The words in the titles of what a user had: they say more than labels do of what a product is."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import polars as pl
from numpy.typing import NDArray

from merit.core.ragged import Ragged, offsets_of
from merit.core.types import Ints
from merit.labels.mentions import words_of

BLOCK = 4_096  # users at a time
FEWEST = 5  # titles: what fewer have says nothing that could be learnt


@dataclass(frozen=True)
class WordCounts:
    """By user: numbers of things, each once, and how often."""

    things: Ragged
    times: NDArray[np.int32]  # beside things.values

    def part(self, start: int, stop: int) -> WordCounts:
        """Users from start to stop, without copying."""
        return WordCounts(self.things.part(start, stop), self.times)

    def gather(self, rows: NDArray[np.int64]) -> WordCounts:
        """These users, in this order."""
        return WordCounts(self.things.gather(rows), Ragged(self.things.offsets, self.times).take(rows)[0])


@dataclass(frozen=True)
class TitleWords:
    """Words that are known, and which of them are in the title of each item."""

    known: Sequence[str]
    of_item: Ragged

    @staticmethod
    def of(known: Sequence[str], titles: pl.Series) -> TitleWords:
        """A word's number is its place among the known ones; all other words of the titles are left out."""
        numbers = pl.DataFrame({"word": pl.Series(known, dtype=pl.String), "number": np.arange(len(known))})
        found = words_of(titles).unique().join(numbers, on="word").sort("row", "number")
        sizes = np.bincount(found["row"].to_numpy(), minlength=len(titles)).astype(np.int64)
        return TitleWords(known, Ragged(offsets_of(sizes), found["number"].to_numpy().astype(np.int32)))

    def in_histories(self, items: Ragged) -> WordCounts:
        """The words of users who had these items."""
        parts = [self._counted(items.part(at, min(at + BLOCK, len(items)))) for at in range(0, len(items) or 1, BLOCK)]
        sizes, words, times = (np.concatenate(each) for each in zip(*parts, strict=True))
        return WordCounts(Ragged(offsets_of(sizes), words.astype(np.int32)), times.astype(np.int32))

    def _counted(self, items: Ragged) -> tuple[Ints, Ints, Ints]:
        """By user, how many different words; and the words and how often, one user after the other."""
        words, sizes = self.of_item.take(items.values[items.offsets[0] : items.offsets[-1]])
        owner = np.repeat(np.repeat(np.arange(len(items)), items.lengths()), sizes)
        keys, times = np.unique(owner * len(self.known) + words, return_counts=True)
        owner, words = np.divmod(keys, max(1, len(self.known)))
        return np.bincount(owner, minlength=len(items)), words, times


def vocabulary(titles: pl.Series, sold: Ints, most: int) -> list[str]:
    """The words in the titles of what training users had, those of most titles first."""
    seen = words_of(titles.filter(pl.Series(sold > 0))).unique()
    counted = seen.group_by("word").len().filter(pl.col("len") >= FEWEST)
    return counted.sort("len", "word", descending=[True, False]).head(most)["word"].to_list()
