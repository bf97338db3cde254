"""Which labels stand before the one that is chosen, while the item generator is trained.

    none     lists are not read, neither in training nor when they are written: all labels come from one state
    own      a list drawn from the model's own distribution as it is: gold labels stand in it as often as the model
             would write them, so that it learns to trust what it reads as much as that deserves
    mixed    the paper: all gold labels among wrong ones, shuffled; about two in five of what is read is right
    gold     teacher forcing: the gold labels in a random order, of which only the next one is right

At each position all gold labels that do not stand before it are right; with `gold`, the one that comes next.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

import torch
from torch import Tensor

Prefixes = Literal["none", "own", "mixed", "gold"]
NONE = -1


def draw(kind: Prefixes, scores: Tensor, gold: Tensor, most: int, wrong: int) -> Tensor:
    """(B, T ≤ most): columns of the labels to be read, NONE behind the last.

    `scores` (B, C) are the logits of the first label, `gold` (B, C) says which labels are right; `wrong` is how many
    wrong labels are mixed among the gold ones.
    """
    if kind == "own":
        return _gumbel(scores).topk(min(most, scores.shape[1])).indices
    read = gold
    if kind == "mixed":
        drawn = _gumbel(scores).masked_fill(gold, -torch.inf).topk(min(wrong, scores.shape[1])).indices
        read = gold | torch.zeros_like(gold).scatter(1, drawn, True)
    lots = torch.rand_like(scores).masked_fill(~read, -1.0)
    width = max(1, min(most, int((lots >= 0).sum(1).max())))
    order = lots.topk(width)
    return order.indices.masked_fill(order.values < 0, NONE)


def right(kind: Prefixes, prefix: Tensor, gold: Tensor, places: Sequence[int]) -> Tensor:
    """(B, P, C): which labels are right at these places; none behind the end of a list that is not `own`."""
    ended = torch.cat([torch.zeros_like(prefix[:, :1], dtype=torch.bool), prefix < 0], dim=1)
    if kind != "gold":
        return gold[:, None] & ~said(prefix, gold.shape[1], places) & ~ended[:, places, None]
    following = torch.zeros(len(gold), len(places), gold.shape[1], dtype=torch.bool, device=gold.device)
    for place, column in enumerate(places):
        if column < prefix.shape[1]:
            following[:, place].scatter_(1, prefix[:, column, None].clamp(min=0), ~ended[:, column + 1, None])
    return following


def said(prefix: Tensor, columns: int, places: Sequence[int]) -> Tensor:
    """(B, P, columns): which labels stand before each of these places."""
    before = torch.zeros(len(prefix), len(places), columns + 1, dtype=torch.bool, device=prefix.device)
    read = torch.where(prefix >= 0, prefix, columns)  # no label has a column of its own, which is cut off
    for place, column in enumerate(places):
        before[:, place].scatter_(1, read[:, :column], True)
    return before[..., :columns]


def _gumbel(scores: Tensor) -> Tensor:
    """Scores with noise: the order of a draw without replacement from their softmax."""
    return scores - torch.empty_like(scores).exponential_().log()
