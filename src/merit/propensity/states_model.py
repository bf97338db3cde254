"""score(user, label): a transformer over a user's states and history, and an MLP over [user; label vector].

The generator's states are one token each; the labels of the history, a mean of their vectors by how often they occur,
are one more. The MLP's first layer is split, W [u; e] = W_u u + W_e e: each half is computed once per user and once per
label, and a pair costs the remaining two layers only.

Beside the MLP stands a product, p_u · q_c. Every label that training has seen has numbers of its own behind its text
vector; they and what its text says of them are q_c. p_u is the sum of what the labels of a history and the words of its
titles say, and a one, so that a label's last number is how popular it is; how popular it was lately is added to that.
That is a linear model of the history of low rank. A pair costs next to nothing, so it is trained against all labels at
once (see `factors`): what a linear model knows, this one knows too. The last number is the product's alone, so that
what is popular may change without the MLP.
"""

from __future__ import annotations

import torch
from pydantic import Field
from torch import Tensor, nn
from torch.nn.functional import embedding, linear

from merit.core.config import Frozen


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
    own: int = Field(128, ge=0)
    """Numbers of its own that a label seen in training has behind its text vector; 0 for no product: the paper."""


class Propensity(nn.Module):
    """Sizes come from the configuration, but for those of states, label vectors and the label space."""

    trained: Tensor

    def __init__(
        self, config: PropensityConfig, state_width: int, vector_width: int, trained: Tensor, words: int = 0
    ) -> None:
        """`trained`: by label of the space, whether training sees it. `words`: of titles, so many are known."""
        super().__init__()
        saying = max(0, config.own - 1)
        self.register_buffer("trained", trained)
        self.scale = nn.LayerNorm(state_width)
        self.enter = nn.Linear(state_width, config.width)
        self.enter_history = nn.Linear(vector_width + saying, config.width)
        self.place = nn.Parameter(0.02 * torch.randn(1 + config.labels, config.width))
        layer = nn.TransformerEncoderLayer(
            config.width, config.heads, 4 * config.width, config.dropout, "gelu", batch_first=True, norm_first=True
        )
        self.encoder = nn.TransformerEncoder(
            layer, config.layers, norm=nn.LayerNorm(config.width), enable_nested_tensor=False
        )
        self.of_user = nn.Linear(config.width + config.own, config.hidden)
        self.of_label = nn.Linear(vector_width + saying, config.hidden, bias=False)
        self.own = nn.Parameter(0.1 * torch.randn(len(trained), config.own))
        self.says = nn.Parameter(0.1 * torch.randn(len(trained), saying))
        self.word_says = nn.Parameter(0.1 * torch.randn(words, saying))
        self.lately = nn.Parameter(torch.zeros(min(1, config.own)))
        self.of_text = nn.Parameter(torch.zeros(config.own, vector_width))
        self.repeat = nn.Parameter(torch.zeros(3))
        self.repeat_own = nn.Parameter(torch.zeros(config.own))
        self.second = nn.Linear(config.hidden, config.second)
        self.last = nn.Linear(config.second, 1)

    @property
    def factors(self) -> int:
        """Numbers whose product stands beside the MLP."""
        return self.own.shape[1]

    def users(self, states: Tensor, counts: Tensor, histories: Tensor, said: Tensor) -> Tensor:
        """(B, width + factors): the vector of each user.

        From states (B, k, state width), the number of them that are there (B,), the mean label vector of each history
        (B, text + own), and what its labels and words say (B, factors - 1).
        """
        history = self.enter_history(self.read(histories))[:, None]
        entered = torch.cat([history, self.enter(self.scale(states))], dim=1) + self.place
        missing = torch.arange(entered.shape[1], device=states.device) > counts[:, None]
        read = self.encoder(entered, src_key_padding_mask=missing)
        kept = (~missing).to(read.dtype)[..., None]
        return torch.cat([(read * kept).sum(1) / kept.sum(1), self.user_factors(said)], dim=1)

    def read(self, vectors: Tensor) -> Tensor:
        """All of label vectors but their last number, which is the product's."""
        return vectors[:, : self.of_label.in_features]

    def user_factors(self, said: Tensor) -> Tensor:
        """(B, factors): they end with a one."""
        return torch.cat([said, said.new_ones(len(said), min(1, self.factors))], dim=1)

    def label_factors(self, vectors: Tensor) -> Tensor:
        """(C, factors): a label's own numbers, and what its text says of them."""
        text = self.of_text.shape[1]
        return vectors[:, text:] + linear(vectors[:, :text], self.of_text)

    def user_halves(self, vectors: Tensor) -> Tensor:
        """(B, hidden + factors)"""
        return torch.cat([self.of_user(vectors), vectors[:, vectors.shape[1] - self.factors :]], dim=1)

    def label_halves(self, vectors: Tensor) -> Tensor:
        """(C, hidden + factors)"""
        return torch.cat([self.of_label(self.read(vectors)), self.label_factors(vectors)], dim=1)

    def labels(self, texts: Tensor, labels: Tensor, dropped: float = 0.0) -> Tensor:
        """(C, text + own): from text vectors and numbers in the label space; -1 for a phrase that is no label.

        So many are `dropped` at random: they have nothing of their own, so that the text learns to stand alone.
        """
        used, place = self._seen(labels)
        if dropped:
            used = used & (torch.rand(len(labels), device=labels.device) >= dropped)
        return torch.cat([texts, embedding(place, self.own) * used[:, None]], dim=1)

    def sayings(self, labels: Tensor) -> Tensor:
        """(C, factors - 1): what each of these labels says of a user who had it."""
        used, place = self._seen(labels)
        return embedding(place, self.says) * used[:, None]

    def trend(self, lately: Tensor) -> Tensor:
        """What popularity of late, (B, C), adds to the log-odds; nothing where there is no product."""
        return lately * self.lately.sum()

    def _seen(self, labels: Tensor) -> tuple[Tensor, Tensor]:
        """Which labels training has seen, and where their numbers are."""
        known = (labels >= 0) & (labels < len(self.own))
        place = torch.where(known, labels, 0)
        return known & self.trained[place], place

    def score(self, user_halves: Tensor, label_halves: Tensor) -> Tensor:
        """Log-odds of pairs: the halves are broadcast, the last dimension is hidden + factors."""
        hidden = self.of_user.out_features
        first = torch.relu(user_halves[..., :hidden] + label_halves[..., :hidden])
        product = (user_halves[..., hidden:] * label_halves[..., hidden:]).sum(-1)
        scores: Tensor = self.last(torch.relu(self.second(first)))[..., 0] + product
        return scores

    def label_repeats(self, vectors: Tensor) -> Tensor:
        """(C,): how much more than the average label each is bought again, from its vector's own numbers."""
        return vectors[:, vectors.shape[1] - len(self.repeat_own) :] @ self.repeat_own

    def repeats(self, times: Tensor, shares: Tensor, labels: Tensor) -> Tensor:
        """What a label in the user's own history adds to the log-odds.

        By how often it is there, by its share of the history (a busy user has many labels often), and by the label.
        Less than once, where products only name it, counts by how much; `shares` are then those of once.
        """
        first, often, share = self.repeat
        added = first + often * times.clamp(min=1).log1p() + share * shares.clamp(min=1e-9).log() + labels
        return torch.where(times > 0, added * times.clamp(max=1), 0.0)
