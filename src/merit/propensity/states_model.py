"""The propensity model: a transformer over a user's states and history, an MLP over user and label, and factors.

The generator's states are one token each; the history, a mean of its label vectors by how often they occur, is one
more. The first layer of the MLP is split, W [u; e] = W_u u + W_e e: each projection is computed once per user and once
per label.

Beside the MLP stands the factor model, p_u · q_c. Every label that training has seen has factors of its own behind its
text vector; they and a projection of the text are q_c. p_u is the sum of the factors of the history's labels and of the
words of its titles, and a one, so that the last factor of a label is its popularity; trends are added to that. This is
a linear model of the history of low rank, and it is trained against all labels at once (see `linear`). The MLP does not
read the last factor, so that popularity may change without it. `score` has the whole formula.
"""

from __future__ import annotations

import torch
from pydantic import Field
from torch import Tensor, nn
from torch.nn.functional import embedding, linear

from merit.core.config import Frozen
from merit.propensity.score import pair_score, repeat_score


class PropensityConfig(Frozen):
    """Sizes that are chosen. Those that come with the data are given to `Propensity` beside them."""

    labels: int = Field(5, ge=1)
    """k_g: states of so many generated labels make the user (the paper: 5)."""
    width: int = Field(128, ge=8)
    layers: int = Field(2, ge=1)
    """The paper: 4. On the small default two train in half the time, to the same figures (docs/log.md)."""
    heads: int = Field(4, ge=1)
    hidden: int = Field(256, ge=8)
    """Of the MLP's first layer: what is stored for every user and label."""
    second: int = Field(64, ge=4)
    dropout: float = Field(0.1, ge=0, lt=1)
    factors: int = Field(128, ge=0)
    """Factors of a label seen in training; 0 for no factor model, as in the paper."""


