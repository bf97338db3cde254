"""The loop stops when the time is over, at the end of its schedule, with the weights validation users liked best."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from merit.baselines import fitting
from merit.baselines.fitting import TimeBudget, TimedFitConfig, fit, learning_rate
from merit.core.errors import TrainingError
from merit.core.ragged import Ragged
from merit.core.types import Ints
from merit.evaluation.predictions import recall
from tests.baselines.small import ticking

LENGTHS = np.arange(10)


def grown(
    recalls: Iterator[float], config: TimedFitConfig, monkeypatch: pytest.MonkeyPatch
) -> tuple[nn.Linear, dict[str, float]]:
    """A model whose only weight grows with every step."""
    monkeypatch.setattr(fitting, "clock", ticking())
    model = nn.Linear(1, 1, bias=False)
    nn.init.zeros_(model.weight)
    summary = fit(
        model, lambda rows, epoch: -model.weight.sum(), LENGTHS, config, 7, TimeBudget(20), lambda: next(recalls)
    )
    return model, summary


def test_it_stops_when_the_time_is_over(monkeypatch: pytest.MonkeyPatch) -> None:
    _, summary = grown(iter(np.arange(9.0)), TimedFitConfig(), monkeypatch)
    assert summary["steps"] == 20
    assert summary["validation_recall"] == 4  # five looks, each better than the last


def test_the_best_weights_are_put_back(monkeypatch: pytest.MonkeyPatch) -> None:
    early, _ = grown(iter([0.9, 0.1, 0.1, 0.1, 0.1]), TimedFitConfig(), monkeypatch)
    late, summary = grown(iter([0.1, 0.1, 0.1, 0.1, 0.9]), TimedFitConfig(), monkeypatch)
    assert 0 < early.weight.item() < late.weight.item()
    assert summary["validation_recall"] == 0.9


def test_steps_may_be_over_before_the_time(monkeypatch: pytest.MonkeyPatch) -> None:
    assert grown(iter(np.arange(9.0)), TimedFitConfig(steps=3), monkeypatch)[1]["steps"] == 3


def test_the_rate_rises_and_falls_with_the_time() -> None:
    config = TimedFitConfig(learning_rate=1.0, warmup=0.1, final_rate=0.05)
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

    fit(model, loss, LENGTHS, TimedFitConfig(steps=8, batch_size=3), 7, TimeBudget(1e9), lambda: 0.0)
    assert sorted(seen) == [(epoch, row) for epoch in range(2) for row in range(10)]


def test_a_loss_that_is_no_number_is_summary() -> None:
    model = nn.Linear(1, 1)
    with pytest.raises(TrainingError, match="Halve the learning rate"):
        fit(model, lambda *_: torch.tensor(torch.nan), LENGTHS, TimedFitConfig(), 7, TimeBudget(1), lambda: 0.0)


def test_recall_counts_golds_row_by_row() -> None:
    lists, gold = Ragged.of([[1, 2], [3], []]), Ragged.of([[2, 3], [3], [1]])
    assert recall(lists, gold) == pytest.approx(2 / 4)
