"""Which items mention a phrase: those whose titles have its words.

Rare words count for more than common ones, and half of a phrase for much less than the whole: what is only green does
not mention "green tea". A plural is its singular; more than that is not known of any language.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import polars as pl
from numpy.typing import NDArray

from merit.core.ragged import Ragged, offsets_of
from merit.core.types import Ints

POWER = 4  # of the share of a phrase that a title has (docs/log.md, "labels that training never saw")
LEAST = 0.05  # items with a smaller weight do not mention the phrase
EVERYWHERE = 0.1  # what a word counts that is in every title


@dataclass(frozen=True)
class Mentioned:
    """The items that mention a phrase, and how clearly: up to one for all of its words."""

    items: Ints  # ascending
    weights: NDArray[np.float64]


@dataclass(frozen=True)
class Mentions:
    """The words of all titles, and where they are."""

    words: dict[str, int]
    items: Ragged
    """By word: the items that have it in their title."""
    titles: int

    @staticmethod
    def of(titles: pl.Series) -> Mentions:
        """The place of a title is the number of its item."""
        pairs = words_of(titles).unique().sort("word", "row")
        words = pairs.group_by("word", maintain_order=True).len()
        items = Ragged(offsets_of(words["len"].to_numpy().astype(np.int64)), pairs["row"].to_numpy().astype(np.int32))
        return Mentions({word: at for at, word in enumerate(words["word"])}, items, len(titles))

    def of_text(self, text: str) -> Mentioned:
        """The items that mention a phrase. Words that no title has are the rarest, and weigh against all of them."""
        words = list(dict.fromkeys(words_of(pl.Series([text]))["word"]))
        nowhere = np.zeros(0, np.int32)
        having = [self.items[self.words[word]] if word in self.words else nowhere for word in words]
        sizes = [len(items) for items in having]
        rarity = np.array([np.log((1 + self.titles) / (1 + size)) + EVERYWHERE for size in sizes])
        items, place = np.unique(np.concatenate([nowhere, *having]), return_inverse=True)
        counts = np.repeat(rarity, sizes)
        share = np.bincount(place, weights=counts, minlength=len(items)) / max(rarity.sum(), 1e-9)
        weights = np.minimum(share, 1.0) ** POWER
        clear = weights >= LEAST
        return Mentioned(items[clear].astype(np.int64), weights[clear])


def words_of(texts: pl.Series) -> pl.DataFrame:
    """row, word: the words of each text, one after the other."""
    folded = texts.fill_null("").str.normalize("NFKC").str.to_lowercase()
    words = folded.str.extract_all(r"[\p{L}\p{M}\p{N}]+")
    table = pl.DataFrame({"row": np.arange(len(texts)), "word": words}).explode("word").drop_nulls()
    return table.with_columns(pl.col("word").str.replace(r"^(.{2,}[^s])s$", "$1"))
