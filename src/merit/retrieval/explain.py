"""Which items of a history carry a score: the model reads the history again without each of them.

Leave one out, all variants in one batch: as many histories as there are distinct items in the history, and the whole.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from merit.core.artifacts import Artifact
from merit.core.ragged import Ragged, owners
from merit.core.types import Floats, Ints
from merit.labels.mentions import Mentioned
from merit.retrieval.encode import open_encoder

MOST = 200  # distinct items, the newest ones: older ones hardly ever reach the prompt


class Variants(NamedTuple):
    """A history, then the same without each of its distinct items, newest first."""

    vectors: Floats  # (1 + items, width): of a user with such a history
    items: Ints
    times: NDArray[np.float64]  # (1 + items,): how often the label is in it; or, where it is named, by how much
    totals: NDArray[np.float64]  # (1 + items,): labels, repeats counted
    likely: NDArray[np.float64]  # (1 + items,): what the generator adds to the score of the label


def leave_one_out(
    model: Artifact,
    labels: Artifact,
    items: NDArray[np.int32],
    days: NDArray[np.int32],
    label: int,
    named: Mentioned | None = None,
) -> Variants:
    """The variants of a history of items, oldest first, with the days since each.

    `named` are the products that name a phrase, or a new label.
    """
    newest_first = items[::-1]
    _, first = np.unique(newest_first, return_index=True)
    distinct = newest_first[np.sort(first)][:MOST].astype(np.int64)
    kept = [np.ones(len(items), bool), *(items != item for item in distinct)]
    item_lists, day_lists = (Ragged.of([values[rows].tolist() for rows in kept]) for values in (items, days))
    encoded = open_encoder(model, labels).encode(item_lists, day_lists)
    totals = np.bincount(owners(encoded.history), weights=encoded.times, minlength=len(kept))
    if named is None:
        owner, had = owners(encoded.history), encoded.history.values == label
        label_times = np.bincount(owner[had], weights=encoded.times[had], minlength=len(kept))
    else:
        weights = np.zeros(1 + int(max(items.max(initial=0), named.items.max(initial=0))))
        weights[named.items] = named.weights
        label_times = np.array([weights[items[rows]].sum() for rows in kept])
    likely = np.zeros(len(kept))
    if label >= 0:
        labels_there = 1 + int(max(label, encoded.likely.labels.values.max(initial=0)))
        likely = encoded.likely_weight * encoded.likely.grid(np.array([label]), labels_there)[:, 0].astype(np.float64)
    times, label_totals = label_times.astype(np.float64), totals.astype(np.float64)
    return Variants(encoded.vectors, distinct, times, label_totals, likely)
