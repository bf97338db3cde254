"""A trained item generator in numpy: what it finds likely after a history, so that nobody needs torch for an answer.

`model` has it in torch, with lists and gradients; tests/generator/items/test_reader.py holds one against the other.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import polars as pl
from numpy.typing import NDArray
from safetensors.numpy import load_file

from merit.core.artifacts import Artifact
from merit.core.layers import attend, gelu, heads_of, layer_norm
from merit.core.ragged import Ragged, offsets_of, owners, stacked
from merit.core.types import Floats, Ints
from merit.data.corpus import read_words
from merit.data.trends import ItemTrends
from merit.generator.items.contents import ITEM_TRENDS, LIKELY, NETWORK, ItemContents, age_steps, catalogue_of
from merit.labels import space
from merit.propensity.features import LikelyLabels

GRID = 1 << 23  # scores of users and items that are computed at a time
EPSILON = 1e-5  # of torch's LayerNorm


@dataclass(frozen=True)
class ItemReader:
    """The network at its first position, for users at the end of the data."""

    weights: Mapping[str, Floats]
    catalogue: ItemContents
    live: Ints
    positions: int
    """Items of a history that are read, the newest."""
    heads: int

    def likely(self, items: Ragged, days: Ragged, most: int) -> LikelyLabels:
        """By user: the labels that the next item most likely carries, and the logarithm of how likely over LIKELY.

        Of items, oldest first, and the days since each.
        """
        items, days = items.tail(self.positions).backwards(), days.tail(self.positions).backwards()
        size = max(1, min(256, GRID // max(len(self.live), len(self.catalogue.labels), 1)))
        blocks = [np.arange(at, min(at + size, len(items))) for at in range(0, len(items), size)]
        parts = [self._likely(items.gather(rows), days.gather(rows), most) for rows in blocks]
        labels = stacked([part.labels for part in parts])
        return LikelyLabels(labels, np.concatenate([part.values for part in parts]))

    def ages(self, days: Ragged) -> Ragged:
        """What is read of the days since the items of a history."""
        read = days.tail(self.positions)
        return Ragged(read.offsets, age_steps(read.values).astype(np.int32))

    def _likely(self, items: Ragged, days: Ragged, most: int) -> LikelyLabels:
        chances = (self._carried @ self._next_items(items, days).T).T  # (B, C)
        most = min(most, len(self.live))
        best = np.argpartition(-chances, most - 1, axis=1)[:, :most]
        order = np.argsort(-np.take_along_axis(chances, best, 1), axis=1, kind="stable")
        best = np.take_along_axis(best, order, 1)
        values = np.take_along_axis(chances, best, 1)
        kept = values > LIKELY
        labels = Ragged(offsets_of(kept.sum(1)), self.live[best[kept]].astype(np.int32))
        return LikelyLabels(labels, np.log(values[kept] / np.float32(LIKELY)))

    def _next_items(self, items: Ragged, days: Ragged) -> Floats:
        """(B, I): the probability of every item as the next one."""
        logits = self._linear(self._state(items, days), "choose") @ self._vectors.T + self._biases
        keys, times = np.unique(owners(items) * logits.shape[1] + items.values, return_counts=True)
        first, often = self.weights["repeat"]
        logits.reshape(-1)[keys] += first + often * np.log1p(times.astype(np.float32))
        logits -= logits.max(axis=1, keepdims=True)
        np.exp(logits, out=logits)
        chances: Floats = logits / logits.sum(axis=1, keepdims=True)
        return chances

    def _state(self, items: Ragged, days: Ragged) -> Floats:
        """(B, width): the state behind a history, which sees all of it; no item sees that position."""
        rows = items.padded()
        x = self._contents[rows] * (rows >= 0)[..., None] + self.weights["place"][: rows.shape[1]]
        x += self.weights["age"][age_steps(days.padded(0))]
        x = np.concatenate([x, np.broadcast_to(self.weights["step"][0], (len(rows), 1, x.shape[2]))], axis=1)
        seen = _visible(rows >= 0)
        for layer in range(sum(name.endswith(".attend.weight") for name in self.weights)):
            x = self._layer(x, f"layers.{layer}", seen)
        return self._norm(x[:, -1], "norm")

    def _layer(self, x: Floats, name: str, seen: NDArray[np.bool_]) -> Floats:
        parts = np.split(self._linear(self._norm(x, f"{name}.first"), f"{name}.attend"), 3, axis=-1)
        query, key, value = (heads_of(part, self.heads) for part in parts)
        looked = attend(query, key, value, seen)
        x = x + self._linear(looked, f"{name}.mix")
        return x + self._linear(gelu(self._linear(self._norm(x, f"{name}.second"), f"{name}.wide")), f"{name}.narrow")

    def _linear(self, rows: Floats, name: str) -> Floats:
        mapped: Floats = rows @ self.weights[f"{name}.weight"].T + self.weights[f"{name}.bias"]
        return mapped

    def _norm(self, rows: Floats, name: str) -> Floats:
        return layer_norm(rows, self.weights[f"{name}.weight"], self.weights[f"{name}.bias"], EPSILON)

    @cached_property
    def _contents(self) -> Floats:
        """(I, width): of each item, the means of its labels and of its title words, each twice as long."""
        labels, words = self.catalogue.means
        contents: Floats = labels[:-1] @ self.weights["label"] + words[:-1] @ self.weights["word"]
        return contents

    @cached_property
    def _vectors(self) -> Floats:
        """(I, width): by which items are chosen; new ones by what they carry alone."""
        vectors, own = self._contents.copy(), self.weights["item"]
        vectors[: len(own)] += own[: len(vectors)]
        return vectors

    @cached_property
    def _biases(self) -> Floats:
        """(I,): of items, with their trends at the end of the data. New ones have that of the least likely."""
        own, numbers = self.weights["item_bias"], np.arange(len(self.catalogue.labels))
        biases = np.where(numbers < len(own), own[np.minimum(numbers, len(own) - 1)], own.min())
        [trends], _ = self.catalogue.trends.at(np.array([np.iinfo(np.int64).max]), numbers)
        return np.asarray(biases + trends @ self.weights["recent"], np.float32)

    @cached_property
    def _carried(self) -> Any:
        """(C, I), sparse: which items carry a live label."""
        return self.catalogue.carries(self.live).T.tocsr()


def _visible(there: NDArray[np.bool_]) -> NDArray[np.bool_]:
    """(B, 1, L + 1, L + 1): each position of a history sees all items of it; the last one sees itself, too.

    The first position counts as there in any case, as in the training: an empty history is one position of nothing.
    """
    there = there.copy()
    there[:, 0] = True
    users, length = there.shape
    seen = np.zeros((users, 1, length + 1, length + 1), bool)
    seen[:, 0, :, :length] = there[:, None, :]
    seen[:, 0, length, length] = True
    return seen


def load_reader(generator: Artifact, labels: Artifact, items: pl.DataFrame) -> ItemReader:
    """That of a trained item generator over some items and its label space, or a later version of that space."""
    network, weights = generator.manifest.config["network"], load_file(generator.file(NETWORK))
    trends = ItemTrends(np.load(generator.file(ITEM_TRENDS), allow_pickle=False))
    words, label_space = read_words(generator), space.load(labels.path)
    catalogue = catalogue_of(items, label_space, words, trends, len(weights["label"]))
    live = np.flatnonzero(label_space.live_mask())
    return ItemReader(weights, catalogue, live, network["positions"], network["heads"])
