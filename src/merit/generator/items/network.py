"""A transformer over the items of a history, one position each, that writes labels behind them.

    history    one position an item: the labels and title words of the item, its age, its place; each sees all others
    list       BEGIN, then the labels already written; each sees the history and what stands before it

The state of BEGIN chooses the first label, that of a label the next. A state tells which item is bought next, and by
that which labels:

    P(i) = softmax(W state · v_i + b_i + repeats(i) + trends(i))         over all items
    P(c) = Σ P(i) over the items i that carry label c
    logit(c) = α · prior(c) + γ · log P(c)

where prior(c) are the log-odds that the factor model gives to label c. So every label that an item carries has an
output, new ones too, and nothing grows with the number of labels but the vectors of those that are read.
"""

from __future__ import annotations

import warnings
from typing import Any, NamedTuple

import numpy as np
import torch
from pydantic import Field
from torch import Tensor, nn
from torch.nn.functional import embedding, scaled_dot_product_attention

from merit.core.config import Frozen
from merit.core.types import Floats, Ints
from merit.data.trends import WINDOWS
from merit.generator.items.contents import AGES, ItemContents
from merit.generator.items.histories import Positions

Cache = list[tuple[Tensor, Tensor]]  # keys and values (B, heads, length, width of a head) of each layer
FLOOR = 1e-7  # the probability of a label that no item carries


class NetworkConfig(Frozen):
    """The sizes of the network."""

    positions: int = Field(50, ge=1)
    """Items of a history that are read, the nearest in time."""
    written: int = Field(20, ge=1)
    """Labels of a list that may stand before the one that is chosen."""
    width: int = Field(128, ge=8)
    layers: int = Field(2, ge=1)
    heads: int = Field(4, ge=1)
    dropout: float = Field(0.2, ge=0, lt=1)


class ItemCandidates(NamedTuple):
    """Among what a step chooses: items, and the labels they carry."""

    items: Ints  # ascending
    item_weights: Tensor  # (I,): the logarithm of how many items each stands for
    labels: Ints  # ascending
    label_weights: Tensor  # (C,): the same for labels
    carried: Any  # (C, I), in CSR: which items carry a label

    @staticmethod
    def of(carries: Any, items: Ints, item_weights: Floats, labels: Ints, label_weights: Floats) -> ItemCandidates:
        """`carries` (I, C) in scipy's CSR. What was not drawn, but is right, stands for itself."""
        item_logs, label_logs = (
            torch.from_numpy(np.maximum(weights, 1.0)).log() for weights in (item_weights, label_weights)
        )
        return ItemCandidates(items, item_logs, labels, label_logs, carries.T.tocsr())

    @staticmethod
    def all(carries: Any, labels: Ints) -> ItemCandidates:
        """All items, and these labels."""
        items = np.arange(carries.shape[0])
        return ItemCandidates.of(
            carries, items, np.ones(len(items), np.float32), labels, np.ones(len(labels), np.float32)
        )


