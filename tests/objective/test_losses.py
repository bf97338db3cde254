from __future__ import annotations

import math
from collections.abc import Callable

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor
from torch.nn import functional as F

from merit.objective import losses
from merit.objective.losses import linear_set_loss, set_loss

BETAS = [0.0, 0.3, 1.0]


def batch(rows: int = 7, vocabulary: int = 11, width: int = 5, seed: int = 0) -> tuple[torch.Tensor, ...]:
    generator = torch.Generator().manual_seed(seed)
    hidden = torch.randn(rows, width, generator=generator, dtype=torch.float64)
    head = torch.randn(vocabulary, width, generator=generator, dtype=torch.float64)
    sizes = torch.randint(1, 5, (rows,), generator=generator)
    valid = torch.full((rows, 4), -1)
    for row, size in enumerate(sizes.tolist()):
        valid[row, :size] = torch.randperm(vocabulary, generator=generator)[:size]
    weights = torch.rand(rows, generator=generator, dtype=torch.float64)
    return hidden, head, valid, weights


def slow_loss(logits: torch.Tensor, right: list[int], beta: float) -> float:
    """One row, by the definition, in plain numbers."""
    p = [math.exp(value) for value in logits.tolist()]
    total = sum(p)
    chosen = [p[token] / total for token in right]
    if beta == 1:
        return -math.log(sum(chosen))
    return -sum(math.log(value) for value in chosen) / len(chosen)


@pytest.mark.parametrize("beta", [0.0, 1.0])
def test_by_hand(beta: float) -> None:
    hidden, head, valid, _ = batch()
    logits = hidden @ head.T
    expected = [
        slow_loss(row, [token for token in right if token >= 0], beta)
        for row, right in zip(logits, valid.tolist(), strict=True)
    ]
    assert torch.allclose(set_loss(logits, valid, beta), torch.tensor(expected, dtype=torch.float64))


@pytest.mark.parametrize("beta", BETAS)
def test_one_right_token_is_cross_entropy(beta: float) -> None:
    hidden, head, valid, _ = batch()
    logits = hidden @ head.T
    single = valid[:, :1]
    assert torch.allclose(set_loss(logits, single, beta), F.cross_entropy(logits, single[:, 0], reduction="none"))


@pytest.mark.parametrize("beta", BETAS)
@pytest.mark.parametrize("chunk", [1, 8 * 11 * 3, 1 << 20])
def test_fused_equals_dense_in_value_and_gradient(beta: float, chunk: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(losses, "CHUNK_BYTES", chunk)
    hidden, head, valid, weights = batch()
    grads = []
    for fused in (True, False):
        h, w = hidden.clone().requires_grad_(), head.clone().requires_grad_()
        if fused:
            total, rows = linear_set_loss(h, w, valid, weights, beta)
        else:
            rows = set_loss(h @ w.T, valid, beta)
            total = (rows * weights).sum()
        (3 * total).backward()
        grads.append((total.detach(), rows.detach(), h.grad, w.grad))
    for ours, dense in zip(*grads, strict=True):
        assert torch.allclose(ours, dense)


@pytest.mark.parametrize("beta", BETAS)
def test_gradcheck(beta: float) -> None:
    hidden, head, valid, weights = batch()
    hidden.requires_grad_()
    head.requires_grad_()
    assert torch.autograd.gradcheck(lambda h, w: linear_set_loss(h, w, valid, weights, beta)[0], (hidden, head))


def test_the_gradient_is_p_minus_q() -> None:
    logits = torch.tensor([[2.0, 1.0, 0.0, -1.0]], dtype=torch.float64, requires_grad=True)
    set_loss(logits, torch.tensor([[0, 1]]), beta=1.0).sum().backward()
    p = logits.detach().softmax(-1)
    q = torch.zeros_like(p)
    q[:, :2] = p[:, :2] / p[:, :2].sum()
    assert torch.allclose(logits.grad, p - q)


def test_a_frozen_head_gets_no_gradient() -> None:
    hidden, head, valid, weights = batch()
    hidden.requires_grad_()
    linear_set_loss(hidden, head, valid, weights)[0].backward()
    assert hidden.grad is not None and head.grad is None


def test_large_logits_stay_finite() -> None:
    hidden, head, valid, weights = batch()
    total, _ = linear_set_loss((hidden * 1e4).float(), head.float(), valid, weights.float())
    assert torch.isfinite(total)


# --- any fused cross-entropy would do (docs/decisions/0004-liger.md) --------------------------------------------------

CrossEntropy = Callable[[Tensor, Tensor, Tensor], Tensor]  # hidden (N, D), head (V, D), tokens (N,) → (N,)


def by_identity(
    hidden: Tensor, head: Tensor, valid: Tensor, weights: Tensor, beta: float, cross_entropy: CrossEntropy
) -> tuple[Tensor, Tensor]:
    """The set loss from the cross-entropy of one right token, whichever, and the logits of the right tokens alone."""
    picked = (head[valid.clamp(min=0)] @ hidden[:, :, None]).squeeze(-1)  # (N, K)
    rows = cross_entropy(hidden, head, valid[:, 0]) + picked[:, 0] - losses._pooled(picked, valid < 0, beta)
    return (rows * weights).sum(), rows.detach()


def in_memory(hidden: Tensor, head: Tensor, tokens: Tensor) -> Tensor:
    return F.cross_entropy(hidden @ head.T, tokens, reduction="none")


def in_chunks(hidden: Tensor, head: Tensor, tokens: Tensor) -> Tensor:
    """torch's own fused one, which like Liger's learns the weights of rows in backward and computes logits twice."""
    options = torch.nn.LinearCrossEntropyOptions(batch_chunk_size=3)
    return F.linear_cross_entropy(hidden, head, tokens, reduction="none", options=options)


FUSED = [in_memory, *([in_chunks] if hasattr(F, "linear_cross_entropy") else [])]  # from torch 2.13 on


@pytest.mark.parametrize("cross_entropy", FUSED)
@settings(deadline=None, max_examples=40)
@given(
    rows=st.integers(1, 12),
    vocabulary=st.integers(4, 40),
    beta=st.just(0.0) | st.floats(0.01, 1),
    seed=st.integers(0, 2**31),
)
def test_a_cross_entropy_of_one_right_token_gives_the_set_loss(
    cross_entropy: CrossEntropy, rows: int, vocabulary: int, beta: float, seed: int
) -> None:
    hidden, head, valid, weights = batch(rows, vocabulary, seed=seed)
    found = []
    for loss in (linear_set_loss, lambda *given: by_identity(*given, cross_entropy)):
        h, w = hidden.clone().requires_grad_(), head.clone().requires_grad_()
        total, each = loss(h, w, valid, weights, beta)
        total.backward()
        found.append((total.detach(), each, h.grad, w.grad))
    for ours, other in zip(*found, strict=True):
        assert torch.allclose(ours, other, atol=1e-9)
