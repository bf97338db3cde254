"""Label → token path: what the generator reads and writes for a label. The way back goes through the trie.

A path is a cluster part and a leaf part, joined as token ids, so the objective and the trie need no special case:

    none    the label's own tokens
    text    the tokens of the cluster's medoid, then the label's own
    token   one new token per cluster, then the label's own

The trie of all paths is three flat arrays. Nodes are numbered breadth first, the root is 0, and edges are numbered by
(node they leave, token). Then the edges of a node are one slice, and edge e always leads to node e + 1: no array of
children is needed, and a decoder that picks an edge inside a slice already knows where it is.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from merit.core.console import track
from merit.core.errors import ConfigError, DataError
from merit.core.ragged import Ragged, offsets_of, owners, stacked

Ids = NDArray[np.int32]
Whole = NDArray[Any]  # integers of any width
ClusterForm = Literal["none", "text", "token"]
Tokenize = Callable[[Sequence[str]], Sequence[Sequence[int]]]  # texts → their token ids, without special tokens

BATCH = 20_000  # texts handed to the tokenizer at once: bounds its Python lists, and moves the progress bar


@dataclass(frozen=True)
class Paths:
    """The token path of every label; label ids are the places in the list that was given."""

    form: ClusterForm
    offsets: NDArray[np.int64]  # (labels + 1,)
    tokens: Ids
    merged: Ids  # (m, 2): (dropped label, kept label) where two labels have one path; the lowest id is kept

    @property
    def kept(self) -> Ids:
        """The label ids that own a path, ascending."""
        owns = np.ones(len(self.offsets) - 1, bool)
        owns[self.merged[:, 0]] = False
        return np.flatnonzero(owns).astype(np.int32)

    def path(self, label: int) -> tuple[int, ...]:
        """The tokens of a label. A dropped label has the path of the one it was merged into."""
        return tuple(self.tokens[self.offsets[label] : self.offsets[label + 1]].tolist())

    def trie(self) -> Trie:
        """Of all labels that own a path, blocked ones too: `restrict` it before anything is decoded."""
        kept = self.kept
        rows = Ragged(self.offsets, self.tokens).gather(kept)
        return build_trie(rows.offsets, rows.values, kept)


def linearise(
    texts: Sequence[str],
    encode: Tokenize,
    *,
    form: ClusterForm,
    vocabulary: int,
    assignment: Whole | None = None,
    medoid_texts: Sequence[str | None] = (),
    cluster_tokens: Sequence[int] = (),
    forbidden: Collection[int] = (),
) -> Paths:
    """The paths of all labels. `forbidden` ids (SEP, END, pad, …) steer the decoder and may not occur in a label.

    By cluster: `medoid_texts` for the form text, `cluster_tokens` for the form token. A label of cluster -1 (blocked:
    it has none) and of a cluster without a medoid gets its own tokens alone.
    """
    leaf = _tokenise(texts, encode)
    foreign = (leaf.values < 0) | (leaf.values >= vocabulary)
    _refuse(leaf.lengths() == 0, texts, "give no tokens. Rename or drop them")
    _refuse(_rows_with(leaf, foreign), texts, f"get ids outside the vocabulary of {vocabulary:,}. Use its tokenizer")
    _refuse(
        _rows_with(leaf, np.isin(leaf.values, list(forbidden))), texts, "contain control tokens. Rename or drop them"
    )
    paths = leaf
    if form != "none":
        if assignment is None:
            raise ConfigError(f"The cluster form '{form}' needs clusters. Cluster the labels, or use 'none'.")
        heads = Ragged.of([[token] for token in cluster_tokens])
        if form == "text":
            heads = _tokenise([text or "" for text in medoid_texts], encode)
        paths = _join(_by_label(heads, assignment), leaf)
    return Paths(form, paths.offsets, paths.values, _merge(paths))


def _by_label(heads: Ragged, assignment: Whole) -> Ragged:
    """By label: the head of its cluster, an empty one where it has none."""
    if (clusters := int(assignment.max(initial=-1)) + 1) > len(heads):
        raise ConfigError(
            f"The labels are in {clusters:,} clusters, and tokens are known of {len(heads):,}. Use the label space "
            "that the vocabulary was made for, or a version of it."
        )
    return stacked([heads, Ragged.empty(1)]).gather(np.where(assignment < 0, len(heads), assignment))


def _tokenise(texts: Sequence[str], encode: Tokenize) -> Ragged:
    starts: Iterable[int] = range(0, len(texts), BATCH)
    if len(texts) > BATCH:
        starts = track(starts, "Tokenising labels", total=-(-len(texts) // BATCH))
    return stacked([Ragged.of([]), *(Ragged.of(encode(texts[start : start + BATCH])) for start in starts)])


def _merge(paths: Ragged) -> Ids:
    """(m, 2): labels that end at one node of the trie have one path; all but the first are dropped."""
    ends, _, _ = grow(paths.offsets, paths.values)
    _, first, place = np.unique(ends, return_index=True, return_inverse=True)
    owner = first[place]
    dropped = np.flatnonzero(owner != np.arange(len(owner)))
    return np.stack([dropped, owner[dropped]], axis=1).astype(np.int32)


def _refuse(bad: NDArray[np.bool_], texts: Sequence[str], complaint: str) -> None:
    if rows := np.flatnonzero(bad).tolist():
        named = ", ".join(f"{row} {texts[row]!r}" for row in rows[:5]) + (", …" if len(rows) > 5 else "")
        raise DataError(f"{len(rows):,} labels {complaint}: {named}.")


def _rows_with(ragged: Ragged, marked: NDArray[np.bool_]) -> NDArray[np.bool_]:
    return np.bincount(owners(ragged)[marked], minlength=len(ragged)) > 0


def _join(heads: Ragged, leaves: Ragged) -> Ragged:
    """Row by row, head then leaf."""
    pairs = stacked([heads, leaves]).gather(np.arange(2 * len(leaves)).reshape(2, -1).T.ravel())
    return Ragged(pairs.offsets[::2], pairs.values)


# --- the trie --------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Trie:
    """All that may be decoded: a label is a path from the root to the node it ends at."""

    offsets: Ids  # (nodes + 1,)  the edges of node v are offsets[v] : offsets[v + 1]
    tokens: Ids  # (nodes - 1,)  ascending within a node
    label: Ids  # (nodes,)      the label that ends here, -1 = none

    def restrict(self, live: NDArray[np.bool_]) -> Trie:
        """The trie of the labels with live[label]: what leads only to others is gone, so it cannot be decoded."""
        label = np.where(np.append(live, False)[self.label], self.label, np.int32(-1))  # no label (-1) is never live
        keep = _leading_to(self.offsets, label >= 0)
        keep[0] = True  # the root stays, even over nothing
        kept_before = np.concatenate([[0], np.cumsum(keep[1:])])
        counts = np.diff(kept_before[self.offsets])[keep]
        return Trie(offsets_of(counts).astype(np.int32), self.tokens[keep[1:]], label[keep])


def build_trie(path_offsets: Whole, path_tokens: Whole, label_ids: Whole) -> Trie:
    """The trie of the paths path_tokens[path_offsets[i] : path_offsets[i + 1]], ending in label_ids[i]."""
    ends, parents, tokens = grow(path_offsets, path_tokens)
    if (ends == 0).any():
        raise DataError(f"Label {label_ids[int(np.argmax(ends == 0))]} has no tokens, so nothing could ever decode it.")
    label = np.full(len(tokens) + 1, -1, np.int32)
    label[ends] = label_ids
    if len(clash := np.flatnonzero(label[ends] != label_ids)):
        pairs = ", ".join(f"{label_ids[at]} and {label[ends[at]]}" for at in clash[:5])
        raise DataError(f"{len(clash):,} labels share another label's tokens (labels {pairs}). Merge them first.")
    return Trie(offsets_of(np.bincount(parents, minlength=len(label))).astype(np.int32), tokens, label)


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


def _leading_to(offsets: Ids, wanted: NDArray[np.bool_]) -> NDArray[np.bool_]:
    """(nodes,): whether a wanted node is in the subtree. From the deepest level up; a level is a range of nodes."""
    levels = [(0, 1)]
    while (below := (int(offsets[levels[-1][0]]) + 1, int(offsets[levels[-1][1]]) + 1))[0] < below[1]:
        levels.append(below)
    marked = wanted.copy()
    for start, stop in reversed(levels):
        seen = np.concatenate([[0], np.cumsum(marked[1 + offsets[start] : 1 + offsets[stop]])])
        marked[start:stop] |= np.diff(seen[offsets[start : stop + 1] - offsets[start]]) > 0
    return marked
