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
from merit.retrieval.exact import map_threads, spans
from merit.retrieval.scorer import Mask, Scorer, require_numbers
from merit.retrieval.topk import RankedLists

AT_ONCE = 512  # users whose candidates are ranked together


def interests(scorer: Scorer, users: Ints, clusters: Ints, regions: int, k: int, live: Mask) -> Iterator[RankedLists]:
    """The k best live labels of each user's regions; `clusters` are by label."""
    topk.require_count(k, "labels")
    candidates = labels_of_regions(scorer, users, clusters, regions, live)
    return (
        _ranked(scorer, users[span.start : span.stop], candidates.gather(np.array(span)), k)
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

    def near(span: range) -> list[tuple[Ints, Floats]]:
        """The candidates of these users that can be among the k best, and their rough scores."""
        work, kept = fast.buffers(scorer.weights, scorer.block), []
        for user in span:
            labels = candidates[user].astype(np.int64)
            rough = np.empty(len(labels), np.float32)
            for block in spans(len(labels), scorer.block):
                place = slice(block.start, block.stop)
                rows, scores = labels[place], rough[place]
                fast.score_block(scorer.weights, scorer.labels.projections, rows, fixed[user], work, scores)
            require_numbers(rough, labels, scorer.labels)
            best = topk.candidates(rough, k, float(off[user]))
            kept.append((labels[best], rough[best]))
        return kept

    share = -(-len(users) // (4 * scorer.threads))  # several per thread, since lists differ in length
    lists = list(chain.from_iterable(map_threads(near, spans(len(users), share), scorer.threads)))
    owner = np.repeat(np.arange(len(users)), [len(labels) for labels, _ in lists])
    labels, rough = (np.concatenate(column) for column in zip(*lists, strict=True))
    return scorer.settle(users, owner, labels, rough, off, k)
