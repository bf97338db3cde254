"""What a beam may write next: the label trie in tensors, without Python per beam.

A decoded sequence is `label SEP label SEP … label END`. At the root a beam may begin any label it has not written, or
write END (after a SEP); inside a label it may go on towards a label it has not written, and where one ends, complete
it by SEP or END. The choices of a beam are columns: 0 is END, 1 is SEP, 2 + i the i-th edge of its node.

No label comes twice, exactly: a completed label leaves its path behind, and a door (an edge, or the end of a label) is
closed once as many labels were completed behind it as there are. Only doors on such paths can be closed, so a beam
keeps a short list of them.
"""

from __future__ import annotations

from dataclasses import dataclass, fields
from functools import partial
from typing import TYPE_CHECKING

import numpy as np
import torch
from numpy.typing import ArrayLike
from torch import Tensor
from torch.nn.functional import linear

from merit.core.errors import ConfigError
from merit.core.types import Ints
from merit.labels.token_paths import Ids, Trie

if TYPE_CHECKING:
    from merit.generator.kv_cache import Head

END, SEP, EDGES = 0, 1, 2  # columns


@dataclass(frozen=True)
class Constraint:
    """What all beams share, on the model's device. It stays as it is while they walk."""

    table: Tensor  # (nodes, 3)  the first edge of a node, the number of its edges, and its label, -1 = none
    tokens: Tensor  # (edges,)
    below: Tensor  # (nodes,)  labels that end at the node or under it
    forced: Tensor  # (nodes,)  the column a beam must take there, whatever it has written; 0 = it has a choice
    depth: int  # tokens of the longest label
    terminators: Tensor  # (2,)  token ids of the columns END and SEP
    head: Head
    root: Head  # END, SEP and all first tokens: one dense product for the beams at the root
    least: int  # END only after so many labels
    most: int  # a beam is done after so many labels


@dataclass
class Walk:
    """Where each of L beams is in the trie, and what it has completed. -1 pads. `move` and `settle` change it."""

    node: Tensor  # (L,)
    depth: Tensor  # (L,)
    path: Tensor  # (L, depth + 1)  nodes since the root, so far as `depth` says
    written: Tensor  # (L,)  tokens
    count: Tensor  # (L,)  labels completed
    labels: Tensor  # (L, most)
    paths: Tensor  # (L, most, depth)  of completed labels
    closed: Tensor  # (L, most, depth + 1)  doors that lead to nothing new, by the depth of their node
    running: Tensor  # (L,)  log-probability of the label begun
    log_probs: Tensor  # (L, most)  of completed labels
    score: Tensor  # (L,)  log-probability of everything
    states: Tensor  # (L, kept, width)  at the classification positions of the first labels
    done: Tensor  # (L,)

    def take(self, beams: Tensor) -> Walk:
        """A copy of these beams, by number or by a mask; a beam may be taken more than once."""
        return Walk(**{field.name: getattr(self, field.name)[beams] for field in fields(self)})


def constrain(trie: Trie, head: Head, sep: int, end: int, least: int, most: int) -> Constraint:
    """The trie on the model's device."""
    _check(trie, head, sep, end)
    below, depth = _below(trie)
    most = min(most, int(below[0]))  # who has written every label is done
    start, width = trie.offsets[:-1], np.diff(trie.offsets)

    def put(values: ArrayLike) -> Tensor:
        return torch.tensor(values, dtype=torch.long).to(head.weight.device)

    tokens, terminators = put(trie.tokens), put([end, sep])
    return Constraint(
        table=put(np.stack([start, width, trie.label], 1)),
        tokens=tokens,
        below=put(below),
        forced=put(_forced(width, trie.label, least > most)),
        depth=depth,
        terminators=terminators,
        head=head,
        root=head.rows(torch.cat([terminators, tokens[: int(width[0])]])),
        least=least,
        most=most,
    )


def _forced(width: Ids, label: Ids, endless: bool) -> Ids:
    """Nodes with one way on. A leaf has one where END is suppressed; the root never (END after the last label)."""
    forced = np.where((width == 1) & (label < 0), EDGES, np.where((width == 0) & endless, SEP, 0))
    forced[0] = 0
    return forced.astype(np.int32)


