"""The loop stops when the time is over, at the end of its schedule, with the weights validation users liked best."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from merit.baselines import budget
from merit.baselines.budget import Budget
from merit.baselines.fitting import FitConfig, fit, learning_rate
from merit.core.errors import TrainingError
from merit.core.types import Ints
from tests.baselines.small import ticking

LENGTHS = np.arange(10)


def grown(
    recalls: Iterator[float], config: FitConfig, monkeypatch: pytest.MonkeyPatch
) -> tuple[nn.Linear, dict[str, float]]:
    """A model whose only weight grows with every step."""
    monkeypatch.setattr(budget, "clock", ticking())
    model = nn.Linear(1, 1, bias=False)
    nn.init.zeros_(model.weight)
    told = fit(model, lambda rows, epoch: -model.weight.sum(), LENGTHS, config, 7, Budget(20), lambda: next(recalls))
    return model, told


def test_it_stops_when_the_time_is_over(monkeypatch: pytest.MonkeyPatch) -> None:
    _, told = grown(iter(np.arange(9.0)), FitConfig(), monkeypatch)
    assert told["steps"] == 20
    assert told["validation_recall"] == 4  # five looks, each better than the last


def test_the_best_weights_are_put_back(monkeypatch: pytest.MonkeyPatch) -> None:
    early, _ = grown(iter([0.9, 0.1, 0.1, 0.1, 0.1]), FitConfig(), monkeypatch)
    late, told = grown(iter([0.1, 0.1, 0.1, 0.1, 0.9]), FitConfig(), monkeypatch)
    assert 0 < early.weight.item() < late.weight.item()
    assert told["validation_recall"] == 0.9


def test_steps_may_be_over_before_the_time(monkeypatch: pytest.MonkeyPatch) -> None:
    assert grown(iter(np.arange(9.0)), FitConfig(steps=3), monkeypatch)[1]["steps"] == 3


def test_the_rate_rises_and_falls_with_the_time() -> None:
    config = FitConfig(learning_rate=1.0, warmup=0.1, final_rate=0.05)
    assert learning_rate(0.05, config) == pytest.approx(0.5)
    assert learning_rate(0.1, config) == pytest.approx(1.0)
    assert learning_rate(0.55, config) == pytest.approx(0.525)
    assert learning_rate(1.0, config) == learning_rate(3.0, config) == pytest.approx(0.05)


def test_every_example_comes_once_an_epoch() -> None:
    seen: list[tuple[int, int]] = []
    model = nn.Linear(1, 1)

    def loss(rows: Ints, epoch: int) -> Tensor:
        seen.extend((epoch, int(row)) for row in rows)
        return model.weight.sum()

    fit(model, loss, LENGTHS, FitConfig(steps=8, batch_size=3), 7, Budget(1e9), lambda: 0.0)
    assert sorted(seen) == [(epoch, row) for epoch in range(2) for row in range(10)]


def test_a_loss_that_is_no_number_is_told() -> None:
    model = nn.Linear(1, 1)
    with pytest.raises(TrainingError, match="Halve the learning rate"):
        fit(model, lambda *_: torch.tensor(torch.nan), LENGTHS, FitConfig(), 7, Budget(1), lambda: 0.0)
