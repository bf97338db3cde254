"""The product beside the MLP, trained before the rest: a linear model of the history's labels, against all labels.

A pair costs a few dozen multiplications here, and thousands in the MLP. So a batch of users meets every live label, or
in a large space some thousands of them that they share, and a few epochs are enough.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from pydantic import Field
from torch import Tensor
from torch.nn.functional import softplus

from merit.core import console
from merit.core.config import Frozen
from merit.core.errors import TrainingError
from merit.core.ragged import Ragged, offsets_of
from merit.core.seeds import flush_denormals, stream
from merit.core.types import Floats, Ints
from merit.propensity import ridge
from merit.propensity.features import UserFeatures
from merit.propensity.ridge import RidgeConfig
from merit.propensity.states_model import Propensity
from merit.propensity.training import FASTER, said

STEPS = 50


class FactorsConfig(Frozen):
    """How the product is trained, before all else of the model."""

    epochs: int = Field(4, ge=1)
    batch_size: int = Field(256, ge=1)
    """At most: an epoch has 50 steps where there are users for it."""
    learning_rate: float = Field(3e-3, gt=0)
    weight_decay: float = Field(1.0, ge=0)
    """Of the shortest training, which has 50 steps an epoch; the steps of a longer one decay by so much less each that
    all of them pull as hard together."""
    dropout: float = Field(0.3, ge=0, lt=1)
    """Of what histories say."""
    labels: int = Field(4_096, ge=1)
    """A batch meets so many labels; all live ones where there are no more."""
    dropped: float = Field(0.3, ge=0, lt=1)
    """So many labels of a batch have nothing of their own, so that texts learn to stand alone."""
    ridge: RidgeConfig = RidgeConfig()
    """Where the factors start."""


@dataclass(frozen=True)
class SampledLabels:
    """Labels that a batch meets, and how much each counts as a negative."""

    labels: Ints  # ascending
    weights: Floats


@dataclass(frozen=True)
class LabelSampler:
    """Draws labels: half of them by popularity, half evenly; each counts by how rarely it is drawn."""

    live: Ints
    chances: NDArray[np.float64]
    draws: int

    def draw(self, gold: NDArray[np.int32], rng: np.random.Generator) -> SampledLabels:
        """The gold labels are always there; as negatives they count only as far as they were drawn."""
        if self.draws >= len(self.live):
            return SampledLabels(self.live, np.ones(len(self.live), np.float32))
        found = rng.choice(len(self.live), self.draws, p=self.chances)
        counts = np.bincount(found, minlength=len(self.live))
        there = (counts > 0) | np.isin(self.live, gold)
        weights = counts[there] / (self.draws * self.chances[there])
        return SampledLabels(self.live[there], weights.astype(np.float32))


def fit_factors(
    model: Propensity, known: UserFeatures, gold: Ragged, live: Ints, vectors: Floats, config: FactorsConfig, seed: int
) -> list[float]:
    """Train what the product is made of, and the numbers about repeats, in place; the mean loss of every epoch."""
    if not model.factors:
        return []
    lots = _lots(gold, live, config)
    _start_at_popularity(model, gold)
    _start_at_the_ridge(model, known, gold, config.ridge, seed)
    few = [model.repeat, model.repeat_own, model.lately]
    rates = [config.learning_rate, FASTER * config.learning_rate]
    size = max(1, min(config.batch_size, len(known) // STEPS))
    total = config.epochs * -(-len(known) // size)
    optimizer = torch.optim.AdamW(
        [
            {"params": [model.own, model.says, model.word_says, model.of_text, model.last.bias], "lr": rates[0]},
            {"params": few, "lr": rates[1], "weight_decay": 0.0},
        ],
        weight_decay=config.weight_decay * min(1.0, config.epochs * STEPS / total),
    )
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, rates, total_steps=total, pct_start=0.1)
    losses = []
    with (
        flush_denormals(),
        torch.random.fork_rng(devices=[]),
        console.steps("training the factors", total) as bar,
    ):
        torch.manual_seed(int(stream(seed, "factors").integers(2**63)))
        for epoch in range(config.epochs):
            told = []
            order = stream(seed, "factors-order", epoch).permutation(len(known))
            for at in range(0, len(order), size):
                rows = np.sort(order[at : at + size])
                met = lots.draw(gold.take(rows)[0], stream(seed, "factors-labels", epoch, at))
                loss = factors_loss(model, known, gold, vectors, rows, met, config.dropped, config.dropout)
                if not torch.isfinite(loss):
                    raise TrainingError(
                        f"The loss of the factors is not a number in epoch {epoch + 1}. Halve factors.learning_rate."
                    )
                optimizer.zero_grad(set_to_none=True)
                loss.backward()  # type: ignore[no-untyped-call]
                optimizer.step()
                schedule.step()
                told.append(float(loss.detach()))
                bar(f"loss {told[-1]:.3f}")
            losses.append(float(np.mean(told)))
    return losses


def factors_loss(
    model: Propensity,
    known: UserFeatures,
    gold: Ragged,
    vectors: Floats,
    rows: Ints,
    met: SampledLabels,
    dropped: float = 0.0,
    dropout: float = 0.0,
) -> Tensor:
    """Binary cross-entropy of a user with all labels, the mean over users; labels not met are stood for by others."""
    inputs = known.take(rows)
    table = model.labels(torch.from_numpy(vectors[met.labels]), torch.from_numpy(met.labels), dropped)
    users = model.user_factors(torch.dropout(said(model, inputs), dropout, train=True))
    scores = users @ model.label_factors(table).T + model.last.bias
    spots, there = _spots(inputs.labels, inputs.offsets, met.labels)
    times, shares = (torch.from_numpy(each[there]) for each in (inputs.times, inputs.times / inputs.totals))
    again = model.repeats(times, shares, model.label_repeats(table)[spots % len(met.labels)])
    scores = scores.flatten().index_add(0, spots, again).view_as(scores)
    if inputs.lately:
        scores = scores + model.trend(torch.from_numpy(inputs.lately.of(met.labels)))
    own, sizes = gold.take(rows)
    right, _ = _spots(own.astype(np.int64), offsets_of(sizes), met.labels)
    wrong = torch.from_numpy(met.weights).repeat(len(rows))
    wrong[right] = 0
    flat = scores.flatten()
    return ((softplus(flat) * wrong).sum() + softplus(-flat[right]).sum()) / len(rows)


def _spots(labels: Ints, offsets: Ints, met: Ints) -> tuple[Tensor, NDArray[np.bool_]]:
    """Where in a grid of users and labels met these pairs stand, and which of them are in it."""
    owner = np.repeat(np.arange(len(offsets) - 1), np.diff(offsets))
    place = np.minimum(np.searchsorted(met, labels), len(met) - 1)
    there = met[place] == labels
    return torch.from_numpy((owner * len(met) + place)[there]), there


def _lots(gold: Ragged, live: Ints, config: FactorsConfig) -> LabelSampler:
    popularity = np.bincount(gold.values, minlength=int(live.max()) + 1)[live] ** 0.75
    even = np.full(len(live), 1 / len(live))
    return LabelSampler(live, 0.5 * popularity / max(popularity.sum(), 1e-9) + 0.5 * even, config.labels)


def _start_at_popularity(model: Propensity, gold: Ragged) -> None:
    """Every pair begins as likely as the average one; a label's last number is how far the label is from that."""
    often = np.log(np.maximum(np.bincount(gold.values, minlength=len(model.own)), 0.5) / len(gold))
    average = float(often[model.trained.numpy()].mean())
    with torch.no_grad():
        model.last.bias.fill_(average)
        model.own[:, -1] = torch.from_numpy(often - average).float()


def _start_at_the_ridge(model: Propensity, known: UserFeatures, gold: Ragged, config: RidgeConfig, seed: int) -> None:
    """What labels say and are, but for how popular they are, begins as a regression solved in closed form."""
    rank = model.says.shape[1]
    if not (config.weight and rank):
        return
    found = ridge.factors(known.history, known.times, gold, len(model.own), rank, config, seed)
    labels = torch.from_numpy(found.labels)
    with torch.no_grad():
        model.says[labels, : found.says.shape[1]] = torch.from_numpy(found.says)
        model.own[labels, : found.own.shape[1]] = torch.from_numpy(found.own)
