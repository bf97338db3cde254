"""Training of the propensity model: binary cross-entropy of gold labels against negatives, at natural prevalence."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import torch
from pydantic import Field
from torch import Tensor
from torch.nn.functional import binary_cross_entropy_with_logits, embedding

from merit.core.config import Frozen
from merit.core.seeds import stream
from merit.core.types import Floats, Ints
from merit.propensity.epochs import FASTER, train_epochs
from merit.propensity.factor_model import WEIGHTS, bag_sums, summed_factors
from merit.propensity.features import UserFeatures
from merit.propensity.negatives import NegativeSampler
from merit.propensity.states_model import Propensity


class PropensityFitConfig(Frozen):
    """How the rest of the model is trained, once the factor model is."""

    epochs: int = Field(1, ge=1)
    batch_size: int = Field(64, ge=1)
    learning_rate: float = Field(1e-3, gt=0)
    weight_decay: float = Field(0.01, ge=0)


def fit(
    model: Propensity,
    features: UserFeatures,
    sampler: NegativeSampler,
    vectors: Floats,
    config: PropensityFitConfig,
    seed: int,
) -> list[float]:
    """The mean loss of every epoch; the model is trained in place."""

    def loss(rows: Ints, epoch: int, start: int) -> Tensor:
        return batch_loss(model, features, sampler, vectors, rows, stream(seed, "negatives", epoch, start))

    _start_at_prevalence(model, sampler)
    model.train()
    groups = _groups(model, config)
    losses = train_epochs(
        "propensity", groups, loss, len(features), config.epochs, config.batch_size, seed, clipped=model.parameters()
    )
    model.eval()
    return losses


def _groups(model: Propensity, config: PropensityFitConfig) -> list[dict[str, Any]]:
    """All weights but those of the factor model, which stay as they were trained on all labels."""
    few = [model.repeat, model.repeat_bias]
    rest = [value for name, value in model.named_parameters() if name not in {*WEIGHTS, "likely_weight"}]
    return [
        {"params": rest, "lr": config.learning_rate, "weight_decay": config.weight_decay},
        {"params": few, "lr": FASTER * config.learning_rate, "weight_decay": 0.0},
    ]


def _start_at_prevalence(model: Propensity, sampler: NegativeSampler) -> None:
    """Without a factor model, every pair starts as likely as the average one: no epochs are spent on that."""
    share = len(sampler.gold.values) / (len(sampler.gold) * len(sampler.live))
    with torch.no_grad():
        model.last.weight.mul_(0.1)
        model.last.bias.fill_(0.0 if model.factors else math.log(share / (1 - share)))


def batch_loss(
    model: Propensity,
    features: UserFeatures,
    sampler: NegativeSampler,
    vectors: Floats,
    rows: Ints,
    rng: np.random.Generator,
) -> Tensor:
    """The mean over pairs. A label is projected once, however many users it is scored for."""
    batch, (gold, gold_rates) = features.gather(rows), sampler.positives(rows)
    wrong, wrong_rates = sampler.negatives(rows, rng)
    labels, rates = np.concatenate([gold, wrong], axis=1), np.concatenate([gold_rates, wrong_rates], axis=1)
    distinct, place = np.unique(labels, return_inverse=True)  # -1, the padding, is the first of them if it is there
    table = model.labels(torch.from_numpy(vectors[distinct]), torch.from_numpy(distinct))
    which = torch.from_numpy(place.reshape(labels.shape))
    users = model.user_projections(user_vectors(model, batch, vectors))
    times, shares = map(torch.from_numpy, features.history_counts(rows, labels, len(vectors)))
    projections = embedding(which, model.label_projections(table))  # indexing trains slower
    trends = torch.from_numpy(batch.trends.of(labels)) if batch.trends else None
    scores = model.score(users[:, None], projections, times, shares, model.label_repeats(table)[which], trends)
    truth = torch.zeros_like(scores)
    truth[:, : gold.shape[1]] = 1
    losses = binary_cross_entropy_with_logits(scores - torch.from_numpy(rates).log(), truth, reduction="none")
    return losses[torch.from_numpy(labels >= 0)].mean()


def user_vectors(model: Propensity, users: UserFeatures, vectors: Floats) -> Tensor:
    """(B, width + R). `vectors` are the text vectors of all labels; only those in these histories are read."""
    factors = summed_factors(model, users)
    if not model.reads_states:
        return model.user_factors(factors)
    labels, place = np.unique(users.history.values.astype(np.int64), return_inverse=True)
    table = model.labels(torch.from_numpy(vectors[labels]), torch.from_numpy(labels))
    histories = bag_sums(place, users.history.offsets, table, users.history_shares())
    states, counts = torch.from_numpy(users.states.values.astype(np.float32)), torch.tensor(users.states.counts)
    return model.users(states, counts, histories, factors)
