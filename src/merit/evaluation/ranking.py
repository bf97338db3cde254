"""Metrics of methods that score every label: are the right users ranked first, and are new labels found?

    metrics = measure_audiences(scores, truth, shares) | measure_new_labels(scores, truth)

- Hit@k: the share of an interest's true users among its k highest scores, where k is a share of all users. Every user
  is ranked, never a sample of candidates. A user's score for a vertical is the sum over labels of
  P(vertical | label) · score; those who truly want it bought a product of it, which counts once, whatever its labels.
- Recall of new labels: a list that is best over all golds is full of repeats. Here the labels of the history are left
  out first, and the rest is ranked.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass

import numpy as np

from merit.core.errors import DataError
from merit.core.ragged import owners
from merit.core.types import Floats, Ints
from merit.evaluation.classification import MetricKey, Metrics
from merit.evaluation.predictions import Truth
from merit.evaluation.uncertainty import Metric, Reals, mean, ratio

Scores = Callable[[Ints], Floats]  # labels → (examples, labels), comparable across users, additive over labels

SHARES = (0.01, 0.02, 0.05, 0.1, 0.2)
BUDGETS = (5, 10, 20)
BLOCK = 512  # labels scored at a time
MEAN = "all"  # in place of a vertical: the mean over verticals


def hit_key(share: float, vertical: str = "") -> MetricKey:
    """The key of Hit@k for a vertical or `MEAN`; without one, of recall over pairs of user and label."""
    return MetricKey("hit", f"{share:.0%}", vertical=vertical)


def new_labels_key(budget: int) -> MetricKey:
    """The key of recall of new labels when only new labels are ranked."""
    return MetricKey("recall", "exact", budget, "discovery")


@dataclass(frozen=True)
class Positives:
    """Which users truly want which targets (labels, or verticals), each pair once."""

    user: Ints
    target: Ints


# --- users for an interest -------------------------------------------------------------------------------------------


def measure_audiences(score: Scores, truth: Truth, shares: Floats) -> Metrics:
    """Hit@k by vertical, their mean, and recall over pairs; `shares` is P(vertical | label), (labels, verticals)."""
    totals = np.zeros((len(truth), len(truth.verticals)), dtype=np.float64)
    pairs = Positives(owners(truth.gold), truth.gold.values.astype(np.int64))
    pair_ranks = ranks(_added_up(score, truth.labels, shares, totals), pairs)
    groups = Positives(owners(truth.bought), truth.bought.values.astype(np.int64))
    group_ranks = ranks([(np.arange(len(truth.verticals)), totals.astype(np.float32))], groups)
    metrics: Metrics = {}
    for share in SHARES:
        k = budget(share, len(truth))
        metrics[hit_key(share)] = mean(truth.user[pairs.user], truth.users, pair_ranks < k)
        by_vertical = {
            name: mean(truth.user[groups.user[chosen]], truth.users, group_ranks[chosen] < k)
            for number, name in enumerate(truth.verticals)
            for chosen in [groups.target == number]
        }
        metrics |= {hit_key(share, name): metric for name, metric in by_vertical.items()}
        metrics[hit_key(share, MEAN)] = mean_of(by_vertical.values())
    return metrics


def ranks(blocks: Iterable[tuple[Ints, Floats]], positives: Positives) -> Ints:
    """The rank of each positive user for its target, from 0.

    A block is (targets, scores of all users (users, targets)). Equal scores rank the user with the lower number
    first, so a constant score gives the order of users and not a perfect one. Each target must come once.
    """
    result = np.full(len(positives.user), -1, dtype=np.int64)
    order = np.argsort(positives.target, kind="stable")
    targets = positives.target[order]
    for block, scores in blocks:
        first, last = (np.searchsorted(targets, block, side) for side in ("left", "right"))
        for column in np.flatnonzero(last > first).tolist():  # a target without positives needs no ranking
            pairs = order[first[column] : last[column]]
            result[pairs] = _user_ranks(scores[:, column])[positives.user[pairs]]
    if (result < 0).any():
        missing = np.unique(positives.target[result < 0])
        raise DataError(f"{len(missing):,} targets have positives but no scores, such as {missing[0]}. Score them all.")
    return result


def budget(share: float, users: int) -> int:
    """Users in that share of all: a whole number, rounded down, and at least one."""
    return max(1, math.floor(share * users + 1e-9))  # 0.05 · 20 is 1, whatever the last bit is


def mean_of(metrics: Iterable[Metric]) -> Metric:
    """The mean over verticals of a share each; verticals without positives are left out."""
    return Metric(np.concatenate([metric.columns for metric in metrics], axis=1), _mean_rate)


def _mean_rate(sums: Reals) -> Reals:
    rates: Reals = np.nanmean(ratio(sums.reshape(*sums.shape[:-1], -1, 2)), axis=-1)
    return rates


def _user_ranks(scores: Floats) -> Ints:
    if np.isnan(scores).any():
        raise DataError("Some scores are not numbers: these users cannot be ranked. Score them again.")
    result = np.empty(len(scores), dtype=np.int64)
    result[np.argsort(-scores, kind="stable")] = np.arange(len(scores))
    return result


def _added_up(score: Scores, labels: int, shares: Floats, totals: Reals) -> Iterator[tuple[Ints, Floats]]:
    """Scores block by block; on the way they are added up by vertical."""
    for block in _blocks(labels):
        scores = score(block)
        totals += scores.astype(np.float64) @ shares[block]
        yield block, scores


def _blocks(labels: int) -> list[Ints]:
    return [np.arange(start, min(start + BLOCK, labels)) for start in range(0, labels, BLOCK)]


# --- labels new to a user --------------------------------------------------------------------------------------------


def measure_new_labels(score: Scores, truth: Truth) -> Metrics:
    """Recall over novel golds at each budget. A label with a score of zero was not predicted."""
    examples, golds = owners(truth.gold)[truth.novel], truth.gold.values[truth.novel].astype(np.int64)
    gold_scores = _pair_scores(score, examples, golds, truth.labels)
    places = np.where(gold_scores > 0, _new_label_ranks(score, truth, examples, golds, gold_scores), truth.labels)
    return {new_labels_key(k): mean(truth.user[examples], truth.users, places < k) for k in BUDGETS}


def _pair_scores(score: Scores, examples: Ints, labels: Ints, n_labels: int) -> Floats:
    scores = np.zeros(len(labels), dtype=np.float32)
    for block in _blocks(n_labels):
        inside = (labels >= block[0]) & (labels <= block[-1])
        scores[inside] = score(block)[examples[inside], labels[inside] - block[0]]
    return scores


def _new_label_ranks(score: Scores, truth: Truth, examples: Ints, labels: Ints, gold_scores: Floats) -> Ints:
    """By pair: how many labels outside the history score higher; of equal ones the lower id is first."""
    owner, result = owners(truth.history), np.zeros(len(labels), dtype=np.int64)
    for block in _blocks(truth.labels):
        scores = np.array(score(block))
        seen = (truth.history.values >= block[0]) & (truth.history.values <= block[-1])
        scores[owner[seen], truth.history.values[seen] - block[0]] = -np.inf
        others = scores[examples]
        equal = (others == gold_scores[:, None]) & (block < labels[:, None])
        result += ((others > gold_scores[:, None]) | equal).sum(axis=1)
    return result
