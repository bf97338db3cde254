"""The factor model in numpy, for fits and answers without torch: the same weights and the same formula.

`factor_model` has it in torch, with gradients; tests/propensity/test_factor_scorer.py holds one against the other.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_array

from merit.core.ragged import Ragged, owners
from merit.core.types import Floats, Ints
from merit.propensity.calibration import CalibrationCurve
from merit.propensity.features import UserFeatures, unit_weights
from merit.propensity.score import repeat_score

Doubles = NDArray[np.float64]


@dataclass(frozen=True)
class FactorWeights:
    """The weights by the names that they have in the model of torch, and in its file."""

    label_factors: Floats  # (C, R)  the last is popularity
    history_factors: Floats  # (C, R - 1)
    of_text: Floats  # (R, text)
    repeat: Floats  # (3,)
    repeat_bias: Floats  # (R,)
    trend_weight: Floats  # (1,)
    bias: Floats  # (1,)
    trained: NDArray[np.bool_]  # (C,)
    word_factors: Floats = field(default_factory=lambda: np.zeros((0, 0), np.float32))  # (words, R - 1), or none

    @staticmethod
    def of(arrays: Mapping[str, NDArray[Any]]) -> FactorWeights:
        """From what `arrays()` gave, or the weights of a model of torch."""
        return FactorWeights(**{each.name: arrays[each.name] for each in fields(FactorWeights) if each.name in arrays})

    def arrays(self) -> dict[str, NDArray[Any]]:
        """Plain arrays, ready for safetensors."""
        arrays = {each.name: np.ascontiguousarray(getattr(self, each.name)) for each in fields(self)}
        return {name: array for name, array in arrays.items() if name != "word_factors" or array.size}

    def users(self, features: UserFeatures) -> Floats:
        """(B, R): the sum of the factors of each history and of its title words, and a one."""
        summed = summed_history(features, self.history_factors, self.trained)
        if features.words is not None and len(self.word_factors):
            words, times = features.words.words, features.words.times.astype(np.float32)
            summed += bags(words, unit_weights(np.log1p(times), owners(words)), self.word_factors)
        return np.concatenate([summed, np.ones((len(features), 1))], axis=1).astype(np.float32)


@dataclass(frozen=True)
class FactorScorer:
    """The model over a label space. Scores are log-odds before calibration."""

    weights: FactorWeights
    texts: Floats
    """By label: its text vector."""
    live: NDArray[np.bool_]
    calibration: CalibrationCurve | None = None

    @cached_property
    def label_vectors(self) -> Floats:
        """(C, text + R): the text vector of each label, and its own factors where training has seen it."""
        own = np.zeros((len(self.texts), self.weights.label_factors.shape[1]), np.float32)
        seen = np.flatnonzero(self.weights.trained)
        own[seen] = self.weights.label_factors[seen]
        return np.concatenate([self.texts, own], axis=1)

    @cached_property
    def label_factors(self) -> Floats:
        """(C, R): own factors and the projection of the text."""
        factors: Floats = self.label_vectors[:, self.texts.shape[1] :] + self.texts @ self.weights.of_text.T
        return factors

    @cached_property
    def label_repeats(self) -> Floats:
        """(C,): how much more than the average label each is bought again."""
        repeats: Floats = self.label_vectors[:, self.texts.shape[1] :] @ self.weights.repeat_bias
        return repeats

    def users(self, features: UserFeatures) -> Floats:
        """(B, R): the vectors of users. A row depends on its user alone."""
        return self.weights.users(features)

    def grid(self, users: Floats, features: UserFeatures, labels: Ints) -> Floats:
        """(B, labels): the scores of all pairs, of `users` and their features. Labels are ascending."""
        scores = users @ self.label_factors[labels].T + self.weights.bias.sum()
        owner, times, shares, place = history_spots(features, labels)
        repeats = self.label_repeats[labels][place].astype(np.float64)
        scores[owner, place] += repeat_score(times, shares, self.weights.repeat.tolist(), repeats).astype(np.float32)
        if features.trends:
            scores += features.trends.of(labels) * self.weights.trend_weight.sum()
        return np.asarray(scores, np.float32)


def summed_history(features: UserFeatures, factors: Floats, trained: NDArray[np.bool_]) -> Doubles:
    """(B, R - 1): the factors of each history's labels, weighted and added up; labels newer than these have none."""
    history, last = features.history, len(factors) - 1
    weights = unit_weights(features.history_shares(), owners(history))
    known = (history.values <= last) & trained[np.minimum(history.values, last)]
    return bags(Ragged(history.offsets, np.minimum(history.values, last)), weights * known, factors)


def bags(lists: Ragged, weights: Floats, table: Floats) -> Doubles:
    """(rows, D): rows of the table, weighted and added up by list. Only those that are in a list are looked at."""
    used, place = np.unique(lists.values, return_inverse=True)
    rows = csr_array((weights.astype(np.float64), place, lists.offsets), shape=(len(lists), len(used)))
    return np.asarray(rows @ table[used].astype(np.float64))


def history_spots(features: UserFeatures, labels: Ints) -> tuple[Ints, Doubles, Doubles, Ints]:
    """Where the histories of users have these labels (ascending).

    The users, how often, the share of the history, and the places among the labels.
    """
    history, owner = features.history, owners(features.history)
    totals = np.bincount(owner, weights=features.times, minlength=len(features))
    place = np.minimum(np.searchsorted(labels, history.values), len(labels) - 1)
    present = labels[place] == history.values
    times, owner = features.times[present].astype(np.float64), owner[present]
    return owner, times, times / totals[owner], place[present]
