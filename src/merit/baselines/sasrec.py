"""A next-label transformer in the manner of SASRec (Kang & McAuley 2018): self-attention over the sequence of events.

An event is the mean of its item's label embeddings. At every position the labels of the next event are right, and at
the last one the gold labels. The published loss draws one negative; with a
few thousand labels the whole softmax is affordable and better, and all labels are ranked, never a sample.
"""

from __future__ import annotations

import numpy as np
import torch
from pydantic import Field
from torch import Tensor, nn

from merit.baselines.fitting import TimeBudget, TimedFitConfig, fit, recall_of_scores
from merit.baselines.world import Answer, World, answer_of
from merit.core.config import Frozen
from merit.core.ragged import Ragged, offsets_of, owners, ranks, stacked
from merit.core.seeds import torch_stream
from merit.core.types import Floats, Ints
from merit.data.labelled import LabelledExamples
from merit.objective.losses import linear_set_loss

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


class Sasrec(nn.Module):
    """States of a sequence of events, scored against the embeddings by which labels enter."""

    def __init__(self, n_labels: int, config: SasrecConfig) -> None:
        super().__init__()
        self.labels = nn.Embedding(n_labels, config.width)
        nn.init.normal_(self.labels.weight, std=config.width**-0.5)
        self.place = nn.Parameter(0.02 * torch.randn(config.events, config.width))
        self.dropout = nn.Dropout(config.dropout)
        block = nn.TransformerEncoderLayer(
            config.width, config.heads, config.width, config.dropout, batch_first=True, norm_first=True
        )
        self.blocks = nn.TransformerEncoder(
            block, config.blocks, norm=nn.LayerNorm(config.width), enable_nested_tensor=False
        )

    def forward(self, labels: Tensor, starts: Tensor, rows: Tensor, shape: tuple[int, int]) -> Tensor:
        """(B, L, width). Event i is the bag labels[starts[i] : starts[i + 1]] at the place rows[i] of (B · L,)."""
        means = nn.functional.embedding_bag(labels, self.labels.weight, starts, mode="mean")
        entered = means.new_zeros(shape[0] * shape[1], means.shape[1]).index_copy(0, rows, means)
        hidden = entered.view(*shape, -1) * means.shape[1] ** 0.5 + self.place[: shape[1]]
        causal = nn.Transformer.generate_square_subsequent_mask(shape[1], device=hidden.device)
        states: Tensor = self.blocks(self.dropout(hidden), mask=causal, is_causal=True)
        return states


def sasrec(world: World, seed: int, config: SasrecConfig | None = None) -> Answer:
    """Scores are the probabilities of the last position."""
    config = config or SasrecConfig()
    budget = TimeBudget(world.seconds)
    bags, gold = world.text.shop.item_labels, world.train.gold
    with torch_stream(seed, "sasrec"):
        model = Sasrec(len(world.labels), config)
    train, validation, test = (_newest(part, config.events) for part in (world.train, world.validation, world.test))
    checked = validation.gather(np.arange(min(CHECKED, len(validation))))

    def loss(rows: Ints, epoch: int) -> Tensor:
        return _loss(model, train.gather(rows), gold.gather(rows), bags)

    def validate() -> float:
        return recall_of_scores(_probabilities(model, checked, bags), world)

    summary = fit(model, loss, train.lengths(), config.fit, seed, budget, validate)
    return answer_of(_probabilities(model, test, bags), world, budget.with_prediction(summary))


def _newest(examples: LabelledExamples, most: int) -> Ragged:
    """The newest items of each history, newest last. A history without items is one event without labels: item -1."""
    rows = [examples.items[row][-most:] for row in range(len(examples))]
    return Ragged.of([row.tolist() or [-1] for row in rows])


def _loss(model: Sasrec, items: Ragged, gold: Ragged, bags: Ragged) -> Tensor:
    """The mean over an example's next events, plus that of its gold labels."""
    rows, valid, weights = targets(items, gold, bags)
    states = _states(model, items, bags).flatten(0, 1)[torch.from_numpy(rows)]
    valid_ids = torch.from_numpy(valid.padded())
    return linear_set_loss(states, model.labels.weight, valid_ids, torch.from_numpy(weights), beta=0.0)[0]


def targets(items: Ragged, gold: Ragged, bags: Ragged) -> tuple[Ints, Ragged, Floats]:
    """Positions of (B · L,), the labels that are right at each, and the weight of each.

    First every event but the last of its row, where the next event has labels; then the last of every row.
    """
    line, place, width = owners(items), ranks(items), int(items.lengths().max())
    following = np.flatnonzero(place > 0)
    following = following[bags.lengths()[items.values[following]] > 0]
    counts = np.bincount(line[following], minlength=len(items))
    rows = np.concatenate([(line * width + place)[following] - 1, np.arange(len(items)) * width + items.lengths() - 1])
    weights = np.concatenate([1 / counts[line[following]], np.ones(len(items))]) / len(items)
    return rows, stacked([bags.gather(items.values[following]), gold]), weights.astype(np.float32)


def _states(model: Sasrec, items: Ragged, bags: Ragged) -> Tensor:
    """(B, L, width), padded on the right: causal attention never looks there."""
    shape = (len(items), int(items.lengths().max()))
    real = items.values >= 0
    places = (owners(items) * shape[1] + ranks(items))[real]
    labels, counts = bags.take(items.values[real].astype(np.int64))
    arrays = (labels.astype(np.int64), offsets_of(counts)[:-1], places)
    states: Tensor = model(*map(torch.from_numpy, arrays), shape)
    return states


def _probabilities(model: Sasrec, items: Ragged, bags: Ragged) -> Floats:
    """(examples, labels)"""
    model.eval()
    blocks = []
    with torch.inference_mode():
        for start in range(0, len(items), BLOCK):
            part = items.gather(np.arange(start, min(start + BLOCK, len(items))))
            last = torch.from_numpy(part.lengths() - 1)
            hidden = _states(model, part, bags)[torch.arange(len(part)), last]
            blocks.append((hidden @ model.labels.weight.T).softmax(1).numpy())
    return np.concatenate(blocks)
