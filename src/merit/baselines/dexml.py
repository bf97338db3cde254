"""DEXML (Gupta et al., ICLR 2024): the backbone as a dual encoder. The cosine of a user and a label is the score.

The last state of the prompt is the user's vector, that of the label's tokens (before the same closing token) the
label's. Every label is a negative of every user in every step, where they fit; otherwise the gold labels of the batch
and as many others as fit, drawn anew each step. Of the two losses

    DecoupledSoftmax   −(1/|P|) Σ_{j∈P} log[ e^{s_j} / (e^{s_j} + Σ_{k∉P} e^{s_k}) ]
    SoftTop-k          −(1/|P|) Σ_{j∈P} log σ(α(s_j + t)),   t such that Σ_j σ(α(s_j + t)) = k

the first does not let the positives of a user compete with each other; in the second all labels share k places.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
import torch
from pydantic import Field
from torch import Tensor
from torch.nn.functional import logsigmoid, normalize, softplus

from merit.baselines.fitting import TimeBudget, TimedFitConfig, fit, recall_of_scores
from merit.baselines.generative import CHECKED, untrained_backbone
from merit.baselines.world import Answer, Text, World, answer_of
from merit.core.config import Frozen
from merit.core.ragged import Ragged, indicators
from merit.core.seeds import stream
from merit.core.types import Floats, Ints
from merit.generator import backbone

TEMPERATURE = 0.05
SHOWN = 100  # labels ranked: the paper reports the first 5 and the first 100
CHUNK = 512  # texts encoded together, of similar length
ALPHA = 2.0
STEPS = 32  # of the bisection: scores lie within 40 of each other, so t is right to 1e-8

Loss = Callable[[Tensor, Tensor], Tensor]  # scores (B, C), positive (B, C) → (B,)
Probabilities = Callable[[Tensor], Tensor]  # scores (B, C) → how much each label belongs to the user


class DexmlConfig(Frozen):
    """Of both losses; `places` counts for SoftTop-k only."""

    max_labels: int = Field(4096, ge=2)
    """Labels encoded in a step."""
    places: int = Field(5, ge=1)
    """k of SoftTop-k."""
    fit: TimedFitConfig = TimedFitConfig(batch_size=128, learning_rate=1e-3)
    """A large batch: the labels are encoded once a step, however many users they are compared with."""


def dexml_ds(world: World, seed: int, config: DexmlConfig | None = None) -> Answer:
    """With DecoupledSoftmax. For ranking users, scores are a softmax over labels."""
    return _dexml(world, seed, config or DexmlConfig(), decoupled_softmax, lambda scores: scores.softmax(1))


def dexml_stk(world: World, seed: int, config: DexmlConfig | None = None) -> Answer:
    """With SoftTop-k. For ranking users, scores are the parts of the k places."""
    config = config or DexmlConfig()
    loss = partial(soft_top_k_loss, k=config.places)
    return _dexml(world, seed, config, loss, lambda scores: log_soft_top_k(scores, config.places).exp())


def _dexml(world: World, seed: int, config: DexmlConfig, loss: Loss, probabilities: Probabilities) -> Answer:
    budget = TimeBudget(world.seconds)
    text, live = world.text, world.live
    model, label_texts = untrained_backbone(text, seed), _label_texts(text)
    few = np.arange(min(CHECKED, len(text.validation)))

    def batch_loss(rows: Ints, epoch: int) -> Tensor:
        gold = world.train.gold.gather(rows)
        labels = choose_labels(gold, live, config.max_labels, stream(seed, "negatives", epoch, int(rows[0])))
        scores = _vectors(model, text.train.gather(rows)) @ _vectors(model, label_texts.gather(labels)).T
        positive = torch.from_numpy(indicators(gold, len(world.labels))[:, labels].toarray() > 0)
        return loss(scores / TEMPERATURE, positive).mean()

    def scores_of(prompts: Ragged) -> Floats:
        scores: Floats = np.zeros((len(prompts), len(label_texts)), np.float32)
        with torch.inference_mode():
            cosines = _vectors(model, prompts) @ _vectors(model, label_texts.gather(live)).T
            scores[:, live] = probabilities(cosines / TEMPERATURE).numpy()
        return scores

    def validation_recall() -> float:
        return recall_of_scores(scores_of(text.validation.gather(few)), world)

    summary = fit(model, batch_loss, text.train.lengths(), config.fit, seed, budget, validation_recall)
    return answer_of(scores_of(text.test), world, budget.with_prediction(summary), SHOWN)


def choose_labels(gold: Ragged, live: Ints, most: int, rng: np.random.Generator) -> Ints:
    """The labels of a step, ascending: all live ones where they fit, else the gold ones and a draw of the others."""
    if len(live) <= most:
        return live
    golds = np.unique(gold.values).astype(np.int64)
    others = np.setdiff1d(live, golds)
    return np.sort(np.concatenate([golds, rng.choice(others, max(1, most - len(golds)), replace=False)]))


def _label_texts(text: Text) -> Ragged:
    """By label: its tokens, closed like a prompt."""
    paths, closing = text.shop.paths, text.shop.vocabulary.controls.answer
    return Ragged.of([[*paths.path(label), closing] for label in range(len(paths.offsets) - 1)])


def _vectors(model: Any, texts: Ragged) -> Tensor:
    """(texts, width), each of length one: the state of the last token."""
    order = np.argsort(texts.lengths(), kind="stable")
    chunks = [texts.gather(order[start : start + CHUNK]) for start in range(0, len(order), CHUNK)]
    states = torch.cat([_last_states(model, chunk) for chunk in chunks])
    return normalize(states[torch.from_numpy(np.argsort(order))], dim=1)


def _last_states(model: Any, texts: Ragged) -> Tensor:
    """Padded on the right: causal attention never looks there."""
    last = torch.from_numpy(texts.lengths() - 1)
    return backbone.states(model, torch.from_numpy(texts.padded(0)))[torch.arange(len(texts)), last]


def decoupled_softmax(scores: Tensor, positive: Tensor) -> Tensor:
    """The loss of each row. scores (B, C), positive (B, C) of which every row has one or more."""
    against = scores.masked_fill(positive, -torch.inf).logsumexp(1, keepdim=True)  # (B, 1)
    return _mean(softplus(against - scores), positive)  # −log[e^s / (e^s + e^a)] = log(1 + e^{a − s})


def soft_top_k_loss(scores: Tensor, positive: Tensor, k: float, alpha: float = ALPHA, steps: int = STEPS) -> Tensor:
    """The loss of each row."""
    return -_mean(log_soft_top_k(scores, k, alpha, steps), positive)


def log_soft_top_k(scores: Tensor, k: float, alpha: float = ALPHA, steps: int = STEPS) -> Tensor:
    """(B, C): the logarithm of how much each label is among the k first. Every row of its exponential sums to k."""
    logs: Tensor = _LogSoftTopK.apply(scores, min(k, scores.shape[1] - 0.5), alpha, steps)  # type: ignore[no-untyped-call]
    return logs


class _LogSoftTopK(torch.autograd.Function):
    """The search for t is not differentiated: t follows from Σ σ = k, hence dt = −Σ v ds / Σ v with v = ασ(1 − σ)."""

    @staticmethod
    def forward(ctx: Any, scores: Tensor, k: float, alpha: float, steps: int) -> Tensor:
        shifted = alpha * (scores + _threshold(scores, k, alpha, steps))
        ctx.save_for_backward(shifted)
        ctx.alpha = alpha
        return logsigmoid(shifted)

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> Any:
        (shifted,) = ctx.saved_tensors
        rest = (-shifted).sigmoid()  # 1 − σ, without the loss of digits
        direct = gradient * ctx.alpha * rest
        slope = ctx.alpha * shifted.sigmoid() * rest
        return direct - slope * direct.sum(1, keepdim=True) / slope.sum(1, keepdim=True), None, None, None


def _threshold(scores: Tensor, k: float, alpha: float, steps: int) -> Tensor:
    """(B, 1): t by bisection. Were all scores the highest one, t would be the lower end; the lowest one, the upper."""
    level = math.log(k / (scores.shape[1] - k)) / alpha
    low = level - scores.amax(1, keepdim=True)
    high = level - scores.amin(1, keepdim=True)
    for _ in range(steps):
        middle = (low + high) / 2
        enough = (alpha * (scores + middle)).sigmoid().sum(1, keepdim=True) >= k
        low, high = torch.where(enough, low, middle), torch.where(enough, middle, high)
    return (low + high) / 2


def _mean(values: Tensor, positive: Tensor) -> Tensor:
    return values.masked_fill(~positive, 0).sum(1) / positive.sum(1)
