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

from merit.core.ragged import Ragged, head, owners, select
from merit.core.types import Ints
from merit.evaluation.predictions import BUDGET, LENGTH, Predictions, Truth, filled


def trivial(truth: Truth, popularity: Ints) -> Predictions:
    """The paper's: the user's five most frequently purchased labels, at any budget. Nothing bought, nothing said."""
    return Predictions("trivial", 0, head(_frequent(truth.history, truth.purchases, popularity), LENGTH))


def history_frequency(truth: Truth, popularity: Ints, budget: int = BUDGET) -> Predictions:
    """The labels most frequent in the history, whatever the event."""
    return _cut("history frequency", head(_frequent(truth.history, truth.counts, popularity), budget))


def history_frequency_and_popularity(truth: Truth, popularity: Ints, budget: int = BUDGET) -> Predictions:
    """The history first, then the most popular labels that are not in it, up to the budget."""
    history = head(_frequent(truth.history, truth.counts, popularity), budget)
    fillers = _for_all(truth, most_popular(popularity, 2 * budget))
    return _cut("history frequency + popularity", filled(history, fillers, budget))


def popular(truth: Truth, popularity: Ints, budget: int = BUDGET) -> Predictions:
    """The same labels for everyone."""
    return _cut("popularity", _for_all(truth, most_popular(popularity, budget)))


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


def _for_all(truth: Truth, labels: NDArray[np.int32]) -> Ragged:
    return Ragged(np.arange(len(truth) + 1) * len(labels), np.tile(labels, len(truth)))


def _cut(method: str, ranked: Ragged) -> Predictions:
    return Predictions(method, 0, head(ranked, LENGTH), ranked)


def _frequent(history: Ragged, counts: NDArray[np.int32], popularity: Ints) -> Ragged:
    """Each history by count, labels that never count left out."""
    labels = history.values
    order = np.lexsort((labels, -popularity[labels], -counts.astype(np.int64), owners(history)))
    return select(Ragged(history.offsets, labels[order]), counts[order] > 0)
