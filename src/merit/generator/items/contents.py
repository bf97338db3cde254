"""What every item of a shop carries, as an item generator reads it. Nothing here imports torch."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import polars as pl

from merit.core.ragged import Ragged, indicators, select
from merit.core.types import Ints
from merit.data.title_words import TitleWords
from merit.data.trends import ItemTrends
from merit.labels import space
from merit.labels.space import LabelSpace

NETWORK, FACTORS, CURVE = "network.safetensors", "factors.safetensors", "curve.json"
ITEM_TRENDS = "trends.npy"
AGES = 26  # steps of age: four to each e-fold, up to some 500 days
LIKELY = 3e-3  # of a first label: below it the generator has nothing to add to a score


class ItemContents(NamedTuple):
    """By item: its labels, those of them that the network knows, the words of its title, and how often it was had."""

    labels: Ragged
    known: Ragged
    words: Ragged
    trends: ItemTrends

    def carries(self, labels: Ints) -> Any:
        """(items, labels): which item carries which of these labels, in scipy's CSR."""
        width = 1 + max(int(labels.max(initial=-1)), int(self.labels.values.max(initial=-1)))
        return indicators(self.labels, width).tocsr()[:, labels]


def catalogue_of(
    items: pl.DataFrame, label_space: LabelSpace, words: Sequence[str], trends: ItemTrends, labels: int
) -> ItemContents:
    """What a network of so many labels reads of every item; a later version of the space may have more."""
    carried = Ragged(*space.item_labels(label_space, items))
    known = select(carried, carried.values < labels)
    return ItemContents(carried, known, TitleWords.of(words, items["title"]).of_item, trends)
