"""Training of the propensity model: binary cross-entropy of gold labels against negatives, at natural prevalence."""

from __future__ import annotations

import numpy as np
import torch
from pydantic import Field
from torch import Tensor
from torch.nn.functional import binary_cross_entropy_with_logits

from merit import console, denormals
from merit.config import Frozen
from merit.errors import TrainingError
from merit.propensity.model import Propensity
from merit.propensity.negatives import Pairs, Sampler
from merit.propensity.states import States
from merit.seeds import stream
from merit.types import Floats, Ints


class FitConfig(Frozen):
    epochs: int = Field(6, ge=1)
    batch_size: int = Field(256, ge=1)
    learning_rate: float = Field(1e-3, gt=0)
    weight_decay: float = Field(0.01, ge=0)


def fit(
    model: Propensity, states: States, sampler: Sampler, vectors: Floats, config: FitConfig, seed: int
) -> list[float]:
    """Train in place; the mean loss of every epoch."""
    optimizer = torch.optim.AdamW(model.parameters(), lr=config.learning_rate, weight_decay=config.weight_decay)
    per_epoch = -(-len(states) // config.batch_size)
    schedule = torch.optim.lr_scheduler.OneCycleLR(
        optimizer, config.learning_rate, total_steps=config.epochs * per_epoch, pct_start=0.1
    )
    losses: list[float] = []
    model.train()
    with (
        denormals.flushed(),
        torch.random.fork_rng(devices=[]),
        console.steps("training the propensity model", config.epochs * per_epoch) as bar,
    ):
        torch.manual_seed(int(stream(seed, "propensity").integers(2**63)))
        for epoch in range(config.epochs):
            told = []
            order = stream(seed, "propensity-order", epoch).permutation(len(states))
            for at in range(0, len(order), config.batch_size):
                rows = np.sort(order[at : at + config.batch_size])
                rng = stream(seed, "negatives", epoch, at)
                loss = batch_loss(model, states, sampler, vectors, rows, rng)
                if not torch.isfinite(loss):
                    raise TrainingError(
                        f"The propensity model's loss is not a number in epoch {epoch + 1}. Halve fit.learning_rate."
                    )
                optimizer.zero_grad(set_to_none=True)
                loss.backward()  # type: ignore[no-untyped-call]
                torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
                optimizer.step()
                schedule.step()
                told.append(float(loss.detach()))
                bar(f"loss {told[-1]:.3f}")
            losses.append(float(np.mean(told)))
    model.eval()
    return losses


def batch_loss(
    model: Propensity,
    states: States,
    sampler: Sampler,
    vectors: Floats,
    rows: Ints,
    rng: np.random.Generator,
) -> Tensor:
    """The mean over pairs. A label's half is computed once, however many users meet it."""
    right, wrong = sampler.positives(rows), sampler.negatives(rows, rng)
    labels = np.concatenate([right.labels, wrong.labels], axis=1)
    known, place = np.unique(labels, return_inverse=True)  # -1, the padding, is the first of them if it is there
    halves = model.label_halves(model.labels(torch.from_numpy(vectors[known]), torch.from_numpy(known)))
    values, counts = states.take(rows)
    users = model.user_halves(model.users(torch.from_numpy(values), torch.from_numpy(counts)))
    scores = model.score(users[:, None], halves[torch.from_numpy(place.reshape(labels.shape))])
    return _cross_entropy(scores, right, wrong)


def _cross_entropy(scores: Tensor, right: Pairs, wrong: Pairs) -> Tensor:
    truth = torch.zeros_like(scores)
    truth[:, : right.labels.shape[1]] = 1
    there = torch.from_numpy(np.concatenate([right.labels, wrong.labels], axis=1) >= 0)
    rates = torch.from_numpy(np.concatenate([right.rates, wrong.rates], axis=1))
    each = binary_cross_entropy_with_logits(scores - rates.log(), truth, reduction="none")
    return each[there].mean()
