"""Which predictions are right and which golds are found, when words may differ but mean the same.

    edges = edges_of(predictions.free, truth.gold, truth.vectors)       # similarities once
    hits = match(edges, 0.7)                                            # then any threshold, budget and rule

Two labels match at τ when the cosine of their vectors is at least τ; a label always matches itself. Three rules:

- one_to_one: a maximum matching, so that five paraphrases of one gold are right once;
- any (the paper's): a gold is found if any prediction is within τ, a prediction is right if any gold is;
- exact, as the threshold "exact": the same label.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_array
from scipy.sparse.csgraph import maximum_bipartite_matching

from merit.core.ragged import Ragged, offsets_of, ranks
from merit.core.types import Floats, Ints

Flags = NDArray[np.bool_]
Threshold = float | Literal["exact"]
Rule = Literal["one_to_one", "any"]
SOFT = 0.8  # cosine from which labels mean the same to a judge (docs/evaluation.md); that of the default encoder
NEAR = 0.5  # cosine from which they are the same or related
FLOOR = 0.5  # no threshold below this is ever asked for, so less similar pairs are forgotten at once
BLOCK = 1 << 22  # numbers fetched at a time: 16 MB


@dataclass(frozen=True)
class Edges:
    """Pairs of a prediction and a gold of the same example that are similar enough to matter."""

    prediction: Ints  # place in the flat predictions
    gold: Ints  # place in the flat golds
    rank: Ints  # of the prediction in its list
    similarity: Floats
    same: Flags  # the same label
    predictions: int
    golds: int


@dataclass(frozen=True)
class Hits:
    """What is right and what is found, at one threshold, budget and rule."""

    predictions: Flags  # beside the flat predictions
    golds: Flags  # beside the flat golds


def edges_of(predicted: Ragged, gold: Ragged, vectors: Floats, floor: float = FLOOR) -> Edges:
    """All pairs at least `floor` similar, by example and rank."""
    first, second, similarity = near_pairs(predicted, gold, vectors, floor)
    return Edges(
        prediction=first,
        gold=second,
        rank=ranks(predicted)[first],
        similarity=similarity,
        same=predicted.values[first] == gold.values[second],
        predictions=len(predicted.values),
        golds=len(gold.values),
    )


def near_pairs(left: Ragged, right: Ragged, vectors: Floats, floor: float) -> tuple[Ints, Ints, Floats]:
    """Pairs of the same row with a cosine of at least `floor`: place in left, place in right, cosine.

    Rows of like size are padded to one shape and multiplied together, so a vector is fetched once per row and not once
    per pair.
    """
    wide, high = left.lengths(), right.lengths()
    rows = np.lexsort((high, wide))
    rows = rows[(wide[rows] > 0) & (high[rows] > 0)]
    cells = (wide[rows].cumsum() + high[rows].cumsum()) * vectors.shape[1] // BLOCK  # the block that a row falls into
    blocks = [_block(left, right, part, vectors, floor) for part in np.split(rows, np.flatnonzero(np.diff(cells)) + 1)]
    first, second, similarity = (np.concatenate(parts) for parts in zip(*blocks, strict=True))
    order = np.lexsort((second, first))
    return first[order], second[order], similarity[order]


def _block(left: Ragged, right: Ragged, rows: Ints, vectors: Floats, floor: float) -> tuple[Ints, Ints, Floats]:
    (places, there), (others, present) = _padded(left, rows), _padded(right, rows)
    labels, golds = _labels(left, places), _labels(right, others)
    similarity = vectors[labels] @ vectors[golds].transpose(0, 2, 1)  # (rows, widest left, widest right)
    similarity[labels[:, :, None] == golds[:, None, :]] = 1.0  # rounding must not keep a label from matching itself
    row, column, other = np.nonzero((similarity >= floor) & there[:, :, None] & present[:, None, :])
    return places[row, column], others[row, other], similarity[row, column, other].astype(np.float32)


def _padded(lists: Ragged, rows: Ints) -> tuple[Ints, Flags]:
    """Where the values of these rows are, (rows, longest), and which of these places are real."""
    sizes = lists.lengths()[rows]
    column = np.arange(sizes.max(initial=0))
    there = column < sizes[:, None]
    return np.where(there, lists.offsets[rows][:, None] + column, 0), there


def _labels(lists: Ragged, places: Ints) -> NDArray[np.int32]:
    return lists.values[places] if len(lists.values) else places.astype(np.int32)


def match(edges: Edges, threshold: Threshold, rule: Rule = "one_to_one", budget: int | None = None) -> Hits:
    """Right predictions and found golds, counting only the first `budget` predictions of each example.

    Labels 0 and 1 mean nearly the same; both were said, and 0 and 2 were right:

    >>> vectors = np.array([[1, 0, 0], [0.8, 0.6, 0], [0, 0, 1]], np.float32)
    >>> edges = edges_of(Ragged.of([[0, 1]]), Ragged.of([[0, 2]]), vectors)
    >>> match(edges, 0.7).predictions.tolist(), match(edges, 0.7, "any").predictions.tolist()
    ([True, False], [True, True])
    """
    kept = edges.same if threshold == "exact" else edges.similarity >= np.float32(threshold)
    if budget is not None:
        kept = kept & (edges.rank < budget)
    prediction, gold = edges.prediction[kept], edges.gold[kept]
    if rule == "one_to_one" and threshold != "exact":  # labels are different within a list: exact is one to one
        closeness = edges.similarity[kept] + edges.same[kept]  # the same label before one with the same vector
        prediction, gold = _one_to_one(prediction, gold, closeness, edges.predictions, edges.golds)
    return Hits(np.bincount(prediction, minlength=edges.predictions) > 0, np.bincount(gold, minlength=edges.golds) > 0)


def _one_to_one(prediction: Ints, gold: Ints, closeness: Floats, predictions: int, golds: int) -> tuple[Ints, Ints]:
    """A maximum matching of all examples at once: the graph falls apart into one small block per example.

    The largest matching is not unique, and slices by vertical or novelty depend on which golds it finds. Searching
    from the golds that have the closest prediction, along their closest edges first, keeps every gold that was
    predicted word for word: growing a matching never gives up a gold or a prediction it already covers.
    """
    best = np.full(golds, -1.0, dtype=np.float32)
    np.maximum.at(best, gold, closeness)
    order = np.argsort(-best, kind="stable")
    row = np.empty(golds, dtype=np.int64)
    row[order] = np.arange(golds)
    along = np.lexsort((prediction, -closeness, row[gold]))
    graph = csr_array(
        (np.ones(len(along), dtype=np.int8), prediction[along], offsets_of(np.bincount(row[gold], minlength=golds))),
        shape=(golds, predictions),
    )
    partner = maximum_bipartite_matching(graph, perm_type="column")
    matched = np.flatnonzero(partner >= 0)
    return partner[matched].astype(np.int64), order[matched]
