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


@pytest.mark.parametrize("beta", [0.0, 0.2, 0.5, 1.0])
def test_equally_likely_right_tokens_are_worth_beta_times_the_log_of_their_number(beta: float) -> None:
    """Pooled, three of them are worth log 3 more than one; uniform, nothing; in between, a share of it."""
    logits = torch.tensor([[1.5, 1.5, 1.5, 0.0, -1.0]], dtype=torch.float64)
    one = set_loss(logits, torch.tensor([[0, -1, -1]]), beta)
    three = set_loss(logits, torch.tensor([[0, 1, 2]]), beta)
    assert (one - three).item() == pytest.approx(beta * math.log(3))


def test_a_small_beta_is_nearly_the_uniform_one() -> None:
    hidden, head, valid, _ = batch()
    logits = hidden @ head.T
    torch.testing.assert_close(set_loss(logits, valid, 1e-6), set_loss(logits, valid, 0.0), atol=1e-4, rtol=0)


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


def test_a_frozen_model_gets_no_gradient() -> None:
    hidden, head, valid, weights = batch()
    head.requires_grad_()
    linear_set_loss(hidden, head, valid, weights)[0].backward()
    assert head.grad is not None and hidden.grad is None


def test_both_losses_are_pooled_unless_told_otherwise() -> None:
    hidden, head, valid, weights = batch()
    total, rows = linear_set_loss(hidden, head, valid, weights)
    assert torch.allclose(rows, set_loss(hidden @ head.T, valid, beta=1.0))
    assert torch.allclose(rows, set_loss(hidden @ head.T, valid))
    assert torch.allclose(total, (rows * weights).sum())


@pytest.mark.parametrize("beta", BETAS)
def test_the_loss_of_half_precision_logits_is_computed_in_float32(beta: float) -> None:
    """Nothing is lost but the digits of the product: against the same logits in float64."""
    hidden, head, valid, weights = batch(rows=64, vocabulary=301)
    half = [each.to(torch.bfloat16) for each in (hidden, head)]
    total, rows = linear_set_loss(*half, valid, weights.float(), beta)
    assert rows.dtype == total.dtype == torch.float32
    logits = (half[0] @ half[1].T).double()
    torch.testing.assert_close(rows.double(), set_loss(logits, valid, beta), atol=1e-5, rtol=1e-5)


@pytest.mark.parametrize("head_type", [torch.bfloat16, torch.float32])  # a whole model in half; autocast
def test_gradients_in_half_precision_are_those_of_full(head_type: torch.dtype) -> None:
    hidden, head, valid, weights = batch(rows=64, vocabulary=301)
    half = [hidden.to(torch.bfloat16).requires_grad_(), head.to(torch.bfloat16).to(head_type).requires_grad_()]
    full = [each.detach().double().requires_grad_() for each in half]
    linear_set_loss(*half, valid, weights.float(), 0.5)[0].backward()
    linear_set_loss(*full, valid, weights.double(), 0.5)[0].backward()
    for low, high in zip(half, full, strict=True):
        assert low.grad is not None and high.grad is not None and low.grad.dtype == low.dtype
        error = (low.grad.double() - high.grad).norm() / high.grad.norm()
        assert error < 0.02  # bf16 has 8 bits: 0.4 % a product


def test_rows_are_read_in_chunks_that_fit_the_vocabulary(monkeypatch: pytest.MonkeyPatch) -> None:
    """A chunk holds as many rows of logits as CHUNK_BYTES have room for, and never fewer than one."""
    seen: list[int] = []
    whole = losses._logit_gradient

    def watched(logits: Tensor, *rest: object) -> tuple[Tensor, Tensor]:
        seen.append(len(logits))
        return whole(logits, *rest)  # type: ignore[arg-type]

    monkeypatch.setattr(losses, "_logit_gradient", watched)
    hidden, head, valid, weights = batch(rows=7, vocabulary=11, width=5)
    for room, chunks in ((1, [1] * 7), (3 * 11 * 8, [3, 3, 1]), (100 * 11 * 8, [7])):
        seen.clear()
        monkeypatch.setattr(losses, "CHUNK_BYTES", room)
        linear_set_loss(hidden, head, valid, weights)
        assert seen == chunks


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
