"""The one training loop of the methods, their clock, and the validation recall by which settings are chosen.

The learning rate follows the spent part of the time, so that a method that gets a minute and one that gets an hour both
end at the end of their schedule. (`merit.generator.training` counts steps instead.)
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from functools import lru_cache

import numpy as np
import torch
from pydantic import Field
from torch import Tensor, nn

from merit.baselines.world import World
from merit.core.config import Frozen
from merit.core.errors import TrainingError
from merit.core.ragged import Ragged, head, owners
from merit.core.seeds import flush_denormals, stream
from merit.core.types import Floats, Ints
from merit.evaluation.predictions import top
from merit.generator.batches import epoch_batches

CHOICE_BUDGET = 10  # labels: the middle one of the equal budgets

BatchLoss = Callable[[Ints, int], Tensor]  # rows of training examples, epoch → loss


def processor_seconds() -> float:
    """Processor seconds of this process, divided by the threads of torch; only differences mean something.

    It counts work, not waiting: on an idle machine it is wall time, on a busy one a method loses nothing to others.
    """
    return time.process_time() / torch.get_num_threads()


clock: Callable[[], float] = processor_seconds  # tests put another one in its place


class TimeBudget:
    """The seconds a method may train for, counted from the moment it is made."""

    def __init__(self, seconds: float) -> None:
        self.seconds = seconds
        self._start = clock()

    def used(self) -> float:
        """Seconds so far."""
        return clock() - self._start

    def spent(self) -> float:
        """The spent part of the budget; 1 or more when it is time to stop."""
        return self.used() / max(self.seconds, 1e-9)

    def with_prediction(self, summary: dict[str, float]) -> dict[str, float]:
        """The summary with `predict_seconds`: all that was used since `train_seconds`."""
        return summary | {"predict_seconds": self.used() - summary["train_seconds"]}


class TimedFitConfig(Frozen):
    """AdamW and its schedule; `warmup` is a part of the training, by steps or by time, whichever is further."""

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
    """How often validation recall is measured. The weights with the highest one are kept."""


def fit(
    model: nn.Module,
    loss: BatchLoss,
    lengths: Ints,
    config: TimedFitConfig,
    seed: int,
    budget: TimeBudget,
    validation_recall: Callable[[], float],
) -> dict[str, float]:
    """Summary of a training in place. `lengths` of the training examples: batches have examples of similar length."""
    trainable = [value for value in model.parameters() if value.requires_grad]
    rate, decay = config.learning_rate, config.weight_decay
    optimizer = torch.optim.AdamW(trainable, lr=rate, betas=(0.9, 0.98), weight_decay=decay)
    batch_of = _batches(lengths, config, seed)
    step, looks, progress, best, weights = 0, 0, 0.0, -1.0, _copy(model)
    with flush_denormals(), torch.random.fork_rng(devices=[]):
        torch.manual_seed(int(stream(seed, "fit").integers(2**63)))
        while progress < 1:
            for group in optimizer.param_groups:
                group["lr"] = learning_rate(progress, config)
            _step(model, optimizer, loss(*batch_of(step)), config.clip)
            step += 1
            progress = max(step / config.steps, budget.spent())
            if progress >= 1 or progress * config.looks >= looks + 1:
                looks, recall = int(progress * config.looks), _evaluated(model, validation_recall)
                if recall > best:
                    best, weights = recall, _copy(model)
    model.load_state_dict(weights)
    model.eval()
    return {
        "parameters": float(sum(value.numel() for value in model.parameters())),
        "train_seconds": budget.used(),
        "steps": float(step),
        "validation_recall": best,
    }


def learning_rate(progress: float, config: TimedFitConfig) -> float:
    """Linear warm-up, then half a cosine, over the progress of the training from 0 to 1."""
    if progress < config.warmup:
        return config.learning_rate * max(progress / config.warmup, 0.1)
    rest = (progress - config.warmup) / (1 - config.warmup)
    low = config.final_rate
    return config.learning_rate * (low + (1 - low) * 0.5 * (1 + math.cos(math.pi * min(1.0, rest))))


def recall(lists: Ragged, gold: Ragged) -> float:
    """The share of all gold labels that are in the lists, row by row."""
    width = int(max(lists.values.max(initial=0), gold.values.max(initial=0))) + 1
    hits = np.isin(owners(gold) * width + gold.values, owners(lists) * width + lists.values)
    return float(hits.sum() / max(1, len(hits)))


def recall_of_scores(scores: Floats, world: World, budgets: tuple[int, ...] = (CHOICE_BUDGET,)) -> float:
    """Mean recall of the highest-scored labels over budgets. `scores` are those of the first validation users."""
    lists = top(scores, world.live, max(budgets))
    gold = world.validation.gold.gather(np.arange(len(scores)))
    return float(np.mean([recall(head(lists, budget), gold) for budget in budgets]))


def _batches(lengths: Ints, config: TimedFitConfig, seed: int) -> Callable[[int], tuple[Ints, int]]:
    """Number of a step → its examples, and its epoch."""
    per_epoch = math.ceil(len(lengths) / config.batch_size)

    @lru_cache(1)
    def batches(epoch: int) -> list[Ints]:
        return epoch_batches(lengths, config.batch_size, epoch, seed)

    return lambda step: (batches(step // per_epoch)[step % per_epoch], step // per_epoch)


def _step(model: nn.Module, optimizer: torch.optim.Optimizer, loss: Tensor, clip: float) -> None:
    if not torch.isfinite(loss):
        raise TrainingError("The loss is not a number. Halve the learning rate of this method and run again.")
    optimizer.zero_grad(set_to_none=True)
    loss.backward()  # type: ignore[no-untyped-call]
    torch.nn.utils.clip_grad_norm_(model.parameters(), clip)
    optimizer.step()


def _evaluated(model: nn.Module, validation_recall: Callable[[], float]) -> float:
    model.eval()
    with torch.inference_mode():
        recall = validation_recall()
    model.train()
    return recall


def _copy(model: nn.Module) -> dict[str, Tensor]:
    return {name: value.detach().clone() for name, value in model.state_dict().items()}