class ItemNetwork(nn.Module):
    """The network in torch."""

    def __init__(self, config: NetworkConfig, labels: int, words: int, items: int) -> None:
        super().__init__()
        width = config.width
        self.label = nn.Parameter(0.05 * torch.randn(labels, width))
        self.word = nn.Parameter(0.02 * torch.randn(words, width))
        self.item = nn.Parameter(0.02 * torch.randn(items, width))
        self.item_bias = nn.Parameter(torch.zeros(items))
        self.age = nn.Parameter(0.02 * torch.randn(AGES, width))
        self.place = nn.Parameter(0.02 * torch.randn(config.positions, width))
        self.step = nn.Parameter(0.02 * torch.randn(1 + config.written, width))  # BEGIN and the labels behind it
        self.layers = nn.ModuleList([Layer(width, config.heads, config.dropout) for _ in range(config.layers)])
        self.norm = nn.LayerNorm(width)
        self.choose = nn.Linear(width, width)
        self.repeat = nn.Parameter(torch.zeros(2))  # of an item in the history: for being there, for how often
        self.recent = nn.Parameter(torch.zeros(len(WINDOWS)))  # of how often all users had it lately
        self.trust = nn.Parameter(torch.ones(()))  # α
        self.share = nn.Parameter(torch.tensor(0.5))  # γ

    def read(self, positions: Positions, catalogue: ItemContents) -> tuple[Cache, Tensor]:
        """Keys and values of the histories by layer, and which of them (B, 1, 1, L) may be looked at."""
        distinct, place = np.unique(positions.items.numpy(), return_inverse=True)
        contents = embedding(torch.from_numpy(place), self._contents(catalogue, distinct))
        x = contents + self.age[positions.ages] + self.place[: place.shape[1]]
        mask = positions.valid[:, None, None, :]
        cache: Cache = []
        for layer in self.layers:
            x, seen = layer(x, mask)
            cache.append(seen)
        return cache, mask

    def write(self, written: Tensor, cache: Cache, mask: Tensor) -> tuple[Tensor, Cache]:
        """(B, T, width): the states behind the last T labels of lists; the cache with these.

        `written` (B, T) are labels, -1 for BEGIN or for none. What the cache holds beyond `mask` stands before them.
        """
        history, behind = mask.shape[-1], cache[0][0].shape[2]
        before, length = behind - history, written.shape[1]
        steps = self.step[torch.arange(before, before + length).clamp(max=len(self.step) - 1)]
        known = (written >= 0) & (written < len(self.label))  # a label may be newer than the network
        x = steps + embedding(torch.where(known, written, 0), self.label) * known[..., None]
        causal = torch.ones(length, before + length, dtype=torch.bool, device=x.device).tril(before)
        whole = torch.cat([mask.expand(-1, 1, length, -1), causal.expand(len(mask), 1, -1, -1)], dim=-1)
        grown: Cache = []
        for layer, past in zip(self.layers, cache, strict=True):
            x, seen = layer(x, whole, past)
            grown.append(seen)
        return self.norm(x), grown

    def vectors(self, catalogue: ItemContents, items: Ints) -> tuple[Tensor, Tensor]:
        """The vectors (I, width) and biases (I,) by which items are chosen; new ones have those of what they carry."""
        chosen = torch.from_numpy(items)
        known = chosen < len(self.item)
        own, low = torch.where(known, chosen, 0), self.item_bias.min().detach()
        vectors = self._contents(catalogue, items) + self.item[own] * known[:, None]
        return vectors, torch.where(known, self.item_bias[own], low)

    def offsets(self, positions: Positions, weeks: Ints, catalogue: ItemContents, items: Ints) -> Tensor:
        """(B, I): what repeats and trends add to the logits of items (ascending)."""
        trends, week = catalogue.trends.at(weeks, items)
        recent = (torch.from_numpy(trends) @ self.recent)[torch.from_numpy(week)]
        read = positions.items.numpy()
        place = np.minimum(np.searchsorted(items, read), len(items) - 1)
        times = (positions.items[:, :, None] == positions.items[:, None]).sum(-1)  # of the same item in the history
        repeats = (self.repeat[0] + self.repeat[1] * times.log1p()) / times  # added once for each time
        return recent.scatter_add(1, torch.from_numpy(place), repeats * torch.from_numpy(items[place] == read))

    def item_logits(self, states: Tensor, vectors: tuple[Tensor, Tensor], offsets: Tensor) -> Tensor:
        """(B, T, I), from states (B, T, width), the items' vectors and biases, and offsets (B, I)."""
        values, biases = vectors
        logits: Tensor = self.choose(states) @ values.T + (biases + offsets)[:, None]
        return logits

    def logits(self, chances: Tensor, prior: Tensor) -> Tensor:
        """(B, T, C), from the probabilities of labels by items (B, T, C), and the factor model's log-odds (B, C)."""
        mixed: Tensor = self.trust * prior[:, None] + self.share * (chances + FLOOR).log()
        return mixed

    def _contents(self, catalogue: ItemContents, items: Ints) -> Tensor:
        labels, words = (part[items] for part in catalogue.means)
        return product(labels, self.label) + product(words, self.word)


class _Product(torch.autograd.Function):
    """A sparse matrix times a dense one: torch has no gradient for it."""

    @staticmethod
    def forward(ctx: Any, left: Any, right: Tensor) -> Tensor:
        ctx.left = left
        return sparse(left) @ right

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[None, Tensor]:
        return None, sparse(ctx.left.T.tocsr()) @ gradients[0]


def product(left: Any, right: Tensor) -> Tensor:
    """(N, M) @ (M, W), of a matrix of scipy's in CSR."""
    multiplied: Tensor = _Product.apply(left, right)  # type: ignore[no-untyped-call]
    return multiplied


def label_chances(item_logits: Tensor, candidates: ItemCandidates) -> Tensor:
    """(B, T, C): the probability that the next item carries each label, from (B, T, I)."""
    chances = (item_logits + candidates.item_weights).softmax(-1)
    carried = product(candidates.carried, chances.flatten(0, 1).T).T
    return carried.view(*chances.shape[:2], -1)


def sparse(rows: Any) -> Tensor:
    """A matrix of scipy's in CSR as a tensor."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="Sparse")
        return torch.sparse_csr_tensor(
            torch.from_numpy(rows.indptr.astype(np.int64)),
            torch.from_numpy(rows.indices.astype(np.int64)),
            torch.from_numpy(rows.data.astype(np.float32)),
            size=rows.shape,
        )


class Layer(nn.Module):
    """Attention and two linear maps, each behind a norm and beside the identity."""

    def __init__(self, width: int, heads: int, dropout: float) -> None:
        super().__init__()
        self.heads, self.rate = heads, dropout
        self.first, self.second = nn.LayerNorm(width), nn.LayerNorm(width)
        self.attend, self.mix = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.wide, self.narrow = nn.Linear(width, 3 * width), nn.Linear(3 * width, width)
        self.drop = nn.Dropout(dropout)

    def forward(
        self, x: Tensor, mask: Tensor, past: tuple[Tensor, Tensor] | None = None
    ) -> tuple[Tensor, tuple[Tensor, Tensor]]:
        """The positions (B, T, width) after this layer, and all keys and values: `past` and their own."""
        rows, length, width = x.shape
        parts = self.attend(self.first(x)).view(rows, length, 3, self.heads, width // self.heads)
        query, key, value = parts.permute(2, 0, 3, 1, 4)
        if past is not None:
            key, value = torch.cat([past[0], key], dim=2), torch.cat([past[1], value], dim=2)
        rate = self.rate if self.training else 0.0
        looked = scaled_dot_product_attention(query, key, value, attn_mask=mask, dropout_p=rate)
        x = x + self.drop(self.mix(looked.transpose(1, 2).reshape(rows, length, width)))
        x = x + self.drop(self.narrow(nn.functional.gelu(self.wide(self.second(x)))))
        return x, (key, value)
