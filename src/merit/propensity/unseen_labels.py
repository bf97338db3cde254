"""Labels that training never saw, and phrases that are no labels: the products that name them speak for them.

The text of such a label alone says little of who wants it. But people have bought things whose titles name it. So it is
given the numbers that the labels of those things have, and counts as had by those who bought them: see docs/model.md.
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
    """What can be bought."""

    mentions: Mentions
    labels: Ragged
    """By item."""
    sold: Doubles
    """By item: how often."""

    def naming(self, text: str, label: int = -1) -> Mentioned:
        """The products whose titles name this text, and those that carry the label, where it is one."""
        said = self.mentions.of_text(text)
        owner = np.searchsorted(self.labels.offsets, np.flatnonzero(self.labels.values == label), side="right") - 1
        weights = np.zeros(len(self.labels))
        weights[said.items] = said.weights
        weights[owner] = 1.0
        items = np.flatnonzero(weights)
        return Mentioned(items, weights[items])

    def labels_of(self, named: Mentioned) -> tuple[Ints, Doubles]:
        """The labels of these products, each once, and how much each has to say: by how often they are sold."""
        labels, sizes = self.labels.take(named.items)
        found, place = np.unique(labels, return_inverse=True)
        weights = np.repeat(named.weights * self.sold[named.items], sizes)
        return found.astype(np.int64), np.bincount(place, weights=weights, minlength=len(found)).astype(np.float64)


def mean_factors(weights: Doubles, numbers: Floats) -> Floats:
    """The mean of what these labels have, `numbers` (labels, own), but for those that have nothing.

    The last of them, how popular a label is, is no other label's: zero, for the average.
    """
    weights = weights * numbers.any(axis=1)
    mean = weights @ numbers / max(weights.sum(), 1e-9)
    mean[-1:] = 0
    found: Floats = mean.astype(np.float32)
    return found


@dataclass(frozen=True)
class MentionCounts:
    """How often users had what names a label; in the order of users, and of labels within one."""

    users: Ints
    labels: Ints  # places in the list that was asked for
    times: Doubles


def count_mentions(histories: Ragged, named: Sequence[Mentioned], items: int) -> MentionCounts:
    """Of users with these items: what their products say of each label, added up."""
    which = np.repeat(np.arange(len(named)), [len(each.items) for each in named])
    item = np.concatenate([np.zeros(0, np.int64), *(each.items for each in named)])
    order = np.argsort(item, kind="stable")
    weights = np.concatenate([np.zeros(0), *(each.weights for each in named)])[order]
    offsets = offsets_of(np.bincount(item, minlength=items))
    places = np.flatnonzero((np.diff(offsets) > 0)[histories.values])
    owner = np.searchsorted(histories.offsets, places, side="right") - 1
    spots, sizes = ranges(*(offsets[histories.values[places] + more] for more in (0, 1)))
    keys, place = np.unique(np.repeat(owner, sizes) * len(named) + which[order][spots], return_inverse=True)
    times = np.bincount(place, weights=weights[spots], minlength=len(keys)).astype(np.float64)
    return MentionCounts(keys // max(1, len(named)), keys % max(1, len(named)), times)
