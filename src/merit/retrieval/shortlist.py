"""Labels for every user where all users × all labels is too much: only labels of some regions are scored for each.

A region is a cluster of the label space. The live label with the lowest number stands for its cluster; a user gets the
clusters whose first labels score best. Scores are exact, so only a label of another region can be lost:
`Model.shortlist_recall` measures how many are.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import chain

import numpy as np

from merit.core.ragged import Ragged, offsets_of
from merit.core.types import Floats, Ints
from merit.retrieval import fast, topk
from merit.retrieval.exact import each, spans
from merit.retrieval.scorer import Mask, Scorer, require_numbers
from merit.retrieval.topk import RankedLists

AT_ONCE = 512  # users whose candidates are ranked together


def interests(scorer: Scorer, users: Ints, clusters: Ints, regions: int, k: int, live: Mask) -> Iterator[RankedLists]:
    """The k best live labels of each user's regions; `clusters` are by label."""
    topk.require_count(k, "labels")
    candidates = labels_of_regions(scorer, users, clusters, regions, live)
    return (
        _ranked(scorer, users[span.start : span.stop], candidates.part(span.start, span.stop), k)
        for span in spans(len(users), AT_ONCE)
    )


def labels_of_regions(scorer: Scorer, users: Ints, clusters: Ints, regions: int, live: Mask) -> Ragged:
    """By user: the live labels of the clusters whose first live label scores best."""
    topk.require_count(regions, "regions")
    labels = np.flatnonzero(live)
    _, first, of_label = np.unique(clusters[labels], return_index=True, return_inverse=True)
    is_first = np.zeros(len(clusters), dtype=bool)
    is_first[labels[first]] = True
    place = np.full(len(clusters), -1)
    place[labels[first]] = np.arange(len(first))
    members = Ragged(offsets_of(np.bincount(of_label)), labels[np.argsort(of_label, kind="stable")].astype(np.int32))
    parts = [members.take(place[lists.labels.values]) for lists in scorer.all_interests(regions, users, is_first)]
    sizes = np.concatenate([size for _, size in parts])
    per_user = np.add.reduceat(sizes, np.arange(0, len(sizes), min(regions, len(first))))
    return Ragged(offsets_of(per_user), np.concatenate([values for values, _ in parts]))


def _ranked(scorer: Scorer, users: Ints, candidates: Ragged, k: int) -> RankedLists:
    """The k best of each user's candidates, exactly; row i of the candidates is for users[i]."""
    fixed, off = scorer.fixed_users(users)
    lists = [candidates[at].astype(np.int64) for at in range(len(users))]

    def some(span: range) -> list[tuple[Ints, Floats]]:
        work = fast.buffers(scorer.weights, scorer.block)
        return [_near(scorer, fixed[at], lists[at], float(off[at]), k, work) for at in span]

    share = -(-len(users) // (4 * scorer.threads))  # several per thread, since lists differ in length
    near = list(chain.from_iterable(each(some, spans(len(users), share), scorer.threads)))
    owner = np.repeat(np.arange(len(users)), [len(labels) for labels, _ in near])
    labels, rough = (np.concatenate(column) for column in zip(*near, strict=True))
    return scorer.settle(users, owner, labels, rough, off, k)


def _near(
    scorer: Scorer, fixed: fast.Fixed, labels: Ints, off: float, k: int, work: fast.Buffers
) -> tuple[Ints, Floats]:
    """The candidates of one user that can be among the k best, and their rough scores."""
    rough = np.empty(len(labels), np.float32)
    for span in spans(len(labels), scorer.block):
        place = slice(span.start, span.stop)
        fast.score_block(scorer.weights, scorer.labels.projections, labels[place], fixed, work, rough[place])
    require_numbers(rough, labels, scorer.labels)
    near = topk.candidates(rough, k, off)
    return labels[near], rough[near]
