"""What is new to a user: how many of the new golds are found when only labels the user never had may be said?

    figures = measure(scores_of_labels, truth)

A list that is best over all golds is full of repeats, and has little room for anything new. Someone who asks what to
suggest next leaves the repeats out first, and then ranks; this is recall of that list.
"""

from __future__ import annotations

import numpy as np

from merit.core.types import Floats, Ints
from merit.evaluation.audiences import BLOCK, Scores
from merit.evaluation.classification import MetricKey, Metrics
from merit.evaluation.predictions import Truth, owners
from merit.evaluation.uncertainty import Metric, per_user

BUDGETS = (5, 10, 20)


def found_new(budget: int) -> MetricKey:
    """The key that `measure` puts this recall under, and tables look for."""
    return MetricKey("recall", "exact", budget, "discovery")


def measure(score: Scores, truth: Truth) -> Metrics:
    """Recall over novel golds at each budget. What scores nothing was not said, and is not found."""
    examples, golds = owners(truth.gold)[truth.novel], truth.gold.values[truth.novel].astype(np.int64)
    own = _scores_of(score, examples, golds, truth.labels)
    places = np.where(own > 0, _places(score, truth, examples, golds, own), truth.labels)
    user = truth.user[examples]
    true = per_user(user, np.ones(len(user)), truth.users)
    return {
        found_new(budget): Metric(np.stack([per_user(user, places < budget, truth.users), true], axis=1))
        for budget in BUDGETS
    }


def _scores_of(score: Scores, examples: Ints, labels: Ints, n_labels: int) -> Floats:
    """The scores of these pairs."""
    found = np.zeros(len(labels), dtype=np.float32)
    for block in _blocks(n_labels):
        inside = (labels >= block[0]) & (labels <= block[-1])
        found[inside] = score(block)[examples[inside], labels[inside] - block[0]]
    return found


def _places(score: Scores, truth: Truth, examples: Ints, labels: Ints, own: Floats) -> Ints:
    """By pair: how many labels that the user never had come before; of equal ones the lower number is first."""
    owner, places = owners(truth.history), np.zeros(len(labels), dtype=np.int64)
    for block in _blocks(truth.labels):
        scores = np.array(score(block))
        had = (truth.history.values >= block[0]) & (truth.history.values <= block[-1])
        scores[owner[had], truth.history.values[had] - block[0]] = -np.inf
        others = scores[examples]
        equal = (others == own[:, None]) & (block < labels[:, None])
        places += ((others > own[:, None]) | equal).sum(axis=1)
    return places


def _blocks(n_labels: int) -> list[Ints]:
    return [np.arange(at, min(at + BLOCK, n_labels)) for at in range(0, n_labels, BLOCK)]
