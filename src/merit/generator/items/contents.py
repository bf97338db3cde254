"""What every item of a shop carries, as an item generator reads it. Nothing here imports torch."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import polars as pl
from numpy.typing import NDArray
from scipy.sparse import csr_matrix, vstack

from merit.core.ragged import Ragged, indicators, matrix, select
from merit.core.types import Ints
from merit.data.title_words import TitleWords
from merit.data.trends import ItemTrends
from merit.labels import space
from merit.labels.space import LabelSpace

NETWORK, FACTORS, CURVE = "network.safetensors", "factors.safetensors", "curve.json"
ITEM_TRENDS = "trends.npy"
AGES = 26  # steps of age: four to each e-fold, up to some 500 days
LIKELY = 3e-3  # of a first label: below it the generator has nothing to add to a score


@dataclass(frozen=True)
class ItemContents:
    """By item: its labels, those of them that the network knows, the words of its title, and how often it was had."""

    labels: Ragged
    known: Ragged
    words: Ragged
    trends: ItemTrends
    sizes: tuple[int, int]
    """Of the network: labels and words."""

    def carries(self, labels: Ints) -> Any:
        """(items, labels): which item carries which of these labels, in scipy's CSR."""
        width = 1 + max(int(labels.max(initial=-1)), int(self.labels.values.max(initial=-1)))
        return indicators(self.labels, width).tocsr()[:, labels]

    @cached_property
    def means(self) -> tuple[Any, Any]:
        """(items + 1, labels) and (items + 1, words), in CSR: what averages the vectors of an item's labels, and of its
        words, twice as long. The last row is empty, for an item of -1."""
        parts = []
        for lists, size in zip((self.known, self.words), self.sizes, strict=True):
            weights = np.repeat(2 / np.maximum(1, lists.lengths()), lists.lengths())
            parts.append(vstack([matrix(lists, weights, size), csr_matrix((1, size), dtype=np.float32)]).tocsr())
        return parts[0], parts[1]


def catalogue_of(
    items: pl.DataFrame, label_space: LabelSpace, words: Sequence[str], trends: ItemTrends, labels: int
) -> ItemContents:
    """What a network of so many labels reads of every item; a later version of the space may have more."""
    carried = Ragged(*space.item_labels(label_space, items))
    known = select(carried, carried.values < labels)
    return ItemContents(carried, known, TitleWords.of(words, items["title"]).of_item, trends, (labels, len(words)))


def age_steps(days: NDArray[np.integer]) -> Ints:
    """What is read of the days since an item."""
    steps: Ints = np.minimum((4 * np.log(np.maximum(days, 1).astype(np.float32))).astype(np.int64), AGES - 1)
    return steps
