"""Training of the propensity model: binary cross-entropy of gold labels against negatives, at natural prevalence."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import torch
from pydantic import Field
from torch import Tensor
from torch.nn.functional import binary_cross_entropy_with_logits, embedding, embedding_bag

from merit.core import console
from merit.core.config import Frozen
from merit.core.errors import TrainingError
from merit.core.seeds import flush_denormals, stream
from merit.core.types import Floats, Ints
from merit.propensity.features import Inputs, UserFeatures
from merit.propensity.negatives import Pairs, Sampler
from merit.propensity.states_model import Propensity

FASTER = 20


class PropensityFitConfig(Frozen):
    """How the rest of the model is trained, once the product stands."""

    epochs: int = Field(1, ge=1)
    batch_size: int = Field(64, ge=1)
    learning_rate: float = Field(1e-3, gt=0)
    weight_decay: float = Field(0.01, ge=0)


def fit(
    model: Propensity, known: UserFeatures, sampler: Sampler, vectors: Floats, config: PropensityFitConfig, seed: int
) -> list[float]:
    """Train in place; the mean loss of every epoch."""
    groups = _groups(model, config)
    optimizer = torch.optim.AdamW(groups)
    per_epoch = -(-len(known) // config.batch_size)
    schedule = torch.optim.lr_scheduler.OneCycleLR(
        optimizer, [group["lr"] for group in groups], total_steps=config.epochs * per_epoch, pct_start=0.1
    )
    losses: list[float] = []
    _start_at_prevalence(model, sampler)
    model.train()
    with (
        flush_denormals(),
        torch.random.fork_rng(devices=[]),
        console.steps("training the propensity model", config.epochs * per_epoch) as bar,
    ):
        torch.manual_seed(int(stream(seed, "propensity").integers(2**63)))
        for epoch in range(config.epochs):
            told = []
            order = stream(seed, "propensity-order", epoch).permutation(len(known))
            for at in range(0, len(order), config.batch_size):
                rows = np.sort(order[at : at + config.batch_size])
                rng = stream(seed, "negatives", epoch, at)
                loss = batch_loss(model, known, sampler, vectors, rows, rng)
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


def _groups(model: Propensity, config: PropensityFitConfig) -> list[dict[str, Any]]:
    """The few numbers about repeats must travel far, and Adam moves every number by about the rate a step.

    What the product is made of stays as it was trained, against all labels.
    """
    few = [model.repeat, model.repeat_own]
    still = [model.own, model.says, model.word_says, model.of_text, model.lately]
    rest = [value for value in model.parameters() if not any(value is each for each in (*few, *still))]
    return [
        {"params": rest, "lr": config.learning_rate, "weight_decay": config.weight_decay},
        {"params": few, "lr": FASTER * config.learning_rate, "weight_decay": 0.0},
    ]


def _start_at_prevalence(model: Propensity, sampler: Sampler) -> None:
    """Without a product, every pair begins as likely as the average one: epochs would be spent on finding that out."""
    share = len(sampler.gold.values) / (len(sampler.gold) * len(sampler.live))
    with torch.no_grad():
        model.last.weight.mul_(0.1)
        if not model.factors:
            model.last.bias.fill_(math.log(share / (1 - share)))


def batch_loss(
    model: Propensity,
    known: UserFeatures,
    sampler: Sampler,
    vectors: Floats,
    rows: Ints,
    rng: np.random.Generator,
) -> Tensor:
    """The mean over pairs. A label's half is computed once, however many users meet it."""
    right, wrong = sampler.positives(rows), sampler.negatives(rows, rng)
    labels = np.concatenate([right.labels, wrong.labels], axis=1)
    met, place = np.unique(labels, return_inverse=True)  # -1, the padding, is the first of them if it is there
    table = model.labels(torch.from_numpy(vectors[met]), torch.from_numpy(met))
    which = torch.from_numpy(place.reshape(labels.shape))
    users = model.user_halves(user_vectors(model, known.take(rows), vectors))
    times, shares = map(torch.from_numpy, known.had(rows, labels, len(vectors)))
    scores = model.score(users[:, None], embedding(which, model.label_halves(table)))  # indexing trains slower
    scores = scores + model.repeats(times, shares, model.label_repeats(table)[which])
    if known.lately:
        scores = scores + model.trend(torch.from_numpy(known.lately.gather(rows).of(labels)))
    return _cross_entropy(scores, right, wrong)


def user_vectors(model: Propensity, known: Inputs, vectors: Floats) -> Tensor:
    """(B, width + factors). `vectors` are the text vectors of all labels; only those in these histories are read."""
    labels, place = np.unique(known.labels, return_inverse=True)
    table = model.labels(torch.from_numpy(vectors[labels]), torch.from_numpy(labels))
    histories = _sums(place, known.offsets, table, known.shares)
    return model.users(torch.from_numpy(known.states), torch.from_numpy(known.counts), histories, said(model, known))


def said(model: Propensity, known: Inputs) -> Tensor:
    """(B, factors - 1): what the labels of the histories say, and the words of their titles."""
    labels, place = np.unique(known.labels, return_inverse=True)
    found = _sums(place, known.offsets, model.sayings(torch.from_numpy(labels)), known.weights)
    if known.said is None or not len(model.word_says):
        return found
    return found + _sums(known.said.words, known.said.offsets, model.word_says, known.said.weights)


def _sums(place: Ints, offsets: Ints, table: Tensor, weights: Floats) -> Tensor:
    """(B, D): rows of the table, weighted and added up by user."""
    return embedding_bag(
        torch.from_numpy(place),
        table,
        torch.from_numpy(offsets),
        mode="sum",
        per_sample_weights=torch.from_numpy(weights),
        include_last_offset=True,
    )


def _cross_entropy(scores: Tensor, right: Pairs, wrong: Pairs) -> Tensor:
    truth = torch.zeros_like(scores)
    truth[:, : right.labels.shape[1]] = 1
    there = torch.from_numpy(np.concatenate([right.labels, wrong.labels], axis=1) >= 0)
    rates = torch.from_numpy(np.concatenate([right.rates, wrong.rates], axis=1))
    each = binary_cross_entropy_with_logits(scores - rates.log(), truth, reduction="none")
    return each[there].mean()
