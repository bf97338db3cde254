"""What it costs to give probability to wrong tokens: one loss for every objective, fused with the LM head.

For logits z at a position and the set V of right tokens,

    β = 1   logsumexp(z) - logsumexp(z[V])          pooled over V (the paper; GROOV)
    β = 0   logsumexp(z) - mean(z[V])               cross-entropy to the uniform over V
    else    logsumexp(z) - (logsumexp(β z[V]) - (1 - β²) log |V|) / β    in between

with the gradient p - q, where p = softmax(z) and q = softmax(β z[V]) on V. With one member in V all of them are the
token cross-entropy. Pooling is winner-take-all (a right token is pushed up in proportion to its own probability);
a smaller β spreads the push.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

CHUNK_BYTES = 64 << 20  # of logits at a time: large enough for a full-speed product, small beside any model


def set_loss(logits: Tensor, valid_ids: Tensor, beta: float = 1.0) -> Tensor:
    """The loss of each row, from logits in memory. `valid_ids` is padded with -1."""
    picked = logits.gather(-1, valid_ids.clamp(min=0))  # (N, K)  K = widest valid set
    missing = valid_ids < 0
    return logits.logsumexp(-1) - _pooled(picked, missing, beta)  # (N,)


def linear_set_loss(
    hidden: Tensor, head: Tensor, valid_ids: Tensor, weights: Tensor, beta: float = 1.0
) -> tuple[Tensor, Tensor]:
    """Σ weights · loss over rows, with logits = hidden @ head.T never held for more than a chunk of rows.

    Also the loss of each row, without gradient, for the log. hidden (N, D), head (vocabulary, D), valid_ids (N, K),
    weights (N,).
    """
    total, rows = _LinearSetLoss.apply(hidden, head, valid_ids, weights, beta)  # type: ignore[no-untyped-call]
    return total, rows.detach()


def _pooled(picked: Tensor, missing: Tensor, beta: float) -> Tensor:
    """The reward of a row: how much of its mass lies on the right tokens, in the sense of β."""
    size = (~missing).sum(-1)
    if beta == 0:
        return picked.masked_fill(missing, 0).sum(-1) / size
    # The constant has no gradient; it makes β = 1 pooled and β → 0 the mean, to the digit.
    constant = (1 - beta**2) * size.to(picked.dtype).log()
    return ((beta * picked).masked_fill(missing, -torch.inf).logsumexp(-1) - constant) / beta


def _shares(picked: Tensor, missing: Tensor, beta: float) -> Tensor:
    """q: how the push is shared among the right tokens."""
    return (beta * picked).masked_fill(missing, -torch.inf).softmax(-1)


class _LinearSetLoss(torch.autograd.Function):
    """Loss and gradients in one pass over the rows: backward only scales what forward has computed.

    The gradient of the logits is p - q, known as soon as the logits are; computing both products at once means that
    no chunk is computed twice and none is kept.
    """

    @staticmethod
    def forward(ctx: Any, hidden: Tensor, head: Tensor, valid_ids: Tensor, weights: Tensor, beta: float) -> Any:
        wants_hidden, wants_head = hidden.requires_grad, head.requires_grad
        grad_hidden = torch.empty_like(hidden) if wants_hidden else None
        grad_head = torch.zeros_like(head, dtype=torch.promote_types(head.dtype, torch.float32)) if wants_head else None
        rows = torch.empty(len(hidden), dtype=torch.promote_types(hidden.dtype, torch.float32), device=hidden.device)
        words = head.to(hidden.dtype)  # itself, but where a model is trained in mixed precision
        step = max(1, CHUNK_BYTES // (head.shape[0] * rows.element_size()))
        for at in range(0, len(hidden), step):
            part = slice(at, at + step)
            gradient, rows[part] = _logit_gradient(hidden[part] @ words.T, valid_ids[part], weights[part], beta)
            gradient = gradient.to(hidden.dtype)
            if grad_hidden is not None:
                torch.matmul(gradient, words, out=grad_hidden[part])
            if grad_head is not None and grad_head.dtype == gradient.dtype:
                grad_head.addmm_(gradient.T, hidden[part])
            elif grad_head is not None:  # products in half precision, their sum in full
                grad_head += gradient.T @ hidden[part]
        ctx.save_for_backward(grad_hidden, grad_head)
        return (rows * weights).sum(), rows

    @staticmethod
    def backward(ctx: Any, grad_total: Tensor, grad_rows: Tensor) -> Any:
        hidden, head = ctx.saved_tensors
        return _scaled(hidden, grad_total), _scaled(head, grad_total), None, None, None


def _logit_gradient(logits: Tensor, valid_ids: Tensor, weights: Tensor, beta: float) -> tuple[Tensor, Tensor]:
    """weights · (p - q) and the loss of each row. The logits' memory becomes the gradient."""
    logits = logits.float() if logits.dtype in (torch.float16, torch.bfloat16) else logits
    missing = valid_ids < 0
    places = valid_ids.clamp(min=0)
    picked = logits.gather(-1, places)
    norm = logits.logsumexp(-1)
    rows = norm - _pooled(picked, missing, beta)
    gradient = logits.sub_(norm[:, None]).exp_()
    gradient.scatter_add_(-1, places, -_shares(picked, missing, beta))
    return gradient.mul_(weights[:, None]), rows


def _scaled(gradient: Tensor | None, by: Tensor) -> Tensor | None:
    """A copy only where one is needed: the loss is nearly always the last step, and `by` then one."""
    return gradient if gradient is None or bool(by == 1) else gradient * by