class Propensity(nn.Module):
    """The model in torch. Its sizes come from the configuration, the states, the label vectors and the label space."""

    trained: Tensor

    def __init__(
        self, config: PropensityConfig, state_width: int, vector_width: int, trained: Tensor, words: int = 0
    ) -> None:
        """`trained`: by label of the space, whether training sees it. `words`: the number of title words."""
        super().__init__()
        factors = max(0, config.factors - 1)
        self.register_buffer("trained", trained)
        self.scale = nn.LayerNorm(state_width)
        self.enter = nn.Linear(state_width, config.width)
        self.enter_history = nn.Linear(vector_width + factors, config.width)
        self.place = nn.Parameter(0.02 * torch.randn(1 + config.labels, config.width))
        layer = nn.TransformerEncoderLayer(
            config.width, config.heads, 4 * config.width, config.dropout, "gelu", batch_first=True, norm_first=True
        )
        self.encoder = nn.TransformerEncoder(
            layer, config.layers, norm=nn.LayerNorm(config.width), enable_nested_tensor=False
        )
        self.of_user = nn.Linear(config.width + config.factors, config.hidden)
        self.of_label = nn.Linear(vector_width + factors, config.hidden, bias=False)
        self.label_factors = nn.Parameter(0.1 * torch.randn(len(trained), config.factors))  # label factors
        self.history_factors = nn.Parameter(0.1 * torch.randn(len(trained), factors))  # history factors
        self.word_factors = nn.Parameter(0.1 * torch.randn(words, factors))  # word factors
        self.trend_weight = nn.Parameter(torch.zeros(min(1, config.factors)))  # trend weight
        self.of_text = nn.Parameter(torch.zeros(config.factors, vector_width))
        self.repeat = nn.Parameter(torch.zeros(3))
        self.repeat_bias = nn.Parameter(torch.zeros(config.factors))  # repeat bias, from the label factors
        self.second = nn.Linear(config.hidden, config.second)
        self.last = nn.Linear(config.second, 1)

    @property
    def factors(self) -> int:
        """R: the number of factors."""
        return self.label_factors.shape[1]

    def users(self, states: Tensor, counts: Tensor, histories: Tensor, factors: Tensor) -> Tensor:
        """(B, width + R): the vector of each user.

        From states (B, k, state width), how many of them are there (B,), the mean label vector of each history
        (B, text + R), and the sum of its history and word factors (B, R - 1).
        """
        history = self.enter_history(self._without_popularity(histories))[:, None]
        entered = torch.cat([history, self.enter(self.scale(states))], dim=1) + self.place
        missing = torch.arange(entered.shape[1], device=states.device) > counts[:, None]
        read = self.encoder(entered, src_key_padding_mask=missing)
        kept = (~missing).to(read.dtype)[..., None]
        return torch.cat([(read * kept).sum(1) / kept.sum(1), self.user_factors(factors)], dim=1)

    def labels(self, texts: Tensor, labels: Tensor, dropped: float = 0.0) -> Tensor:
        """(C, text + R): label vectors, from text vectors and numbers in the label space; -1 for no label.

        Labels are `dropped` at random with this chance: they have no factors, so that the text learns to stand alone.
        """
        used, place = self._seen(labels)
        if dropped:
            used = used & (torch.rand(len(labels), device=labels.device) >= dropped)
        return torch.cat([texts, embedding(place, self.label_factors) * used[:, None]], dim=1)

    def user_factors(self, factors: Tensor) -> Tensor:
        """(B, R): they end with a one."""
        return torch.cat([factors, factors.new_ones(len(factors), min(1, self.factors))], dim=1)

    def full_label_factors(self, vectors: Tensor) -> Tensor:
        """(C, R): a label's own factors, and the projection of its text."""
        text = self.of_text.shape[1]
        return vectors[:, text:] + linear(vectors[:, :text], self.of_text)

    def history_factors_of(self, labels: Tensor) -> Tensor:
        """(C, R - 1): what each of these labels adds to a user who has it in the history."""
        used, place = self._seen(labels)
        return embedding(place, self.history_factors) * used[:, None]

    def user_projections(self, vectors: Tensor) -> Tensor:
        """(B, hidden + R)"""
        return torch.cat([self.of_user(vectors), vectors[:, vectors.shape[1] - self.factors :]], dim=1)

    def label_projections(self, vectors: Tensor) -> Tensor:
        """(C, hidden + R)"""
        return torch.cat([self.of_label(self._without_popularity(vectors)), self.full_label_factors(vectors)], dim=1)

    def label_repeats(self, vectors: Tensor) -> Tensor:
        """(C,): how much more than the average label each is bought again, from its factors."""
        return vectors[:, vectors.shape[1] - len(self.repeat_bias) :] @ self.repeat_bias

    def score(
        self, users: Tensor, labels: Tensor, times: Tensor, shares: Tensor, repeats: Tensor, trends: Tensor | None
    ) -> Tensor:
        """Log-odds of pairs: of projections, of how often the label is in the history and its share, and of trends."""
        scores = self.pair_score(users, labels) + self.repeat_score(times, shares, repeats)
        return scores if trends is None else scores + self.trend_score(trends)

    def pair_score(self, users: Tensor, labels: Tensor) -> Tensor:
        """What states and factors give, from projections that are broadcast."""
        return pair_score(users, labels, self.of_user.out_features, self.second, lambda x: self.last(x)[..., 0])

    def repeat_score(self, times: Tensor, shares: Tensor, labels: Tensor) -> Tensor:
        """What labels in the history add; `labels` are their `label_repeats`."""
        return repeat_score(times, shares, self.repeat, labels)

    def trend_score(self, trends: Tensor) -> Tensor:
        """What trends add; nothing where there is no factor model."""
        return trends * self.trend_weight.sum()

    def _without_popularity(self, vectors: Tensor) -> Tensor:
        """All of label vectors but the last factor, which is for the factor model alone."""
        return vectors[:, : self.of_label.in_features]

    def _seen(self, labels: Tensor) -> tuple[Tensor, Tensor]:
        """Which labels training has seen, and their rows."""
        listed = (labels >= 0) & (labels < len(self.label_factors))
        place = torch.where(listed, labels, 0)
        return listed & self.trained[place], place
