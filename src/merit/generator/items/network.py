"""A transformer over the items of a history, one position each, that writes labels behind them.

    history    one position an item: the labels and title words of the item, its age, its place; each sees all others
    list       BEGIN, then the labels already written; each sees the history and what stands before it

The state of BEGIN chooses the first label, that of a label the next. A state corrects the factor model:

    logit(c) = α · log P(c) + (W state) · q_c

where P(c) is the probability that the factor model gives to label c, and q_c are the factors of c. So every label has
an output, new ones too, and nothing of it grows with the number of labels but one vector for each that is read.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
from pydantic import Field
from torch import Tensor, nn
from torch.nn.functional import embedding, embedding_bag, scaled_dot_product_attention

from merit.core.config import Frozen
from merit.core.ragged import Ragged
from merit.generator.items.histories import AGES, Positions

Cache = list[tuple[Tensor, Tensor]]  # keys and values (B, heads, length, width of a head) of each layer


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


class ItemContents(NamedTuple):
    """By item: its labels, and the words of its title."""

    labels: Ragged
    words: Ragged


class ItemNetwork(nn.Module):
    """The network in torch."""

    def __init__(self, config: NetworkConfig, labels: int, words: int, factors: int) -> None:
        super().__init__()
        width = config.width
        self.label = nn.Parameter(0.05 * torch.randn(labels, width))
        self.word = nn.Parameter(0.02 * torch.randn(words, width))
        self.age = nn.Parameter(0.02 * torch.randn(AGES, width))
        self.place = nn.Parameter(0.02 * torch.randn(config.positions, width))
        self.step = nn.Parameter(0.02 * torch.randn(1 + config.written, width))  # BEGIN and the labels behind it
        self.layers = nn.ModuleList([Layer(width, config.heads, config.dropout) for _ in range(config.layers)])
        self.norm = nn.LayerNorm(width)
        self.correct = nn.Linear(width, factors)
        nn.init.normal_(self.correct.weight, std=0.3 * width**-0.5)
        nn.init.zeros_(self.correct.bias)
        self.trust = nn.Parameter(torch.ones(()))  # α

    def read(self, positions: Positions, catalogue: ItemContents) -> tuple[Cache, Tensor]:
        """Keys and values of the histories by layer, and which of them (B, 1, 1, L) may be looked at."""
        distinct, place = torch.unique(positions.items, return_inverse=True)
        vectors = _means(catalogue.labels, distinct, self.label) + _means(catalogue.words, distinct, self.word)
        x = embedding(place, vectors) + self.age[positions.ages] + self.place[: place.shape[1]]
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

    def logits(self, states: Tensor, prior: Tensor, factors: Tensor) -> Tensor:
        """(B, T, C), from states (B, T, width), log-odds of the factor model (B, C), and factors (C, R)."""
        corrected: Tensor = self.trust * prior[:, None] + self.correct(states) @ factors.T
        return corrected


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


def _means(lists: Ragged, rows: Tensor, table: Tensor) -> Tensor:
    """(rows, width): the means of the table's rows in these lists, twice as long; zero for -1 and for an empty list."""
    kept = rows.clamp(min=0).cpu().numpy()
    values, sizes = lists.take(kept)
    places = torch.from_numpy(values.astype("int64")).to(table.device)
    offsets = torch.from_numpy(sizes.cumsum() - sizes).to(table.device)
    return 2 * embedding_bag(places, table, offsets, mode="mean") * (rows >= 0)[:, None]
