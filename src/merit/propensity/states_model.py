"""The propensity model: the factor model, and above it, if wanted, the paper's scorer of the generator's states.

The paper's scorer is a transformer over states with an MLP. The generator's states are one token each; the history, a
mean of its label vectors by how often they occur, may be one more. The first layer of the MLP over user and label is
split, W [u; e] = W_u u + W_e e: each projection is computed once per user and once per label. The MLP does not read the
last factor of a label, so that popularity may change without it. `score` has the whole formula.
"""

from __future__ import annotations

import torch
from pydantic import Field
from torch import Tensor, nn

from merit.core.config import Frozen
from merit.propensity.factor_model import FactorModel
from merit.propensity.score import pair_score


class PropensityConfig(Frozen):
    """Sizes that are chosen. Those that come with the data are given to `Propensity` beside them."""

    states: bool = True
    """Whether there is a scorer of states. By default `merit run` has none where the generator reads items: what such a
    generator knows comes by its likely labels (docs/decisions/0018-items.md)."""
    history: bool = True
    """Whether the history is one more token of that scorer; not in the paper."""
    likely: bool = True
    """Whether likely labels of the generator add to the score."""
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


class Propensity(FactorModel):
    """The model in torch. Its sizes come from the configuration, the states, the label vectors and the label space."""

    def __init__(
        self, config: PropensityConfig, state_width: int, vector_width: int, trained: Tensor, words: int = 0
    ) -> None:
        """`trained`: by label of the space, whether training sees it. `words`: the number of title words."""
        super().__init__(config.factors, vector_width, trained, words)
        self.reads_states, self.reads_history = config.states, config.history
        self.likely_weight = nn.Parameter(torch.zeros(()))
        if not config.states:
            return
        factors = max(0, config.factors - 1)
        self.scale = nn.LayerNorm(state_width)
        self.enter = nn.Linear(state_width, config.width)
        if config.history:
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
        self.second = nn.Linear(config.hidden, config.second)
        self.last = nn.Linear(config.second, 1)

    def users(self, states: Tensor, counts: Tensor, histories: Tensor, factors: Tensor) -> Tensor:
        """(B, width + R): the vector of each user.

        From states (B, k, state width), how many of them are there (B,), the mean label vector of each history
        (B, text + R), and the sum of its history and word factors (B, R - 1).
        """
        if not self.reads_states:
            return self.user_factors(factors)
        entered, first = self.enter(self.scale(states)) + self.place[1:], 0
        if self.reads_history:
            history = self.enter_history(self._without_popularity(histories)) + self.place[0]
            entered, first = torch.cat([history[:, None], entered], dim=1), 1
        missing = torch.arange(entered.shape[1], device=states.device) >= counts[:, None] + first
        read = self.encoder(entered, src_key_padding_mask=missing)
        kept = (~missing).to(read.dtype)[..., None]
        return torch.cat([(read * kept).sum(1) / kept.sum(1).clamp(min=1), self.user_factors(factors)], dim=1)

    def user_projections(self, vectors: Tensor) -> Tensor:
        """(B, hidden + R)"""
        if not self.reads_states:
            return vectors
        return torch.cat([self.of_user(vectors), vectors[:, vectors.shape[1] - self.factors :]], dim=1)

    def label_projections(self, vectors: Tensor) -> Tensor:
        """(C, hidden + R)"""
        factors = self.full_label_factors(vectors)
        if not self.reads_states:
            return factors
        return torch.cat([self.of_label(self._without_popularity(vectors)), factors], dim=1)

    def score(
        self, users: Tensor, labels: Tensor, times: Tensor, shares: Tensor, repeats: Tensor, trends: Tensor | None
    ) -> Tensor:
        """Log-odds of pairs: of projections, of how often the label is in the history and its share, and of trends."""
        scores = self.pair_score(users, labels) + self.repeat_score(times, shares, repeats)
        return scores if trends is None else scores + self.trend_score(trends)

    def pair_score(self, users: Tensor, labels: Tensor) -> Tensor:
        """What states and factors give, from projections that are broadcast."""
        if not self.reads_states:
            return self.bias.sum() + (users * labels).sum(-1)
        width = self.of_user.out_features
        return self.bias.sum() + pair_score(users, labels, width, self.second, lambda x: self.last(x)[..., 0])

    def _without_popularity(self, vectors: Tensor) -> Tensor:
        """All of label vectors but the last factor, which is for the factor model alone."""
        return vectors[:, : self.of_label.in_features]
