"""What needs no model: repeat the history, or recommend what everybody buys.

`popularity` counts training events by label. It must be zero for labels that may not be predicted (retired, blocked);
such labels, and labels nobody ever bought, are never filled in.

These methods rank and do not stop by themselves. Their free length is 5, as Trivial's, and as the paper cuts the dual
encoders. Ties: more events, then the more popular label, then the lower id.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from merit.core.ragged import Ragged, head, offsets_of, owners, ranks, select
from merit.core.types import Ints
from merit.evaluation.predictions import BUDGET, LENGTH, Predictions, Truth


def trivial(truth: Truth, popularity: Ints) -> Predictions:
    """The paper's: the user's five most frequently purchased labels, at any budget. Nothing bought, nothing said."""
    return Predictions("trivial", 0, head(_frequent(truth.history, truth.purchases, popularity), LENGTH))


def history_frequency(truth: Truth, popularity: Ints, budget: int = BUDGET) -> Predictions:
    """The labels most frequent in the history, whatever the event."""
    return _cut("history frequency", head(_frequent(truth.history, truth.counts, popularity), budget))


def history_frequency_and_popularity(truth: Truth, popularity: Ints, budget: int = BUDGET) -> Predictions:
    """The history first, then the most popular labels that are not in it, up to the budget."""
    own = head(_frequent(truth.history, truth.counts, popularity), budget)
    return _cut("history frequency + popularity", _filled(own, most_popular(popularity, 2 * budget), budget))


def popular(truth: Truth, popularity: Ints, budget: int = BUDGET) -> Predictions:
    """The same labels for everyone."""
    nothing = Ragged(np.zeros(len(truth) + 1, dtype=np.int64), np.zeros(0, dtype=np.int32))
    return _cut("popularity", _filled(nothing, most_popular(popularity, budget), budget))


BASELINES: dict[str, Callable[[Truth, Ints], Predictions]] = {
    "trivial": trivial,
    "history frequency": history_frequency,
    "history frequency + popularity": history_frequency_and_popularity,
    "popularity": popular,
}


def most_popular(popularity: Ints, number: int) -> NDArray[np.int32]:
    """At most `number` labels, most events first, of equal ones the lower id; those without an event are left out."""
    order = np.lexsort((np.arange(len(popularity)), -popularity))[:number]
    return order[popularity[order] > 0].astype(np.int32)


def _cut(method: str, ranked: Ragged) -> Predictions:
    return Predictions(method, 0, head(ranked, LENGTH), ranked)


def _frequent(history: Ragged, counts: NDArray[np.int32], popularity: Ints) -> Ragged:
    """Each history by count, labels that never count left out."""
    labels = history.values
    order = np.lexsort((labels, -popularity[labels], -counts.astype(np.int64), owners(history)))
    return select(Ragged(history.offsets, labels[order]), counts[order] > 0)


def _filled(own: Ragged, fillers: NDArray[np.int32], budget: int) -> Ragged:
    """Own labels, then the fillers that are not among them. Rows of `own` are no longer than the budget."""
    rows = np.concatenate([owners(own), np.repeat(np.arange(len(own)), len(fillers))])
    labels = np.concatenate([own.values, np.tile(fillers, len(own))])
    place = np.concatenate([ranks(own), np.tile(np.arange(len(fillers)) + budget, len(own))])
    order = np.lexsort((place, rows))
    rows, labels = rows[order], labels[order]
    _, first = np.unique(rows * (int(labels.max(initial=0)) + 1) + labels, return_index=True)
    first.sort()
    both = Ragged(offsets_of(np.bincount(rows[first], minlength=len(own))), labels[first])
    return head(both, budget)
