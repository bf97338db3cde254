"""The training loop that all models share: AdamW, one step after the other.

    for step, loss in descend(optimizer, range(steps), gradients, clip, rate):
        ...                                             # a schedule, an evaluation, a checkpoint; `break` ends it

What differs between models is in its arguments: `gradients` computes those of a step, in one batch or several, on one
device or many.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator
from typing import TypeVar

import torch
from pydantic import Field
from torch import Tensor

from merit.core.config import Frozen
from merit.core.errors import TrainingError

Metrics = TypeVar("Metrics")


class DescentConfig(Frozen):
    """Linear warm-up, then half a cosine down to the final rate."""

    learning_rate: float = Field(2e-3, gt=0)
    warmup: float = Field(0.05, ge=0, le=1)
    """A part of the training."""
    final_rate: float = Field(0.05, ge=0, le=1)
    """Where the cosine schedule ends, as a part of the learning rate."""
    weight_decay: float = Field(0.01, ge=0)
    clip: float = Field(1.0, gt=0)

    def rate_after_warmup(self, progress: float) -> float:
        """The learning rate at this part, 0 to 1, of the training after warm-up."""
        low = self.final_rate
        return self.learning_rate * (low + (1 - low) * 0.5 * (1 + math.cos(math.pi * progress)))


def descend(
    optimizer: torch.optim.Optimizer,
    steps: Iterable[int],
    gradients: Callable[[int], Metrics],
    clip: Callable[[], object],
    rate: Callable[[int], float] | None = None,
) -> Iterator[tuple[int, Metrics]]:
    """Every step after it is done, with what `gradients` returned for it.

    Numbers too small to be normal count as zero: Adam's moments of rare tokens decay into them, and a CPU computes with
    them a hundred times slower. The setting is that of the whole process, so it is switched off again.
    """
    torch.set_flush_denormal(True)
    try:
        for step in steps:
            if rate:
                for group in optimizer.param_groups:
                    group["lr"] = rate(step)
            optimizer.zero_grad(set_to_none=True)
            metrics = gradients(step)
            clip()
            optimizer.step()
            yield step, metrics
    finally:
        torch.set_flush_denormal(False)


def backward(loss: Tensor, failure: str) -> float:
    """The loss, after its gradients are computed; one that is not a number is refused with this message."""
    value = float(loss.detach())
    if not math.isfinite(value):
        raise TrainingError(failure)
    loss.backward()  # type: ignore[no-untyped-call]
    return value
