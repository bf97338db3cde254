"""Epochs of AdamW with one cycle of rates: how the factor model and the states model are trained."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import partial
from typing import Any

import numpy as np
import torch
from torch import Tensor

from merit.core import console
from merit.core.seeds import stream, torch_stream
from merit.core.types import Ints
from merit.objective.descent import backward, descend

FASTER = 20  # times the learning rate of the few weights about repeats: they travel far, and Adam steps by the rate


def train_epochs(
    name: str,
    groups: list[dict[str, Any]],
    loss_of: Callable[[Ints, int, int], Tensor],
    users: int,
    epochs: int,
    batch_size: int,
    seed: int,
    weight_decay: float = 0.01,
    clipped: Iterable[Tensor] = (),
) -> list[float]:
    """The mean loss of every epoch of AdamW with one cycle of rates: the loop of both models, states and factors.

    `loss_of` takes the users of a batch (ascending), the epoch and the batch's start. `name` names the random streams
    and what a message speaks of. Gradients of `clipped` are clipped to length one.
    """
    per_epoch, parameters = -(-users // batch_size), list(clipped)
    total = epochs * per_epoch
    optimizer = torch.optim.AdamW(groups, weight_decay=weight_decay)
    rates = [group["lr"] for group in groups]
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, rates, total_steps=total, pct_start=0.1)
    orders = [stream(seed, f"{name}-order", epoch).permutation(users) for epoch in range(epochs)]
    losses: list[float] = []

    def gradients(step: int) -> float:
        epoch, start = step // per_epoch, step % per_epoch * batch_size
        loss = loss_of(np.sort(orders[epoch][start : start + batch_size]), epoch, start)
        failure = f"The loss of {TITLES[name]} is not a number in epoch {epoch + 1}. Halve {SETTINGS[name]}."
        return backward(loss, failure)

    clip = partial(torch.nn.utils.clip_grad_norm_, parameters, 1.0)
    with torch_stream(seed, name), console.steps(f"training {TITLES[name]}", total) as bar:
        for _, loss in descend(optimizer, range(total), gradients, clip):
            schedule.step()
            losses.append(loss)
            bar(f"loss {loss:.3f}")
    return np.reshape(losses, (epochs, per_epoch)).mean(axis=1).tolist()  # type: ignore[no-any-return]


TITLES = {"factors": "the factor model", "propensity": "the propensity model"}
SETTINGS = {"factors": "propensity.factors.learning_rate", "propensity": "propensity.fit.learning_rate"}
