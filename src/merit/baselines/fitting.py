"""One small training loop for the methods that have a loss of their own. It stops when the time is over.

The learning rate follows the part of the budget that is spent, so that a method that gets a minute and one that gets
an hour both end at the end of their schedule. (`merit.generator.training` counts steps, and cannot be told the time.)
"""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import lru_cache
from typing import Any

import torch
from pydantic import Field
from torch import Tensor

from merit.baselines.budget import Budget
from merit.core.config import Frozen
from merit.core.errors import TrainingError
from merit.core.seeds import flush_denormals, stream
from merit.core.types import Ints
from merit.generator.batches import epoch_batches

Loss = Callable[[Ints, int], Tensor]  # rows of training examples, epoch → what to lower


class FitConfig(Frozen):
    """AdamW and its schedule; `warmup` is a part of the way, by steps or by time, whichever is further."""

    steps: int = Field(20_000, ge=1)
    """At most; nearly always the time is over before."""
    batch_size: int = Field(64, ge=1)
    learning_rate: float = Field(2e-3, gt=0)
    warmup: float = Field(0.05, ge=0, lt=1)
    final_rate: float = Field(0.05, ge=0, le=1)
    """Where the cosine schedule ends, as a part of the learning rate."""
    weight_decay: float = Field(0.01, ge=0)
    clip: float = Field(1.0, gt=0)
    looks: int = Field(5, ge=1)
    """How often validation users are asked on the way. The weights they liked best are kept."""


def fit(
    model: Any,
    loss: Loss,
    lengths: Ints,
    config: FitConfig,
    seed: int,
    budget: Budget,
    evaluate: Callable[[], float],
) -> dict[str, float]:
    """Train in place; what to tell about it. `lengths` of the training examples: like ones go together."""
    optimizer = torch.optim.AdamW(
        [value for value in model.parameters() if value.requires_grad],
        lr=config.learning_rate,
        betas=(0.9, 0.98),
        weight_decay=config.weight_decay,
    )
    batch_of = _plan(lengths, config, seed)
    step, looked, way, best, kept = 0, 0, 0.0, -1.0, _copy(model)
    with flush_denormals(), torch.random.fork_rng(devices=[]):
        torch.manual_seed(int(stream(seed, "fit").integers(2**63)))
        while way < 1:
            for group in optimizer.param_groups:
                group["lr"] = learning_rate(way, config)
            _step(model, optimizer, loss(*batch_of(step)), config.clip)
            step += 1
            way = max(step / config.steps, budget.spent())
            if way >= 1 or way * config.looks >= looked + 1:
                looked, recall = int(way * config.looks), _asked(model, evaluate)
                if recall > best:
                    best, kept = recall, _copy(model)
    model.load_state_dict(kept)
    model.eval()
    return {
        "parameters": float(sum(value.numel() for value in model.parameters())),
        "train_seconds": budget.used(),
        "steps": float(step),
        "validation_recall": best,
    }


def learning_rate(way: float, config: FitConfig) -> float:
    """Linear warm-up, then half a cosine, over the part of the way that is gone."""
    if way < config.warmup:
        return config.learning_rate * max(way / config.warmup, 0.1)
    rest = (way - config.warmup) / (1 - config.warmup)
    low = config.final_rate
    return config.learning_rate * (low + (1 - low) * 0.5 * (1 + math.cos(math.pi * min(1.0, rest))))


def _plan(lengths: Ints, config: FitConfig, seed: int) -> Callable[[int], tuple[Ints, int]]:
    """Number of a step → its examples, and its epoch."""
    per_epoch = math.ceil(len(lengths) / config.batch_size)

    @lru_cache(1)
    def batches(epoch: int) -> list[Ints]:
        return epoch_batches(lengths, config.batch_size, epoch, seed)

    return lambda step: (batches(step // per_epoch)[step % per_epoch], step // per_epoch)


def _step(model: Any, optimizer: Any, loss: Tensor, clip: float) -> None:
    if not torch.isfinite(loss):
        raise TrainingError("The loss is not a number. Halve the learning rate of this method and run again.")
    optimizer.zero_grad(set_to_none=True)
    loss.backward()  # type: ignore[no-untyped-call]
    torch.nn.utils.clip_grad_norm_(model.parameters(), clip)
    optimizer.step()


def _asked(model: Any, evaluate: Callable[[], float]) -> float:
    model.eval()
    with torch.inference_mode():
        recall = evaluate()
    model.train()
    return recall


def _copy(model: Any) -> dict[str, Tensor]:
    return {name: value.detach().clone() for name, value in model.state_dict().items()}
