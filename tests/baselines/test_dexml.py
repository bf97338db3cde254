"""DEXML's losses against numbers computed by hand, finite differences, and the slow obvious version."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from torch import Tensor

from merit.baselines.dexml import choose_labels, decoupled_softmax, log_soft_top_k, soft_top_k_loss
from merit.core.ragged import Ragged

SCORES = torch.tensor([[math.log(2.0), math.log(3.0), math.log(4.0), 0.0]], dtype=torch.float64)
POSITIVE = torch.tensor([[True, True, False, False]])


def random_scores(rows: int = 3, labels: int = 9) -> Tensor:
    return 4 * torch.randn(rows, labels, dtype=torch.float64, generator=torch.Generator().manual_seed(7))


def test_decoupled_softmax_by_hand() -> None:
    # e^s = 2, 3 | 4, 1: positives of weight 2 and 3 stand against 5 in all, and not against each other.
    by_hand = -(math.log(2 / 7) + math.log(3 / 8)) / 2
    assert decoupled_softmax(SCORES, POSITIVE).item() == pytest.approx(by_hand, rel=1e-12)


def test_a_user_who_wants_everything_costs_nothing() -> None:
    assert decoupled_softmax(SCORES, torch.ones_like(POSITIVE)).item() == 0


def test_decoupled_softmax_has_the_gradient_of_finite_differences() -> None:
    scores = random_scores().requires_grad_()
    positive = random_scores() > 2
    positive[:, 0], positive[:, 1] = True, False
    assert torch.autograd.gradcheck(lambda s: decoupled_softmax(s, positive), scores)


def test_soft_top_k_by_hand() -> None:
    # α = 1, k = 2, scores 1 and -1 twice: by symmetry t = 0, so the parts are σ(1) and σ(-1).
    scores = torch.tensor([[1.0, -1.0, 1.0, -1.0]], dtype=torch.float64)
    parts = log_soft_top_k(scores, k=2, alpha=1.0).exp()
    high, low = 1 / (1 + math.exp(-1)), 1 / (1 + math.exp(1))
    assert parts[0].tolist() == pytest.approx([high, low, high, low], abs=1e-9)
    loss = soft_top_k_loss(scores, torch.tensor([[True, True, False, False]]), k=2, alpha=1.0)
    assert loss.item() == pytest.approx(-(math.log(high) + math.log(low)) / 2, abs=1e-9)


def test_the_parts_sum_to_k_and_keep_the_order() -> None:
    scores = random_scores(50, 200).float()
    parts = log_soft_top_k(scores, k=5).exp()
    assert torch.allclose(parts.sum(1), torch.full((50,), 5.0), atol=1e-3)
    assert torch.equal(parts.argsort(1), scores.argsort(1))


def test_adding_a_constant_changes_nothing() -> None:
    scores = random_scores()
    assert torch.allclose(log_soft_top_k(scores, 2), log_soft_top_k(scores + 10, 2), atol=1e-6)


def test_soft_top_k_has_the_gradient_of_finite_differences() -> None:
    scores = random_scores().requires_grad_()
    positive = torch.zeros(3, 9, dtype=torch.bool).index_fill(1, torch.tensor([0, 4]), True)
    assert torch.autograd.gradcheck(lambda s: soft_top_k_loss(s, positive, k=3, steps=60), scores)


def test_the_gradient_of_soft_top_k_is_the_published_one() -> None:
    scores = random_scores().requires_grad_()
    logs = log_soft_top_k(scores, k=3)
    incoming = random_scores()
    logs.backward(incoming)
    sigma, alpha = logs.detach().exp(), 2.0
    a, v = incoming * alpha * (1 - sigma), alpha * sigma * (1 - sigma)
    assert scores.grad is not None
    assert torch.allclose(scores.grad, a - v * a.sum(1, keepdim=True) / v.sum(1, keepdim=True), atol=1e-9)


def test_more_places_than_labels_are_no_error() -> None:
    assert torch.isfinite(log_soft_top_k(random_scores(2, 3), k=5)).all()


def test_all_labels_are_negatives_where_they_fit() -> None:
    gold, live = Ragged.of([[3, 90], [3]]), np.arange(100)
    rng = np.random.default_rng(7)
    assert choose_labels(gold, live, 100, rng) is live
    some = choose_labels(gold, live, 10, rng)
    assert len(some) == len(set(some.tolist())) == 10
    assert {3, 90} <= set(some.tolist())
