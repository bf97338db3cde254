"""score(user, label): a transformer over a user's states and history, and an MLP over [user; label vector].

The generator's states are one token each; the labels of the history, a mean of their vectors by how often they occur,
are one more: what a linear model knows, this one should know too.

The MLP's first layer is split, W [u; e] = W_u u + W_e e: each half is computed once per user and once per label, and
a pair costs the remaining two layers only. Behind its text vector a label has a few numbers of its own, learnt (what
its text does not say: how popular it is, who buys it). They are zero for a label that training has not seen, and
training sets them to zero at random, so that the text has learnt to stand alone.
"""

from __future__ import annotations

import torch
from pydantic import Field
from torch import Tensor, nn

from merit.config import Frozen


class PropensityConfig(Frozen):
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
    own: int = Field(32, ge=0)
    """Numbers of its own that a label seen in training has behind its text vector."""
    own_dropout: float = Field(0.3, ge=0, lt=1)


class Propensity(nn.Module):
    """Sizes come from the configuration, but for those of states, label vectors and the label space."""

    trained: Tensor

    def __init__(self, config: PropensityConfig, state_width: int, vector_width: int, trained: Tensor) -> None:
        """`trained`: by label of the space, whether training sees it."""
        super().__init__()
        self.register_buffer("trained", trained)
        self.own_dropout = config.own_dropout
        self.scale = nn.LayerNorm(state_width)
        self.enter = nn.Linear(state_width, config.width)
        self.enter_history = nn.Linear(vector_width + config.own, config.width)
        self.place = nn.Parameter(0.02 * torch.randn(1 + config.labels, config.width))
        layer = nn.TransformerEncoderLayer(
            config.width, config.heads, 4 * config.width, config.dropout, "gelu", batch_first=True, norm_first=True
        )
        self.encoder = nn.TransformerEncoder(
            layer, config.layers, norm=nn.LayerNorm(config.width), enable_nested_tensor=False
        )
        self.of_user = nn.Linear(config.width, config.hidden)
        self.own = nn.Parameter(0.1 * torch.randn(len(trained), config.own))
        self.of_label = nn.Linear(vector_width + config.own, config.hidden, bias=False)
        self.repeat = nn.Parameter(torch.zeros(3))
        self.repeat_own = nn.Parameter(torch.zeros(config.own))
        self.second = nn.Linear(config.hidden, config.second)
        self.last = nn.Linear(config.second, 1)

    def users(self, states: Tensor, counts: Tensor, histories: Tensor) -> Tensor:
        """(B, width): the vector of each user.

        From states (B, k, state width), the number of them that are there (B,), and the mean label vector of each
        history (B, text + own).
        """
        history = self.enter_history(histories)[:, None]
        entered = torch.cat([history, self.enter(self.scale(states))], dim=1) + self.place
        missing = torch.arange(entered.shape[1], device=states.device) > counts[:, None]
        read = self.encoder(entered, src_key_padding_mask=missing)
        kept = (~missing).to(read.dtype)[..., None]
        vectors: Tensor = (read * kept).sum(1) / kept.sum(1)
        return vectors

    def user_halves(self, vectors: Tensor) -> Tensor:
        """(B, hidden)"""
        halves: Tensor = self.of_user(vectors)
        return halves

    def labels(self, texts: Tensor, labels: Tensor) -> Tensor:
        """(C, text + own): from text vectors and numbers in the label space; -1 for a phrase that is no label."""
        known = (labels >= 0) & (labels < len(self.own))
        place = torch.where(known, labels, 0)
        used = known & self.trained[place]
        if self.training:
            used = used & (torch.rand(len(labels), device=labels.device) >= self.own_dropout)
        return torch.cat([texts, self.own[place] * used[:, None]], dim=1)

    def label_halves(self, vectors: Tensor) -> Tensor:
        """(C, hidden)"""
        halves: Tensor = self.of_label(vectors)
        return halves

    def score(self, user_halves: Tensor, label_halves: Tensor) -> Tensor:
        """Log-odds of pairs: the halves are added as they are broadcast, the last dimension is the hidden one."""
        first = torch.relu(user_halves + label_halves)
        scores: Tensor = self.last(torch.relu(self.second(first)))[..., 0]
        return scores

    def label_repeats(self, vectors: Tensor) -> Tensor:
        """(C,): how much more than the average label each is bought again, from its vector's own numbers."""
        return vectors[:, vectors.shape[1] - len(self.repeat_own) :] @ self.repeat_own

    def repeats(self, times: Tensor, shares: Tensor, labels: Tensor) -> Tensor:
        """What a label in the user's own history adds to the log-odds.

        By how often it is there, by its share of the history (a busy user has many labels often), and by the label.
        """
        first, often, share = self.repeat
        added = first + often * times.log1p() + share * shares.clamp(min=1e-9).log() + labels
        return torch.where(times > 0, added, 0.0)
