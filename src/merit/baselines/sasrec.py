"""A next-label transformer in the manner of SASRec (Kang & McAuley 2018): self-attention over the sequence of events.

An event is the mean of its item's label embeddings, plus that of its title words'. At every position the labels of the
next event are right, and at the last one the gold labels; there, one more weight says how much recent popularity adds.
The published loss draws one negative; with a few thousand labels the whole softmax is affordable and better, and all
labels are ranked, never a sample.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from pydantic import Field
from torch import Tensor, nn

from merit.baselines.fitting import TimeBudget, TimedFitConfig, fit, recall_of_scores
from merit.baselines.world import Answer, World, WorldExamples, answer_of
from merit.core.config import Frozen
from merit.core.ragged import Ragged, offsets_of, owners, ranks
from merit.core.seeds import torch_stream
from merit.core.types import Floats, Ints
from merit.data.trends import Trends
from merit.objective.losses import linear_set_loss, set_loss

CHECKED = 500  # validation users scored while training
BLOCK = 512  # users scored at a time


class SasrecConfig(Frozen):
    """The size of the transformer and its training; `width` must be a multiple of `heads`."""

    width: int = Field(50, ge=2)
    blocks: int = Field(2, ge=1)
    heads: int = Field(1, ge=1)
    dropout: float = Field(0.2, ge=0, lt=1)
    events: int = Field(50, ge=1)
    """The newest ones that are read."""
    fit: TimedFitConfig = TimedFitConfig(batch_size=128, learning_rate=1e-3)


@dataclass(frozen=True)
class _Sequences:
    """Examples as sequences of items, the newest last, and the weeks of their purchases."""

    items: Ragged
    trends: Trends | None

    @staticmethod
    def of(examples: WorldExamples, most: int) -> _Sequences:
        return _Sequences(examples.items.tail(most), examples.trends)

    def gather(self, rows: Ints) -> _Sequences:
        return _Sequences(self.items.gather(rows), self.trends and self.trends.gather(rows))


class Sasrec(nn.Module):
    """States of a sequence of events, scored against the embeddings by which labels enter."""

    def __init__(self, n_labels: int, n_words: int, config: SasrecConfig) -> None:
        super().__init__()
        self.labels = nn.Embedding(n_labels, config.width)
        nn.init.normal_(self.labels.weight, std=config.width**-0.5)
        self.words = nn.Embedding(n_words, config.width)
        nn.init.normal_(self.words.weight, std=config.width**-0.5)
        self.trend = nn.Parameter(torch.zeros(1))
        self.place = nn.Parameter(0.02 * torch.randn(config.events, config.width))
        self.dropout = nn.Dropout(config.dropout)
        block = nn.TransformerEncoderLayer(
            config.width, config.heads, config.width, config.dropout, batch_first=True, norm_first=True
        )
        self.blocks = nn.TransformerEncoder(
            block, config.blocks, norm=nn.LayerNorm(config.width), enable_nested_tensor=False
        )

    def forward(self, items: Ragged, labels: Ragged, words: Ragged) -> Tensor:
        """(B, L, width), padded on the right: causal attention never looks there. Labels and words are by item."""
        length = int(items.lengths().max())
        places = torch.from_numpy(owners(items) * length + ranks(items))
        events = _means(labels, items.values, self.labels) + _means(words, items.values, self.words)
        entered = events.new_zeros(len(items) * length, events.shape[1]).index_copy(0, places, events)
        hidden = entered.view(len(items), length, -1) * events.shape[1] ** 0.5 + self.place[:length]
        causal = nn.Transformer.generate_square_subsequent_mask(length, device=hidden.device)
        states: Tensor = self.blocks(self.dropout(hidden), mask=causal, is_causal=True)
        return states

    def logits(self, last: Tensor, trends: Trends | None) -> Tensor:
        """(B, labels), from the states of the last events."""
        logits = last @ self.labels.weight.T
        if trends is None:
            return logits
        return logits + self.trend * torch.from_numpy(trends.of(np.arange(logits.shape[1])))


def _means(bags: Ragged, items: NDArray[np.int32], table: nn.Embedding) -> Tensor:
    """(items, width): the mean of the embeddings in each item's bag."""
    values, counts = bags.take(items)
    arrays = (values.astype(np.int64), offsets_of(counts)[:-1])
    return nn.functional.embedding_bag(
        torch.from_numpy(arrays[0]), table.weight, torch.from_numpy(arrays[1]), mode="mean"
    )


def sasrec(world: World, seed: int, config: SasrecConfig | None = None) -> Answer:
    """Scores are the probabilities of the last position."""
    config = config or SasrecConfig()
    budget = TimeBudget(world.seconds)
    bags, gold = (world.item_labels, world.item_words), world.purchases.gold
    with torch_stream(seed, "sasrec"):
        model = Sasrec(len(world.labels), world.title_words, config)
    train, validation, test = (
        _Sequences.of(part, config.events) for part in (world.purchases, world.validation, world.test)
    )
    checked = validation.gather(np.arange(min(CHECKED, len(world.validation))))

    def loss(rows: Ints, epoch: int) -> Tensor:
        return _loss(model, train.gather(rows), gold.gather(rows), *bags)

    def validate() -> float:
        return recall_of_scores(_probabilities(model, checked, *bags), world)

    summary = fit(model, loss, train.items.lengths(), config.fit, seed, budget, validate)
    return answer_of(_probabilities(model, test, *bags), world, budget.with_prediction(summary))


def _loss(model: Sasrec, part: _Sequences, gold: Ragged, labels: Ragged, words: Ragged) -> Tensor:
    """The mean over an example's next events, plus that of its gold labels."""
    states = model(part.items, labels, words)
    rows, valid, weights = next_events(part.items, labels)
    hidden, numbers = states.flatten(0, 1)[torch.from_numpy(rows)], torch.from_numpy(valid.padded())
    following = linear_set_loss(hidden, model.labels.weight, numbers, torch.from_numpy(weights), beta=0.0)[0]
    last = set_loss(model.logits(_last(states, part.items), part.trends), torch.from_numpy(gold.padded()), beta=0.0)
    return following + last.mean()


def next_events(items: Ragged, labels: Ragged) -> tuple[Ints, Ragged, Floats]:
    """Positions of (B · L,) that another event with labels follows, these labels, and the weight of each position."""
    line, place, width = owners(items), ranks(items), int(items.lengths().max())
    following = np.flatnonzero(place > 0)
    following = following[labels.lengths()[items.values[following]] > 0]
    counts = np.bincount(line[following], minlength=len(items))
    weights = (1 / counts[line[following]] / len(items)).astype(np.float32)
    return (line * width + place)[following] - 1, labels.gather(items.values[following]), weights


def _last(states: Tensor, items: Ragged) -> Tensor:
    """(B, width): the state of every row's last event."""
    return states[torch.arange(len(items)), torch.from_numpy(items.lengths() - 1)]


def _probabilities(model: Sasrec, users: _Sequences, labels: Ragged, words: Ragged) -> Floats:
    """(examples, labels)"""
    model.eval()
    blocks = []
    with torch.inference_mode():
        for start in range(0, len(users.items), BLOCK):
            part = users.gather(np.arange(start, min(start + BLOCK, len(users.items))))
            last = _last(model(part.items, labels, words), part.items)
            blocks.append(model.logits(last, part.trends).softmax(1).numpy())
    return np.concatenate(blocks)
