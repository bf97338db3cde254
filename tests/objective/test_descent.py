"""The training loop that all models share, step by step."""

from __future__ import annotations

import math

import pytest
import torch
from torch import Tensor, nn

from merit.core.errors import TrainingError
from merit.objective.descent import DescentConfig, backward, descend


def flushed() -> bool:
    """Whether a number too small to be normal counts as zero."""
    return bool((torch.tensor([1e-310], dtype=torch.float64) * 1.0 == 0).item())


def line() -> tuple[nn.Parameter, torch.optim.SGD]:
    """One weight, of which the loss is its double: every step at rate 1 takes 2 off it."""
    weight = nn.Parameter(torch.tensor(10.0))
    return weight, torch.optim.SGD([{"params": [weight], "lr": 1.0}, {"params": [nn.Parameter(torch.zeros(1))]}], lr=1)


@pytest.mark.parametrize(
    ("progress", "rate"), [(0.0, 1.0), (0.5, 0.6), (1.0, 0.2), (0.25, 0.2 + 0.8 * (0.5 + math.sqrt(0.125)))]
)
def test_after_warm_up_the_rate_falls_along_half_a_cosine(progress: float, rate: float) -> None:
    config = DescentConfig(learning_rate=3.0, final_rate=0.2)
    assert config.rate_after_warmup(progress) == pytest.approx(3 * rate)


def test_gradients_are_new_in_every_step_and_clipped_before_it() -> None:
    weight, optimizer = line()
    seen: list[tuple[str, float]] = []

    def gradients(step: int) -> str:
        assert weight.grad is None
        (2 * weight).backward()
        seen.append(("gradients", weight.item()))
        return f"of step {step}"

    def clip() -> None:
        assert weight.grad is not None
        weight.grad.clamp_(max=1.5)
        seen.append(("clip", weight.item()))

    found = [(step, metrics, weight.item()) for step, metrics in descend(optimizer, [4, 7], gradients, clip)]
    assert found == [(4, "of step 4", 8.5), (7, "of step 7", 7.0)]
    assert seen == [("gradients", 10.0), ("clip", 10.0), ("gradients", 8.5), ("clip", 8.5)]


def test_the_rate_of_a_step_is_that_of_every_group() -> None:
    weight, optimizer = line()

    def gradients(step: int) -> float:
        loss = 2 * weight
        loss.backward()
        return float(loss.detach())

    rates = []
    for _ in descend(optimizer, range(2), gradients, lambda: None, lambda step: 0.5 + step):
        rates.append([group["lr"] for group in optimizer.param_groups])
    assert rates == [[0.5, 0.5], [1.5, 1.5]]
    assert weight.item() == 10 - 2 * 0.5 - 2 * 1.5


@pytest.mark.parametrize("end", ["through", "left", "failed"])
def test_tiny_numbers_are_zero_while_it_trains_and_only_then(end: str) -> None:
    _, optimizer = line()
    inside: list[bool] = []

    def gradients(step: int) -> None:
        inside.append(flushed())
        if end == "failed":
            raise MemoryError

    steps = descend(optimizer, range(2), gradients, lambda: None)
    if end == "failed":
        with pytest.raises(MemoryError):
            next(steps)
    elif end == "left":
        next(steps)
        steps.close()  # type: ignore[attr-defined]  # what `break` does
    else:
        assert len(list(steps)) == 2
    assert all(inside) and not flushed()


def test_a_loss_gives_gradients_and_its_value() -> None:
    weight = nn.Parameter(torch.tensor(3.0))
    assert backward(weight**2, "no") == 9.0
    assert weight.grad is not None and weight.grad.item() == 6.0


@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf])
def test_a_loss_that_is_no_number_is_refused_before_it_spoils_anything(value: float) -> None:
    weight = nn.Parameter(torch.tensor(3.0))
    loss: Tensor = weight * value
    with pytest.raises(TrainingError, match=r"^Halve the rate\.$"):
        backward(loss, "Halve the rate.")
    assert weight.grad is None
