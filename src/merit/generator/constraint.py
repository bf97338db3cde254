"""What a lane may write next: the label trie in tensors, without Python per lane.

A decoded sequence is `label SEP label SEP … label END`. At the root a lane may begin any label it has not written, or
write END (after a SEP); inside a label it may go on towards a label it has not written, and where one ends, complete
it by SEP or END. The choices of a lane are columns: 0 is END, 1 is SEP, 2 + i the i-th edge of its node.

No label comes twice, exactly: a completed label leaves its path behind, and an edge is closed once as many labels
were completed below it as there are. Only edges on such paths can be closed, so a lane keeps a short list of them.
"""

from __future__ import annotations

from dataclasses import dataclass, fields
from functools import partial

import numpy as np
import torch
from torch import Tensor
from torch.nn.functional import linear

from merit.errors import ConfigError
from merit.generator.lanes import Parts
from merit.labels.trie import Trie
from merit.types import Ints

END, SEP, EDGES = 0, 1, 2  # columns


@dataclass(frozen=True)
class Constraint:
    offsets: Tensor  # (nodes + 1,)
    tokens: Tensor  # (edges,)
    label: Tensor  # (nodes,)
    below: Tensor  # (nodes,)  labels that end at the node or under it
    depth: int  # tokens of the longest label
    terminators: Tensor  # (2,)  token ids of the columns END and SEP
    weight: Tensor  # (vocabulary, width)  the head
    bias: Tensor  # (vocabulary,)
    root: tuple[Tensor, Tensor]  # the head's rows of END, SEP and all first tokens: one dense product for root lanes
    least: int  # END only after so many labels
    most: int  # a lane is done after so many labels


@dataclass
class Walk:
    """Where each of L lanes is in the trie, and what it has completed. -1 pads. `advance` changes it in place."""

    node: Tensor  # (L,)
    depth: Tensor  # (L,)
    path: Tensor  # (L, depth)  nodes since the root
    count: Tensor  # (L,)  labels completed
    labels: Tensor  # (L, most)
    paths: Tensor  # (L, most, depth)  of completed labels
    closed: Tensor  # (L, most, depth)  edges that lead to nothing new, by the depth of the node they leave
    running: Tensor  # (L,)  log-probability of the label begun
    log_probs: Tensor  # (L, most)  of completed labels
    score: Tensor  # (L,)  log-probability of everything
    states: Tensor  # (L, kept, width)  at the classification positions of the first labels
    done: Tensor  # (L,)

    def take(self, lanes: Tensor) -> Walk:
        return Walk(**{field.name: getattr(self, field.name)[lanes] for field in fields(self)})


def constrain(trie: Trie, model: Parts, sep: int, end: int, least: int, most: int) -> Constraint:
    """The trie on the model's device."""
    _check(trie, model, sep, end)
    below, depth = _below(trie)
    tokens = torch.from_numpy(trie.tokens.astype(np.int64)).to(model.device)
    terminators = torch.tensor([end, sep], device=model.device)
    bias = model.weight.new_zeros(len(model.weight)) if model.bias is None else model.bias
    first = torch.cat([terminators, tokens[: int(trie.offsets[1])]])
    return Constraint(
        offsets=torch.from_numpy(trie.offsets.astype(np.int64)).to(model.device),
        tokens=tokens,
        label=torch.from_numpy(trie.label.astype(np.int64)).to(model.device),
        below=torch.from_numpy(below).to(model.device),
        depth=depth,
        terminators=terminators,
        weight=model.weight.detach(),
        bias=bias.detach(),
        root=(model.weight[first].detach(), bias[first].detach()),
        least=least,
        most=min(most, int(below[0])),  # who has written every label is done
    )


def _check(trie: Trie, model: Parts, sep: int, end: int) -> None:
    highest = max(int(trie.tokens.max(initial=0)), sep, end)
    if highest >= len(model.weight):
        raise ConfigError(
            f"The label space has the token {highest:,}, but the model knows {len(model.weight):,} tokens. "
            "Use the label space the model was trained with, or a version of it."
        )
    if sep == end or np.isin(trie.tokens, (sep, end)).any():
        raise ConfigError("SEP and END must be two tokens that occur in no label. Make the label space again.")


def _below(trie: Trie) -> tuple[Ints, int]:
    """Labels at or under each node, and the depth of the trie. A level is a range of nodes; the deepest comes first."""
    levels = [(0, 1)]
    while levels[-1][0] < levels[-1][1]:
        levels.append((int(trie.offsets[levels[-1][0]]) + 1, int(trie.offsets[levels[-1][1]]) + 1))
    below = (trie.label >= 0).astype(np.int64)
    for start, stop in reversed(levels[:-1]):
        sums = np.concatenate([[0], np.cumsum(below[trie.offsets[start] + 1 : trie.offsets[stop] + 1])])
        below[start:stop] += np.diff(sums[trie.offsets[start : stop + 1] - trie.offsets[start]])
    return below, len(levels) - 2


