"""Training of the methods within their time, their clock, and the validation recall by which settings are chosen.

The learning rate follows the spent part of the time, so that a method that gets a minute and one that gets an hour both
end at the end of their schedule. (`merit.generator.training` counts steps instead.)
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from itertools import count
from typing import TypeVar

import numpy as np
import torch
from pydantic import Field
from torch import Tensor, nn

from merit.baselines.world import World, WorldExamples
from merit.core.ragged import head
from merit.core.seeds import torch_stream
from merit.core.types import Floats, Ints
from merit.evaluation.predictions import recall, top
from merit.generator.batches import passes
from merit.generator.kv_cache import evaluating
from merit.objective.descent import DescentConfig, backward, descend

CHOICE_BUDGET = 10  # labels: the middle one of the equal budgets
TREND_WEIGHTS = (0.0, 0.25, 0.5, 1.0)

T = TypeVar("T")
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

    def while_left(self, tries: Iterable[T]) -> Iterator[T]:
        """The tries that are begun before the time is over, and the first in any case."""
        for attempt in tries:
            yield attempt
            if self.spent() >= 1:
                return

    def with_prediction(self, summary: dict[str, float]) -> dict[str, float]:
        """The summary with `predict_seconds`: all that was used since `train_seconds`."""
        return summary | {"predict_seconds": self.used() - summary["train_seconds"]}


class TimedFitConfig(DescentConfig):
    """How a method is trained. Its schedule follows the steps or the time, whichever is further."""

    steps: int = Field(20_000, ge=1)
    """At most; nearly always the time is over before."""
    batch_size: int = Field(64, ge=1)
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
    optimizer = torch.optim.AdamW(
        trainable, lr=config.learning_rate, betas=(0.9, 0.98), weight_decay=config.weight_decay
    )
    plan = passes(np.arange(len(lengths)), lengths, config.batch_size, seed)
    looks, progress, best, weights = 0, 0.0, -1.0, _copy(model)

    def gradients(step: int) -> float:
        epoch, rows = plan(step)
        failure = "The loss is not a number. Halve the learning rate of this method and run again."
        return backward(loss(rows, epoch), failure)

    def rate(_: int) -> float:
        return learning_rate(progress, config)

    clip = partial(torch.nn.utils.clip_grad_norm_, trainable, config.clip)
    with torch_stream(seed, "fit"):
        for step, _ in descend(optimizer, count(), gradients, clip, rate):
            progress = max((step + 1) / config.steps, budget.spent())
            if progress >= 1 or progress * config.looks >= looks + 1:
                looks = int(progress * config.looks)
                with evaluating(model):
                    recall = validation_recall()
                if recall > best:
                    best, weights = recall, _copy(model)
            if progress >= 1:
                break
    model.load_state_dict(weights)
    model.eval()
    return {
        "parameters": float(sum(value.numel() for value in model.parameters())),
        "train_seconds": budget.used(),
        "steps": float(step + 1),
        "validation_recall": best,
    }


def learning_rate(progress: float, config: TimedFitConfig) -> float:
    """Linear warm-up, then half a cosine, over the progress of the training from 0 to 1."""
    if progress < config.warmup:
        return config.learning_rate * max(progress / config.warmup, 0.1)
    return config.rate_after_warmup(min(1.0, (progress - config.warmup) / (1 - config.warmup)))


def recall_of_scores(scores: Floats, world: World, budgets: tuple[int, ...] = (CHOICE_BUDGET,)) -> float:
    """Mean recall of the highest-scored labels over budgets. `scores` are those of the first validation users."""
    lists = top(scores, world.live, max(budgets))
    gold = world.validation.gold.gather(np.arange(len(scores)))
    return float(np.mean([recall(head(lists, budget), gold) for budget in budgets]))


def trending(scores: Floats, examples: WorldExamples, weight: float) -> Floats:
    """The scores of all labels, times how much more popular each was of late than usual, to the power of the weight."""
    if not weight or examples.trends is None:
        return scores
    trends = examples.trends.gather(np.arange(len(scores))).of(np.arange(scores.shape[1]))
    raised: Floats = scores * np.exp(weight * trends)
    return raised


def best_trend(scores: Floats, world: World, budgets: tuple[int, ...] = (CHOICE_BUDGET,)) -> tuple[float, float]:
    """The highest recall of `trending` scores of the first validation users, and its weight."""
    weights = TREND_WEIGHTS[: None if world.validation.trends else 1]
    recalls = [recall_of_scores(trending(scores, world.validation, weight), world, budgets) for weight in weights]
    best = int(np.argmax(recalls))
    return recalls[best], weights[best]


def _copy(model: nn.Module) -> dict[str, Tensor]:
    return {name: value.detach().clone() for name, value in model.state_dict().items()}
