"""Labels for every user where all users × all labels is too much: only the candidates of each user are scored.

    candidates = shortlist.union([generated, nearest, popular])       # one Ragged each, a row per user
    lists = shortlist.interests(scorer, users, candidates, k=20)
    shortlist.recall(scorer, sample, candidates.gather(sample), k=20).mean()

Scores are the exact ones, so the one thing that can be lost is a label that is no candidate: `recall` measures how many
of the labels that an exact search finds are among them, on a sample of users.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import chain

import numpy as np
from numpy.typing import NDArray

from merit.core.errors import DataError
from merit.core.ragged import Ragged, offsets_of
from merit.core.types import Floats, Ints
from merit.retrieval import fast, topk
from merit.retrieval.exact import Doubles
from merit.retrieval.scorer import Lists, Mask, Scorer, allowed, require_numbers
from merit.retrieval.threads import each, spans

Labels = NDArray[np.int32]
AT_ONCE = 512  # users whose candidates are settled together


def union(parts: Sequence[Ragged]) -> Ragged:
    """Each user's candidates from all parts, ascending and each label once."""
    users = len(parts[0])
    values, sizes = zip(*(part.take(np.arange(users)) for part in parts), strict=True)
    return _grouped(
        np.concatenate([np.repeat(np.arange(users), size) for size in sizes]), np.concatenate(values), users
    )


def of_regions(scorer: Scorer, users: Ints, clusters: Ints, regions: int, live: Mask) -> Ragged:
    """For each user the live labels of the regions that suit them best: one label speaks for its cluster.

    `clusters`: by label. The one with the lowest number among the live ones is its speaker.
    """
    topk.require_count(regions, "regions")
    labels = np.flatnonzero(live)
    _, first, of_label = np.unique(clusters[labels], return_index=True, return_inverse=True)
    speaks = np.zeros(len(clusters), dtype=bool)
    speaks[labels[first]] = True
    place = np.full(len(clusters), -1)
    place[labels[first]] = np.arange(len(first))
    members = Ragged(offsets_of(np.bincount(of_label)), labels[np.argsort(of_label, kind="stable")].astype(np.int32))
    found = [members.take(place[lists.labels.values]) for lists in scorer.all_interests(regions, users, speaks)]
    sizes = np.concatenate([part for _, part in found])
    per_user = np.add.reduceat(sizes, np.arange(0, len(sizes), min(regions, len(first))))
    return Ragged(offsets_of(per_user), np.concatenate([part for part, _ in found]))


def interests(scorer: Scorer, users: Ints, candidates: Ragged, k: int, live: Mask | None = None) -> Iterator[Lists]:
    """The k best of each user's candidates, exactly; row i of the candidates is for users[i]."""
    topk.require_count(k, "labels")
    if len(candidates) != len(users):
        raise DataError(f"{len(users):,} users have {len(candidates):,} lists of candidates. Give one list to each.")
    allowed(live, scorer.labels)
    return (
        _settled(scorer, np.asarray(users)[span.start : span.stop], candidates.part(span.start, span.stop), k, live)
        for span in spans(len(users), AT_ONCE)
    )


def recall(scorer: Scorer, users: Ints, candidates: Ragged, k: int, live: Mask | None = None) -> Doubles:
    """(users,): the share of each user's k best labels, by an exact search, that is among the candidates."""
    exact = (lists.labels[row] for lists in scorer.all_interests(k, users, live) for row in range(len(lists.users)))
    return np.array([_share(wanted, candidates[at]) for at, wanted in enumerate(exact)])


def _share(wanted: Labels, there: Labels) -> float:
    return float(np.isin(wanted, there).mean()) if len(wanted) else 1.0


def _tidy(candidates: Ragged, live: Mask | None, labels: int) -> Ragged:
    """Without repeats and without labels that are not live."""
    values, sizes = candidates.take(np.arange(len(candidates)))
    if ((values < 0) | (values >= labels)).any():
        raise DataError(
            f"Some candidates are not among the {labels:,} labels. Make the shortlist for this label space."
        )
    kept = slice(None) if live is None else live[values]
    return _grouped(np.repeat(np.arange(len(sizes)), sizes)[kept], values[kept], len(sizes))


def _grouped(owner: Ints, values: Labels, owners: int) -> Ragged:
    pairs = np.sort((owner << 32) | values)
    pairs = pairs[np.diff(pairs, prepend=-1) > 0]  # np.unique hashes, which takes forty times as long here
    return Ragged(offsets_of(np.bincount(pairs >> 32, minlength=owners)), (pairs & 0xFFFFFFFF).astype(np.int32))


def _settled(scorer: Scorer, users: Ints, candidates: Ragged, k: int, live: Mask | None) -> Lists:
    fixed, off = scorer.fixed_users(users)
    tidy = _tidy(candidates, live, len(scorer.labels))
    wide = [tidy[at].astype(np.int64) for at in range(len(users))]

    def some(span: range) -> list[tuple[Ints, Floats]]:
        work = fast.buffers(scorer.mlp, scorer.block)
        return [_near(scorer, fixed[at], wide[at], float(off[at]), k, work) for at in span]

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
        fast.score_block(scorer.mlp, scorer.labels.halves, labels[place], fixed, work, rough[place])
    require_numbers(rough, labels, scorer.labels)
    near = topk.candidates(rough, k, off)
    return labels[near], rough[near]
