"""Factors and histories of labels that training never saw, and of phrases that are no labels, from product titles.

The text of such a label alone says little about who wants it. But users have bought products whose titles name it. So
it gets the mean factors of those products' labels, and counts as part of the histories of their buyers: see
docs/model.md.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from merit.core.ragged import Ragged, offsets_of, ranges
from merit.core.types import Floats, Ints
from merit.labels.mentions import Mentioned, Mentions

Doubles = NDArray[np.float64]


@dataclass(frozen=True)
class Catalogue:
    """The items: what their titles mention, their labels and their sales."""

    mentions: Mentions
    labels: Ragged  # by item
    sold: Doubles  # by item: how often

    def naming(self, text: str, label: int = -1) -> Mentioned:
        """The products whose titles name this text, and those that carry the label, where it is one."""
        mentioned = self.mentions.of_text(text)
        carriers = np.searchsorted(self.labels.offsets, np.flatnonzero(self.labels.values == label), side="right") - 1
        weights = np.zeros(len(self.labels))
        weights[mentioned.items] = mentioned.weights
        weights[carriers] = 1.0
        items = np.flatnonzero(weights)
        return Mentioned(items, weights[items])

    def labels_of(self, named: Mentioned) -> tuple[Ints, Doubles]:
        """The labels of these products, each once, and their weights, by how often the products are sold."""
        labels, sizes = self.labels.take(named.items)
        distinct, place = np.unique(labels, return_inverse=True)
        weights = np.repeat(named.weights * self.sold[named.items], sizes)
        return distinct.astype(np.int64), np.bincount(place, weights=weights, minlength=len(distinct)).astype(
            np.float64
        )


def mean_factors(weights: Doubles, factors: Floats) -> Floats:
    """(R,): the weighted mean of factors (labels, R), without labels that have none.

    The last factor is the label's own popularity, which no other label can stand for: zero, the average.
    """
    weights = weights * factors.any(axis=1)
    mean = weights @ factors / max(weights.sum(), 1e-9)
    mean[-1:] = 0
    return np.asarray(mean, np.float32)


@dataclass(frozen=True)
class MentionCounts:
    """How often users bought what names a label; in the order of users, and of labels within one."""

    users: Ints
    labels: Ints  # places in the list that was given
    times: Doubles


def count_mentions(histories: Ragged, named: Sequence[Mentioned], items: int) -> MentionCounts:
    """For users with these items: the weights with which their products name each label, added up."""
    which = np.repeat(np.arange(len(named)), [len(label.items) for label in named])
    item = np.concatenate([np.zeros(0, np.int64), *(label.items for label in named)])
    order = np.argsort(item, kind="stable")
    weights = np.concatenate([np.zeros(0), *(label.weights for label in named)])[order]
    offsets = offsets_of(np.bincount(item, minlength=items))
    places = np.flatnonzero((np.diff(offsets) > 0)[histories.values])
    owner = np.searchsorted(histories.offsets, places, side="right") - 1
    spots, sizes = ranges(*(offsets[histories.values[places] + shift] for shift in (0, 1)))
    keys, place = np.unique(np.repeat(owner, sizes) * len(named) + which[order][spots], return_inverse=True)
    times = np.bincount(place, weights=weights[spots], minlength=len(keys)).astype(np.float64)
    return MentionCounts(keys // max(1, len(named)), keys % max(1, len(named)), times)
