"""The token trie of all labels in three flat arrays. No torch, and no Python per row.

Nodes are numbered breadth first, the root is 0, and edges are numbered by (node they leave, token). Then the edges of a
node are one slice, and edge e always leads to node e + 1: no array of children is needed, and a decoder that picks an
edge inside a slice already knows where it is.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from merit.core.errors import DamagedArtifact, DataError

Ids = NDArray[np.int32]
Whole = NDArray[Any]  # integers of any width


@dataclass(frozen=True)
class Trie:
    """All that may be decoded: a label is a path from the root to the node it ends at."""

    offsets: Ids  # (nodes + 1,)  the edges of node v are offsets[v] : offsets[v + 1]
    tokens: Ids  # (nodes - 1,)  ascending within a node
    label: Ids  # (nodes,)      the label that ends here, -1 = none

    @property
    def nodes(self) -> int:
        """The root too, so that there is one edge fewer."""
        return len(self.label)

    @property
    def nbytes(self) -> int:
        """What decoding holds in memory; a first `advance` adds 8 bytes per node."""
        return self.offsets.nbytes + self.tokens.nbytes + self.label.nbytes

    @cached_property
    def _keys(self) -> NDArray[np.int64]:
        """(nodes,): (node, token) of every edge as one ascending number, and a sentinel. Only `advance` needs them."""
        parents = np.repeat(np.arange(self.nodes), np.diff(self.offsets))
        return np.append(_key(parents, self.tokens), np.iinfo(np.int64).max)

    def allowed(self, nodes: Whole) -> tuple[Ids, Ids]:
        """(n,), (n,): the next tokens of each node are tokens[start:stop]. Of the node -1, an empty slice."""
        return self.offsets[nodes], self.offsets[nodes + 1]

    def step(self, edges: Whole) -> Whole:
        """(n,): the nodes that these edges (places in `tokens`) lead to."""
        return edges + 1

    def advance(self, nodes: Whole, tokens: Whole) -> Ids:
        """(n,): the node after one more token each, -1 where the trie has none. -1 stays -1."""
        wanted = _key(nodes, tokens)
        edges = np.searchsorted(self._keys, wanted)
        return np.where(self._keys[edges] == wanted, edges + 1, -1).astype(np.int32)

    def walk(self, prefixes: Whole) -> Ids:
        """(n,): the nodes reached from the root by prefixes (n, length), padded with -1 at the end."""
        nodes = np.zeros(len(prefixes), np.int32)
        for column in prefixes.T:
            going = np.flatnonzero(column >= 0)
            nodes[going] = self.advance(nodes[going], column[going])
        return nodes

    def padded(self, nodes: Whole) -> tuple[Ids, NDArray[np.bool_]]:
        """(n, K), (n, K): the next tokens of each node, -1 beyond them, and where they are; K = the widest node."""
        starts, stops = self.allowed(nodes)
        place = np.arange(int((stops - starts).max(initial=0)), dtype=np.int32)
        mask = place < (stops - starts)[:, None]
        ids = self.tokens.take(starts[:, None] + place, mode="clip") if place.size else np.empty(mask.shape, np.int32)
        return np.where(mask, ids, np.int32(-1)), mask

    def complete(self, nodes: Whole) -> Ids:
        """(n,): the label that ends at each node, -1 = none (and for the node -1)."""
        return np.where(np.asarray(nodes) >= 0, self.label[nodes], np.int32(-1))

    def restrict(self, live: NDArray[np.bool_]) -> Trie:
        """The trie of the labels with live[label]: what leads only to others is gone, so it cannot be decoded."""
        label = np.where(np.append(live, False)[self.label], self.label, np.int32(-1))  # no label (-1) is never live
        keep = _leading_to(self.offsets, label >= 0)
        keep[0] = True  # the root stays, even over nothing
        kept_before = np.concatenate([[0], np.cumsum(keep[1:])])
        counts = np.diff(kept_before[self.offsets])[keep]
        return Trie(_ends(counts), self.tokens[keep[1:]], label[keep])

    def arrays(self) -> dict[str, Ids]:
        """As plain arrays, ready for safetensors."""
        return {"offsets": self.offsets, "tokens": self.tokens, "label": self.label}


def build(path_offsets: Whole, path_tokens: Whole, label_ids: Whole) -> Trie:
    """The trie of the paths path_tokens[path_offsets[i] : path_offsets[i + 1]], ending in label_ids[i]."""
    ends, parents, tokens = grow(path_offsets, path_tokens)
    if (ends == 0).any():
        raise DataError(f"Label {label_ids[int(np.argmax(ends == 0))]} has no tokens, so nothing could ever decode it.")
    label = np.full(len(tokens) + 1, -1, np.int32)
    label[ends] = label_ids
    if len(clash := np.flatnonzero(label[ends] != label_ids)):
        pairs = ", ".join(f"{label_ids[at]} and {label[ends[at]]}" for at in clash[:5])
        raise DataError(f"{len(clash):,} labels share another label's tokens (labels {pairs}). Merge them first.")
    return Trie(_ends(np.bincount(parents, minlength=len(label))), tokens, label)


def load(arrays: Mapping[str, Whole]) -> Trie:
    """From what `arrays()` gave, after a check that the arrays fit each other."""
    try:
        trie = Trie(**{name: np.asarray(arrays[name], np.int32) for name in ("offsets", "tokens", "label")})
    except KeyError as error:
        raise DamagedArtifact(f"The trie has no array {error}. Make the label space again.") from None
    edges = len(trie.tokens)
    fits = (
        len(trie.label) == edges + 1 and len(trie.offsets) == edges + 2 and trie.offsets[[0, -1]].tolist() == [0, edges]
    )
    if not fits or (np.diff(trie.offsets) < 0).any():
        raise DamagedArtifact("The arrays of the trie do not fit each other. Make the label space again.")
    return trie


def grow(path_offsets: Whole, path_tokens: Whole) -> tuple[Whole, Whole, Ids]:
    """Where each path ends, and of every node but the root its parent and its token.

    One depth at a time, the (node, token) pairs of all paths are sorted and numbered: that order is breadth first and
    sorted within a node, whatever the order of the paths. Equal paths end at one node.
    """
    starts, lengths = np.asarray(path_offsets[:-1], np.int64), np.diff(path_offsets)
    width = int(path_tokens.max(initial=0)) + 1
    ends = np.zeros(len(lengths), np.int64)
    parents, tokens, nodes = [np.empty(0, np.int64)], [np.empty(0, np.int32)], 1
    alive = np.flatnonzero(lengths > 0)
    for depth in range(int(lengths.max(initial=0))):
        alive = alive[lengths[alive] > depth]
        pairs = ends[alive] * width + path_tokens[starts[alive] + depth]  # int64: 2³¹ nodes × 2³¹ tokens fit
        distinct, place = np.unique(pairs, return_inverse=True)
        ends[alive] = nodes + place
        parents.append(distinct // width)
        tokens.append((distinct % width).astype(np.int32))
        nodes += len(distinct)
    return ends, np.concatenate(parents), np.concatenate(tokens)


def _key(nodes: Whole, tokens: Whole) -> NDArray[np.int64]:
    """Node and token in one number. It is negative, and so matches no edge, where either is."""
    return (np.asarray(nodes, np.int64) << 32) | np.asarray(tokens, np.int64)


def _ends(counts: Whole) -> Ids:
    return np.concatenate([[0], np.cumsum(counts)]).astype(np.int32)


def _leading_to(offsets: Ids, wanted: NDArray[np.bool_]) -> NDArray[np.bool_]:
    """(nodes,): whether a wanted node is in the subtree. From the deepest level up; a level is a range of nodes."""
    levels = [(0, 1)]
    while (below := (int(offsets[levels[-1][0]]) + 1, int(offsets[levels[-1][1]]) + 1))[0] < below[1]:
        levels.append(below)
    found = wanted.copy()
    for start, stop in reversed(levels):
        seen = np.concatenate([[0], np.cumsum(found[1 + offsets[start] : 1 + offsets[stop]])])
        found[start:stop] |= np.diff(seen[offsets[start : stop + 1] - offsets[start]]) > 0
    return found
