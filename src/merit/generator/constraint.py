"""What a lane may write next: the label trie in tensors, without Python per lane.

A decoded sequence is `label SEP label SEP … label END`. At the root a lane may begin any label it has not written, or
write END (after a SEP); inside a label it may go on towards a label it has not written, and where one ends, complete
it by SEP or END. The choices of a lane are columns: 0 is END, 1 is SEP, 2 + i the i-th edge of its node.

No label comes twice, exactly: a completed label leaves its path behind, and an edge is closed once as many labels
were completed below it as there are. Only edges on such paths can be closed, so a lane keeps a short list of them.
"""

from __future__ import annotations

from dataclasses import dataclass, fields, replace

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


@dataclass(frozen=True)
class Walk:
    """Where each of L lanes is in the trie, and what it has completed. -1 pads."""

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
    done: Tensor  # (L,)

    def take(self, lanes: Tensor) -> Walk:
        return Walk(**{field.name: getattr(self, field.name)[lanes] for field in fields(self)})


def constrain(trie: Trie, model: Parts, sep: int, end: int, least: int, most: int) -> Constraint:
    """The trie on the model's device. Budgets beyond the number of labels are cut to it."""
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
        weight=model.weight,
        bias=bias,
        root=(model.weight[first], bias[first]),
        least=min(least, int(below[0])),
        most=min(most, int(below[0])),
    )


def _check(trie: Trie, model: Parts, sep: int, end: int) -> None:
    highest = max(int(trie.tokens.max(initial=0)), sep, end)
    if highest >= len(model.weight):
        raise ConfigError(
            f"The label space has the token {highest:,}, but the model knows {len(model.weight):,} tokens. "
            "Use the label space the model was trained with, or a version of it."
        )
    if sep == end or np.isin(trie.tokens, (sep, end)).any():
        raise ConfigError("SEP and END must be two tokens that occur in no label.")


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


def begin(constraint: Constraint, lanes: int) -> Walk:
    device, most, depth = constraint.label.device, constraint.most, constraint.depth
    zeros = torch.zeros(lanes, dtype=torch.long, device=device)
    none = torch.full((lanes, most, depth), -1, device=device)
    return Walk(
        node=zeros,
        depth=zeros.clone(),
        path=torch.full((lanes, depth), -1, device=device),
        count=zeros.clone(),
        labels=torch.full((lanes, most), -1, device=device),
        paths=none,
        closed=none.clone(),
        running=torch.zeros(lanes, device=device),
        log_probs=torch.zeros(lanes, most, device=device),
        score=torch.zeros(lanes, device=device),
        done=torch.full((lanes,), most == 0, device=device),
    )


def root_choices(constraint: Constraint, walk: Walk, lanes: Tensor, states: Tensor) -> Tensor:
    """(n, 2 + first tokens): the logits of what these lanes, all at the root, may write; -inf where they may not."""
    logits = root_logits(constraint, states)
    # An edge -1 means none, and falls on the column SEP, which is not allowed here anyway.
    logits.scatter_(1, walk.closed[lanes, :, 0] + EDGES, -torch.inf)
    logits[:, SEP] = -torch.inf
    count = walk.count[lanes]
    logits[:, END].masked_fill_((count < constraint.least) | (count == 0), -torch.inf)
    return logits


def inner_choices(constraint: Constraint, walk: Walk, lanes: Tensor, states: Tensor) -> Tensor:
    """(n, 2 + widest node): the same for lanes inside a label. Only the logits that are needed are computed."""
    node, count = walk.node[lanes], walk.count[lanes]
    start = constraint.offsets[node]
    width = constraint.offsets[node + 1] - start
    place = torch.arange(int(width.max()), device=node.device)
    real = place < width[:, None]  # (n, K)
    lane, column = real.nonzero(as_tuple=True)
    closing, going = inner_logits(constraint, states, lane, constraint.tokens[start[lane] + column])
    logits = going.new_full((len(node), EDGES + len(place)), -torch.inf)
    logits[lane, column + EDGES] = going
    shut = walk.closed[lanes, :, walk.depth[lanes]] - start[:, None]  # (n, most)
    logits.scatter_(1, torch.where((shut >= 0) & (shut < width[:, None]), shut + EDGES, SEP), -torch.inf)
    label = constraint.label[node]
    new = (label >= 0) & (walk.labels != label[:, None])[lanes].all(1) if False else _unwritten(walk, lanes, label)
    logits[:, SEP] = closing[:, SEP].masked_fill(~new, -torch.inf)
    logits[:, END] = closing[:, END].masked_fill(~new | (count + 1 < constraint.least), -torch.inf)
    return logits


def _unwritten(walk: Walk, lanes: Tensor, label: Tensor) -> Tensor:
    return (label >= 0) & (walk.labels[lanes] != label[:, None]).all(1)


def root_logits(constraint: Constraint, states: Tensor) -> Tensor:
    return linear(states, *constraint.root).float()


def inner_logits(constraint: Constraint, states: Tensor, lane: Tensor, token: Tensor) -> tuple[Tensor, Tensor]:
    """(n, 2) for the terminators of each lane, and (m,) for tokens[i] in lane[i]."""
    closing = linear(states, constraint.root[0][:EDGES], constraint.root[1][:EDGES])
    going = (constraint.weight[token] * states[lane]).sum(-1) + constraint.bias[token]
    return closing.float(), going.float()


def advance(constraint: Constraint, walk: Walk, column: Tensor, log_prob: Tensor) -> tuple[Walk, Tensor]:
    """Every lane takes a column; lanes that are done take none. Also the tokens written, END by those done."""
    going = (column >= EDGES) & ~walk.done
    edge = constraint.offsets[walk.node] + column - EDGES
    token = torch.where(going, constraint.tokens[edge.clamp(0, len(constraint.tokens) - 1)], constraint.terminators[column.clamp(max=SEP)])
    ...