def begin(constraint: Constraint, lanes: int, states: int) -> Walk:
    weight, most, depth = constraint.weight, constraint.most, constraint.depth
    whole = partial(torch.full, device=weight.device)
    return Walk(
        node=whole((lanes,), 0),
        depth=whole((lanes,), 0),
        path=whole((lanes, depth), -1),
        count=whole((lanes,), 0),
        labels=whole((lanes, most), -1),
        paths=whole((lanes, most, depth), -1),
        closed=whole((lanes, most, depth), -1),
        running=whole((lanes,), 0.0),
        log_probs=whole((lanes, most), 0.0),
        score=whole((lanes,), 0.0),
        states=weight.new_zeros(lanes, states, weight.shape[1]),
        done=whole((lanes,), False),
    )


def root_choices(constraint: Constraint, walk: Walk, lanes: Tensor, states: Tensor) -> Tensor:
    """(n, 2 + first tokens): the logits of what these lanes, all at the root, may write; -inf where they may not."""
    logits = root_logits(constraint, states)
    # -1 is no edge, and falls on the column SEP, which is not allowed here anyway.
    logits.scatter_(1, walk.closed[lanes, :, 0] + EDGES, -torch.inf)
    logits[:, SEP] = -torch.inf
    logits[:, END].masked_fill_(walk.count[lanes] < max(constraint.least, 1), -torch.inf)
    return logits


def inner_choices(constraint: Constraint, walk: Walk, lanes: Tensor, states: Tensor) -> Tensor:
    """(n, 2 + widest node): the same for lanes inside a label. Only the logits that are needed are computed."""
    node = walk.node[lanes]
    start = constraint.offsets[node]
    width = constraint.offsets[node + 1] - start
    real = torch.arange(int(width.max()), device=node.device) < width[:, None]  # (n, K)
    lane, place = real.nonzero(as_tuple=True)
    closing, going = inner_logits(constraint, states, lane, constraint.tokens[start[lane] + place])
    logits = going.new_full((len(node), EDGES + real.shape[1]), -torch.inf)
    logits[lane, place + EDGES] = going
    # A leaf has the depth of no edge; the edges looked up in its place are not in its (empty) slice.
    shut = walk.closed[lanes, :, walk.depth[lanes].clamp(max=constraint.depth - 1)] - start[:, None]  # (n, most)
    logits.scatter_(1, torch.where((shut >= 0) & (shut < width[:, None]), shut + EDGES, SEP), -torch.inf)
    label = constraint.label[node]
    barred = (label < 0) | (walk.labels[lanes] == label[:, None]).any(1)
    logits[:, SEP] = closing[:, SEP].masked_fill(barred, -torch.inf)
    barred |= walk.count[lanes] + 1 < constraint.least
    logits[:, END] = closing[:, END].masked_fill(barred, -torch.inf)
    return logits


def root_logits(constraint: Constraint, states: Tensor) -> Tensor:
    return linear(states, *constraint.root).float()


def inner_logits(constraint: Constraint, states: Tensor, lane: Tensor, token: Tensor) -> tuple[Tensor, Tensor]:
    """(n, 2) for the terminators of every lane, and (m,) for token[i] in lane[i]."""
    weight, bias = constraint.root
    closing = linear(states, weight[:EDGES], bias[:EDGES])
    going = (constraint.weight[token] * states[lane]).sum(-1) + constraint.bias[token]
    return closing.float(), going.float()


def advance(constraint: Constraint, walk: Walk, lanes: Tensor, column: Tensor, log_prob: Tensor) -> Tensor:
    """These lanes take a column each. The tokens (n,) they write."""
    node = walk.node[lanes]
    edge = constraint.offsets[node] + column - EDGES
    closes = column < EDGES
    walk.running[lanes] += log_prob
    walk.score[lanes] += log_prob
    on, to = lanes[~closes], edge[~closes] + 1
    walk.path[on, walk.depth[on]] = to
    walk.depth[on] += 1
    walk.node[on] = to
    _complete(constraint, walk, lanes[closes & (node > 0)])  # END at the root completes nothing
    walk.done[lanes] |= column == END
    return torch.where(closes, constraint.terminators[column.clamp(max=SEP)], constraint.tokens[edge.clamp(min=0)])


def _complete(constraint: Constraint, walk: Walk, lanes: Tensor) -> None:
    """Note the labels these lanes have come to, and which edges of their paths have nothing new behind them now."""
    place, path = walk.count[lanes], walk.path[lanes]
    walk.labels[lanes, place] = constraint.label[walk.node[lanes]]
    walk.log_probs[lanes, place] = walk.running[lanes]
    walk.paths[lanes, place] = path
    used = (walk.paths[lanes] == path[:, None]).sum(1)  # (n, depth)  completed labels below each node of the path
    full = (path >= 0) & (used == constraint.below[path.clamp(min=0)])
    walk.closed[lanes, place] = torch.where(full, path - 1, -1)  # edge e leads to node e + 1
    walk.node[lanes], walk.depth[lanes], walk.path[lanes], walk.running[lanes] = 0, 0, -1, 0.0
    walk.count[lanes] = place + 1
    walk.done[lanes] = place + 1 >= constraint.most