def _check(trie: Trie, head: Head, sep: int, end: int) -> None:
    highest = max(int(trie.tokens.max(initial=0)), sep, end)
    if highest >= len(head.weight):
        raise ConfigError(
            f"The label space has the token {highest:,}, but the model knows {len(head.weight):,} tokens. "
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


def begin(constraint: Constraint, beams: int, states: int) -> Walk:
    """Beams at the root that have written nothing. `states` is how many labels of each keep theirs."""
    weight, most, depth = constraint.head.weight, constraint.most, constraint.depth
    whole = partial(torch.full, device=weight.device)
    return Walk(
        node=whole((beams,), 0),
        depth=whole((beams,), 0),
        path=whole((beams, depth + 1), -1),
        written=whole((beams,), 0),
        count=whole((beams,), 0),
        labels=whole((beams, most), -1),
        paths=whole((beams, most, depth), -1),
        closed=whole((beams, most, depth + 1), -1),
        running=whole((beams,), 0.0),
        log_probs=whole((beams, most), 0.0),
        score=whole((beams,), 0.0),
        states=weight.new_zeros(beams, states, weight.shape[1]),
        done=whole((beams,), False),
    )


def root_choices(constraint: Constraint, walk: Walk, beams: Tensor, states: Tensor) -> Tensor:
    """(n, 2 + first tokens): the logits of what these beams, all at the root, may write; -inf where they may not."""
    logits = root_logits(constraint, states)
    ends = logits[:, END].masked_fill(walk.count[beams] < max(constraint.least, 1), -torch.inf)
    logits.scatter_(1, walk.closed[beams, :, 0] + SEP, -torch.inf)  # -1 falls on END, which is set afterwards
    logits[:, SEP] = -torch.inf
    logits[:, END] = ends
    return logits


def inner_choices(constraint: Constraint, walk: Walk, beams: Tensor, states: Tensor) -> Tensor:
    """(n, 2 + widest node): the same for beams inside a label. Only the logits that are needed are computed."""
    node = walk.node[beams]
    start, width, label = constraint.table[node].unbind(1)
    real = torch.arange(int(width.max()), device=node.device) < width[:, None]  # (n, K)
    beam, place = real.nonzero(as_tuple=True)
    closing, going = inner_logits(constraint, states, beam, constraint.tokens[start[beam] + place])
    logits = going.new_full((len(node), EDGES + real.shape[1]), -torch.inf)
    logits[beam, place + EDGES] = going
    logits[:, SEP] = closing[:, SEP].masked_fill(label < 0, -torch.inf)
    door = walk.closed[beams, :, walk.depth[beams]] - (start + node)[:, None]  # (n, most)  0 is the node's own label
    logits.scatter_(1, torch.where((door >= 0) & (door <= width[:, None]), door + SEP, END), -torch.inf)
    barred = logits[:, SEP].isneginf() | (walk.count[beams] + 1 < constraint.least)
    logits[:, END] = closing[:, END].masked_fill(barred, -torch.inf)
    return logits


def root_logits(constraint: Constraint, states: Tensor) -> Tensor:
    """(n, 2 + first tokens), in float32: of all columns, also those that a beam may not take."""
    return linear(states, *constraint.root).float()


def inner_logits(constraint: Constraint, states: Tensor, beam: Tensor, token: Tensor) -> tuple[Tensor, Tensor]:
    """(n, 2) for the terminators of every beam, and (m,) for token[i] in beam[i]."""
    (weight, bias), closing = constraint.head, constraint.root.rows(slice(EDGES))
    going = (weight[token] * states[beam]).sum(-1)
    return linear(states, *closing).float(), (going if bias is None else going + bias[token]).float()


def move(constraint: Constraint, walk: Walk, column: Tensor, log_prob: Tensor) -> Tensor:
    """Every beam takes a column (L,), and none where it is -1. The tokens (L,) they write.

    A beam that completes a label stays where it is until `settle`.
    """
    edge = (constraint.table[:, 0][walk.node] + column - EDGES).clamp(min=0)
    goes = column >= EDGES
    walk.running += log_prob
    walk.score += log_prob
    walk.written += column >= 0
    node = torch.where(goes, edge + 1, walk.node)  # edge e leads to node e + 1
    walk.path.scatter_(1, walk.depth[:, None], node[:, None])  # behind the path, where none was taken: nobody reads it
    walk.node = node
    walk.depth += goes
    return torch.where(goes, constraint.tokens[edge], constraint.terminators[column.clamp(0, SEP)])


def settle(constraint: Constraint, walk: Walk, column: Tensor) -> None:
    """Complete the labels of the beams whose last column was END or SEP, and send those beams back to the root."""
    closes = (column == SEP) | (column == END)
    beams = (closes & (walk.node > 0)).nonzero().flatten()  # END at the root completes nothing
    if len(beams):
        _complete(constraint, walk, beams)
    walk.done |= (column == END) | (walk.count >= constraint.most)


def _complete(constraint: Constraint, walk: Walk, beams: Tensor) -> None:
    """Note the labels these beams have come to, and which doors on their paths have nothing new behind them now.

    The doors of node v are numbered offsets[v] + v + (0 for its own label, 1 + i for its i-th edge): each number once.
    """
    node, place, depth = walk.node[beams], walk.count[beams], walk.depth[beams, None]
    levels = torch.arange(constraint.depth + 1, device=beams.device)
    path = walk.path[beams].masked_fill(levels >= depth, -1)[:, :-1]
    walk.labels[beams, place] = constraint.table[node, 2]
    walk.log_probs[beams, place] = walk.running[beams]
    walk.paths[beams, place] = path
    used = (walk.paths[beams] == path[:, None]).sum(1)  # (n, depth)  completed labels below each node of the path
    full = (path >= 0) & (used == constraint.below[path])
    parents = torch.cat([torch.zeros_like(depth), path], 1)  # (n, depth + 1)  the node each door belongs to
    doors = torch.where(full, path + parents[:, :-1], -1)  # edge e = path - 1, and its door is e + 1 + v
    end_of_label = constraint.table[node, 0] + node
    walk.closed[beams, place] = torch.cat([doors, torch.full_like(depth, -1)], 1).scatter(
        1, depth, end_of_label[:, None]
    )
    walk.node[beams], walk.depth[beams], walk.running[beams] = 0, 0, 0.0
    walk.count[beams] = place + 1
