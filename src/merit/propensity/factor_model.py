"""The factor model p_u · q_c: a linear model, of low rank, of the labels and title words of a history.

Every label that training has seen has factors of its own behind its text vector; they and a projection of the text are
q_c. p_u is the sum of the factors of the history's labels and of the words of its titles, and a one, so that the last
factor of a label is its popularity. To that come what a label in the history adds, trends, and one number for all
pairs. `linear` trains it; the generator starts from it, and the states model learns what it leaves.
"""

from __future__ import annotations

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.nn.functional import embedding, embedding_bag, linear

from merit.core.ragged import Ragged, owners
from merit.core.types import Floats, Ints
from merit.propensity.features import UserFeatures, unit_weights
from merit.propensity.score import repeat_score

WEIGHTS = frozenset(
    ("label_factors", "history_factors", "word_factors", "trend_weight", "of_text", "repeat", "repeat_bias", "bias")
)


class FactorModel(nn.Module):
    """The model in torch. Its sizes come from the label vectors and the label space; only R, `factors`, is chosen."""

    trained: Tensor

    def __init__(self, factors: int, vector_width: int, trained: Tensor, words: int = 0) -> None:
        """`trained`: by label of the space, whether training sees it. `words`: the number of title words."""
        super().__init__()
        summed = max(0, factors - 1)
        self.register_buffer("trained", trained)
        self.label_factors = nn.Parameter(0.1 * torch.randn(len(trained), factors))
        self.history_factors = nn.Parameter(0.1 * torch.randn(len(trained), summed))
        self.word_factors = nn.Parameter(0.1 * torch.randn(words, summed))
        self.trend_weight = nn.Parameter(torch.zeros(min(1, factors)))
        self.of_text = nn.Parameter(torch.zeros(factors, vector_width))
        self.repeat = nn.Parameter(torch.zeros(3))
        self.repeat_bias = nn.Parameter(torch.zeros(factors))  # of a label, from its factors
        self.bias = nn.Parameter(torch.zeros(min(1, factors)))

    @property
    def factors(self) -> int:
        """R: the number of factors."""
        return self.label_factors.shape[1]

    def labels(self, texts: Tensor, labels: Tensor, dropped: float = 0.0) -> Tensor:
        """(C, text + R): label vectors, from text vectors and numbers in the label space; -1 for no label.

        Labels are `dropped` at random with this chance: they have no factors, so that the text learns to stand alone.
        """
        used, place = self._seen(labels)
        if dropped:
            used = used & (torch.rand(len(labels), device=labels.device) >= dropped)
        return torch.cat([texts, embedding(place, self.label_factors) * used[:, None]], dim=1)

    def user_factors(self, summed: Tensor) -> Tensor:
        """(B, R): the sums of the factors of histories (B, R - 1), and a one."""
        return torch.cat([summed, summed.new_ones(len(summed), min(1, self.factors))], dim=1)

    def full_label_factors(self, vectors: Tensor) -> Tensor:
        """(C, R): a label's own factors, and the projection of its text."""
        text = self.of_text.shape[1]
        return vectors[:, text:] + linear(vectors[:, :text], self.of_text)

    def history_factors_of(self, labels: Tensor) -> Tensor:
        """(C, R - 1): what each of these labels adds to a user who has it in the history."""
        used, place = self._seen(labels)
        return embedding(place, self.history_factors) * used[:, None]

    def label_repeats(self, vectors: Tensor) -> Tensor:
        """(C,): how much more than the average label each is bought again, from its factors."""
        return vectors[:, vectors.shape[1] - len(self.repeat_bias) :] @ self.repeat_bias

    def repeat_score(self, times: Tensor, shares: Tensor, labels: Tensor) -> Tensor:
        """What labels in the history add; `labels` are their `label_repeats`."""
        return repeat_score(times, shares, self.repeat, labels)

    def trend_score(self, trends: Tensor) -> Tensor:
        """What trends add; nothing where there is no factor model."""
        return trends * self.trend_weight.sum()

    def grid(
        self, features: UserFeatures, texts: Tensor, labels: Ints, dropped: float = 0.0, dropout: float = 0.0
    ) -> Tensor:
        """(B, C): the log-odds of all pairs of users and labels (ascending), whose text vectors are (C, text).

        `dropped` is for training, and so is `dropout`, of the sums of factors.
        """
        table = self.labels(texts, torch.from_numpy(labels), dropped)
        users = self.user_factors(torch.dropout(summed_factors(self, features), dropout, train=True))
        scores = users @ self.full_label_factors(table).T + self.bias.sum()
        spots, present = grid_spots(features.history, labels)
        owner, counts = owners(features.history), features.times.astype(np.float32)
        totals = np.bincount(owner, weights=features.times, minlength=len(features)).astype(np.float32)
        times, shares = (torch.from_numpy(column[present]) for column in (counts, counts / totals[owner]))
        repeats = self.repeat_score(times, shares, self.label_repeats(table)[spots % len(labels)])
        scores = scores.flatten().index_add(0, spots, repeats).view_as(scores)
        if features.trends:
            scores = scores + self.trend_score(torch.from_numpy(features.trends.of(labels)))
        return scores

    def _seen(self, labels: Tensor) -> tuple[Tensor, Tensor]:
        """Which labels training has seen, and their rows."""
        listed = (labels >= 0) & (labels < len(self.label_factors))
        place = torch.where(listed, labels, 0)
        return listed & self.trained[place], place


def summed_factors(model: FactorModel, users: UserFeatures) -> Tensor:
    """(B, R - 1): the factors of the histories' labels and of the words of their titles."""
    labels, place = np.unique(users.history.values.astype(np.int64), return_inverse=True)
    weights = unit_weights(users.history_shares(), owners(users.history))
    factors = bag_sums(place, users.history.offsets, model.history_factors_of(torch.from_numpy(labels)), weights)
    if users.words is None or not len(model.word_factors):
        return factors
    words = users.words.words
    weights = unit_weights(np.log1p(users.words.times.astype(np.float32)), owners(words))
    return factors + bag_sums(words.values.astype(np.int64), words.offsets, model.word_factors, weights)


def bag_sums(place: Ints, offsets: Ints, table: Tensor, weights: Floats) -> Tensor:
    """(B, D): rows of the table, weighted and added up by user."""
    return embedding_bag(
        torch.from_numpy(place),
        table,
        torch.from_numpy(offsets),
        mode="sum",
        per_sample_weights=torch.from_numpy(weights),
        include_last_offset=True,
    )


def grid_spots(lists: Ragged, columns: Ints) -> tuple[Tensor, NDArray[np.bool_]]:
    """Where the labels of these lists are in a grid of users and columns (ascending), and which of them are in it."""
    place = np.minimum(np.searchsorted(columns, lists.values), len(columns) - 1)
    present = columns[place] == lists.values
    return torch.from_numpy((owners(lists) * len(columns) + place)[present]), present
