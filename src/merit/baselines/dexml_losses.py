"""The two losses of DEXML (Gupta et al., ICLR 2024), over the scores of all labels at once.

    DecoupledSoftmax   −(1/|P|) Σ_{j∈P} log[ e^{s_j} / (e^{s_j} + Σ_{k∉P} e^{s_k}) ]
    SoftTop-k          −(1/|P|) Σ_{j∈P} log σ(α(s_j + t)),   t such that Σ_j σ(α(s_j + t)) = k

In the first, the positives of a user do not compete with each other. In the second all labels share k places.
"""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor
from torch.nn.functional import logsigmoid, softplus

ALPHA = 2.0
STEPS = 32  # halvings: scores lie within 40 of each other, so t is right to 1e-8


def decoupled_softmax(scores: Tensor, positive: Tensor) -> Tensor:
    """The loss of each row. scores (B, C), positive (B, C) of which every row has one or more."""
    against = scores.masked_fill(positive, -torch.inf).logsumexp(1, keepdim=True)  # (B, 1)
    return _mean(softplus(against - scores), positive)  # −log[e^s / (e^s + e^a)] = log(1 + e^{a − s})


def soft_top_k_loss(scores: Tensor, positive: Tensor, k: float, alpha: float = ALPHA, steps: int = STEPS) -> Tensor:
    """The loss of each row."""
    return -_mean(log_soft_top_k(scores, k, alpha, steps), positive)


def log_soft_top_k(scores: Tensor, k: float, alpha: float = ALPHA, steps: int = STEPS) -> Tensor:
    """(B, C): the logarithm of how much each label is among the k first. Every row of its exponential sums to k."""
    found: Tensor = _LogSoftTopK.apply(scores, min(k, scores.shape[1] - 0.5), alpha, steps)  # type: ignore[no-untyped-call]
    return found


class _LogSoftTopK(torch.autograd.Function):
    """The search for t is not differentiated: t follows from Σ σ = k, hence dt = −Σ v ds / Σ v with v = ασ(1 − σ)."""

    @staticmethod
    def forward(ctx: Any, scores: Tensor, k: float, alpha: float, steps: int) -> Tensor:
        shifted = alpha * (scores + _threshold(scores, k, alpha, steps))
        ctx.save_for_backward(shifted)
        ctx.alpha = alpha
        return logsigmoid(shifted)

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> Any:
        (shifted,) = ctx.saved_tensors
        rest = (-shifted).sigmoid()  # 1 − σ, without the loss of digits
        direct = gradient * ctx.alpha * rest
        slope = ctx.alpha * shifted.sigmoid() * rest
        return direct - slope * direct.sum(1, keepdim=True) / slope.sum(1, keepdim=True), None, None, None


def _threshold(scores: Tensor, k: float, alpha: float, steps: int) -> Tensor:
    """(B, 1): t by bisection. Were all scores the highest one, t would be the lower end; the lowest one, the upper."""
    level = math.log(k / (scores.shape[1] - k)) / alpha
    low = level - scores.amax(1, keepdim=True)
    high = level - scores.amin(1, keepdim=True)
    for _ in range(steps):
        middle = (low + high) / 2
        enough = (alpha * (scores + middle)).sigmoid().sum(1, keepdim=True) >= k
        low, high = torch.where(enough, low, middle), torch.where(enough, middle, high)
    return (low + high) / 2


def _mean(values: Tensor, positive: Tensor) -> Tensor:
    return values.masked_fill(~positive, 0).sum(1) / positive.sum(1)
