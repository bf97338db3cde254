"""The words in the titles of a history: they tell more than its labels what a product is."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import polars as pl
from numpy.typing import NDArray

from merit.core.ragged import Ragged, offsets_of, owners
from merit.core.types import Ints
from merit.labels.mentions import words_of

BLOCK = 4_096  # users whose words are counted at a time
FEWEST = 5  # titles: nothing can be learnt from a rarer word


@dataclass(frozen=True)
class WordCounts:
    """Words by user, each once, and how often."""

    words: Ragged
    times: NDArray[np.int32]  # beside words.values

    def gather(self, rows: Ints) -> WordCounts:
        """These users, in this order."""
        return WordCounts(self.words.gather(rows), self.words.beside(self.times, rows))


@dataclass(frozen=True)
class TitleWords:
    """The vocabulary of titles, and the words in the title of each item."""

    vocabulary: Sequence[str]
    of_item: Ragged

    @staticmethod
    def of(vocabulary: Sequence[str], titles: pl.Series) -> TitleWords:
        """Words of titles by their number in the vocabulary; all others are left out."""
        numbers = pl.DataFrame({"word": pl.Series(vocabulary, dtype=pl.String), "number": np.arange(len(vocabulary))})
        words = words_of(titles).unique().join(numbers, on="word").sort("row", "number")
        sizes = np.bincount(words["row"].to_numpy(), minlength=len(titles)).astype(np.int64)
        return TitleWords(vocabulary, Ragged(offsets_of(sizes), words["number"].to_numpy().astype(np.int32)))

    def in_histories(self, items: Ragged) -> WordCounts:
        """The words of users with these items."""
        blocks = np.split(np.arange(len(items)), range(BLOCK, len(items), BLOCK))
        parts = [self._counted(items.gather(rows)) for rows in blocks]
        sizes, words, times = (np.concatenate(column) for column in zip(*parts, strict=True))
        return WordCounts(Ragged(offsets_of(sizes), words.astype(np.int32)), times.astype(np.int32))

    def _counted(self, items: Ragged) -> tuple[Ints, Ints, Ints]:
        """Distinct words by user; then the words and their counts, one user after the other."""
        words, sizes = self.of_item.take(items.values)
        owner = np.repeat(owners(items), sizes)
        keys, times = np.unique(owner * len(self.vocabulary) + words, return_counts=True)
        owner, words = np.divmod(keys, max(1, len(self.vocabulary)))
        return np.bincount(owner, minlength=len(items)), words, times


def vocabulary(titles: pl.Series, sold: Ints, most: int) -> list[str]:
    """The words in titles of items that training users bought, the most frequent first."""
    words = words_of(titles.filter(pl.Series(sold > 0))).unique()
    counted = words.group_by("word").len().filter(pl.col("len") >= FEWEST)
    return counted.sort("len", "word", descending=[True, False]).head(most)["word"].to_list()
