"""Users for a label, labels for a user, and the score of any pair.

    scorer = Scorer.read(weights, users_folder, labels_folder)
    rows, scores = next(scorer.audiences(label_vectors, [20_000]))    # of labels in the space, or of any phrase
    users, labels, scores = next(scorer.all_interests(k=20))          # of the first users

Every row is scored in float32 from the stored projections, block by block; those that can be among the best (see
`topk`) are scored again in float64 from their vectors, and these scores rank and are returned. Answers are the same for
any size of block and any number of threads. What stays in memory is a block, and 4
bytes per row.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from copy import copy
from itertools import chain
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from merit.core.errors import DamagedArtifact, DataError
from merit.core.processes import cores
from merit.core.ragged import Ragged, offsets_of
from merit.core.types import Floats, Ints
from merit.retrieval import fast, store, topk
from merit.retrieval.exact import Doubles, Exact, Projection, ScorerWeights, map_threads, spans
from merit.retrieval.fast import Bound
from merit.retrieval.store import Side
from merit.retrieval.topk import Ranked, RankedLists

Mask = NDArray[np.bool_]
PAIRS = 1_024  # scored exactly at a time, by one thread
KEPT = 16_384  # rows of a side, at most, whose exact projections stay in memory: 16 MB
MOST = 2 / 3  # of the rows: from there on all are scored, as to gather some of them costs more


class Scorer:
    """Users and labels, and the weights between them. Threads and block change its speed, and no ranking."""

    def __init__(
        self, weights: ScorerWeights, users: Side, labels: Side, threads: int | None = None, block: int | None = None
    ) -> None:
        self.weights = weights
        self.exact = Exact.of(weights)
        self.bound = Bound.of(weights)
        self.users, self.labels = users, labels
        self._kept: dict[str, dict[str, tuple[Side, Doubles]]] = {"users": {}, "labels": {}}
        self.threads = threads or cores()
        self.block = block or max(fast.TALL, fast.CACHED // (4 * weights.width))  # rows in float32 that fill CACHED

    @staticmethod
    def read(weights: ScorerWeights, users: Path, labels: Path, threads: int | None = None) -> Scorer:
        """Over two folders that `store.write` made."""
        exact = Exact.of(weights)
        return Scorer(weights, store.read(users, exact.users), store.read(labels, exact.labels), threads)

    def of_users(self, rows: Ints) -> Scorer:
        """The same over some users, who are read into memory."""
        return self.over(self.users.subset(_rows(rows, self.users)))

    def over(self, users: Side) -> Scorer:
        """The same over other users; what was computed of the weights is shared."""
        scorer = copy(self)
        scorer.users, scorer._kept = users, self._kept | {"users": {}}
        return scorer

    def audiences(
        self, labels: Floats, counts: Sequence[int], users: Ints | None = None, at_once: int = 32
    ) -> Iterator[Ranked]:
        """The counts[i] users most likely to want labels[i], one label after the other, of all or of these (ascending).

        `at_once` label vectors share every block of users.
        """
        vectors = _vectors(labels, self.exact.labels, "label")
        if len(counts) != len(vectors):
            raise DataError(f"{len(vectors):,} labels have {len(counts):,} numbers of users. Give one to each.")
        topk.require_count(min(counts, default=1), "users")
        rows = None if users is None else _rows(users, self.users)
        parts = (slice(span.start, span.stop) for span in spans(len(vectors), at_once))
        return chain.from_iterable(
            self._audiences(self.exact.labels.of(vectors[part]), counts[part], rows) for part in parts
        )

    def user_scores(self, label: Floats) -> Floats:
        """(users,): the scores of all users for this label vector, in float32.

        They are the same for any number of threads, and off by far less than `bound` can promise.
        """
        self.check()
        fixed, _ = self._fix(self.label_projection(label)[None], self.users)
        scores: Floats = self._rough(self.users, fixed, None)[0]
        return scores

    def label_scores(self, users: Ints) -> Floats:
        """(users, labels): the scores of these users for all labels, in float32 as those of `user_scores`."""
        fixed, _ = self.fixed_users(users)
        return self._rough(self.labels, fixed, None)

    def score(self, users: Ints, labels: Ints) -> Doubles:
        """(n,): the scores of pairs of rows."""
        users, labels = _rows(users, self.users), _rows(labels, self.labels)
        if len(users) != len(labels):
            raise DataError(f"{len(users):,} users and {len(labels):,} labels are not pairs. Give as many of each.")
        self.check()

        def chunk(span: range) -> Doubles:
            part = slice(span.start, span.stop)
            return self.exact.scores(self._projected("users", users[part]), self._projected("labels", labels[part]))

        return np.concatenate([np.empty(0), *map_threads(chunk, spans(len(users), PAIRS), self.threads)])

    def _projected(self, name: str, rows: Ints) -> Doubles:
        """(n, H + R): exact projections of rows of `users` or `labels`, which may repeat.

        Of a small side all are computed once and kept; those of labels for all users, new histories among them.
        """
        side, projection = getattr(self, name), getattr(self.exact, name)
        if len(side) > KEPT:
            distinct, position = np.unique(rows, return_inverse=True)
            found: Doubles = projection.of(side.vectors.take(distinct))[position]
            return found
        kept = self._kept[name].get("all")
        if kept is None or kept[0] is not side:
            kept = self._kept[name]["all"] = (side, projection.of(side.vectors.take(slice(None))))
        projections: Doubles = kept[1][rows]
        return projections

    def label_projection(self, label: Floats) -> Doubles:
        """(H + R,): the projection of a label vector."""
        projections = self.exact.labels.of(_vectors(np.asarray(label)[None], self.exact.labels, "label"))
        return np.asarray(projections[0])

    def against(self, users: Ints, label: Doubles) -> Doubles:
        """(n,): the exact scores of these users, in any order, with the projection of one label."""
        users = _rows(users, self.users)
        self.check()

        def chunk(span: range) -> Doubles:
            rows, vectors = users[span.start : span.stop], self.users.vectors
            scores = self.exact.scores(self.exact.users.of(vectors.take(rows)), label)
            vectors.release(range(int(rows.min()), int(rows.max()) + 1))  # they lie far apart, the map reads around
            return scores

        return np.concatenate([np.empty(0), *map_threads(chunk, spans(len(users), PAIRS), self.threads)])

    def all_interests(
        self, k: int, users: Ints | None = None, live: Mask | None = None, at_once: int = 32
    ) -> Iterator[RankedLists]:
        """The k best labels of all users, or of these, exactly: `at_once` users share every block of labels.

        That is users × labels products. Where it is too much, `shortlist.interests` scores only candidates.
        """
        topk.require_count(k, "labels")
        chosen = np.arange(len(self.users)) if users is None else _rows(users, self.users)
        rows = allowed(live, self.labels)
        return (self._lists(chosen[span.start : span.stop], rows, k) for span in spans(len(chosen), at_once))

    def settle(self, users: Ints, owner: Ints, labels: Ints, rough: Floats, off: Doubles, k: int) -> RankedLists:
        """Candidates ranked by exact scores: labels[i] for users[owner[i]], its `rough` score `off` by at most that."""
        exact = self.score(users[owner], labels)
        _require_within(rough, exact, off[owner], "the users or the labels")
        positions, sizes = topk.order_within(owner, labels, exact, k, len(users))
        return RankedLists(users, Ragged(offsets_of(sizes), labels[positions].astype(np.int32)), exact[positions])

    def fixed_users(self, users: Ints) -> tuple[list[fast.Fixed], Doubles]:
        """Users made ready for a pass over labels, and how far (users,) their rough scores can be off."""
        self.check()
        return self._fix(self._projected("users", _rows(users, self.users)), self.labels)

    def _audiences(self, labels: Doubles, counts: Sequence[int], rows: Ints | None) -> Iterator[Ranked]:
        """The counts[i] best for the label projection labels[i], of these users (ascending) or of all."""
        self.check()
        fixed, bounds = self._fix(labels, self.users)
        scores = self._rough(self.users, fixed, rows)
        for projection, n, rough, off in zip(labels, counts, scores, bounds.tolist(), strict=True):
            near = topk.candidates(rough, n, off)
            users = near if rows is None else rows[near]
            exact = self.against(users, projection)
            _require_within(rough[near], exact, off, self.users.name)
            order = topk.order(users, exact, n)
            yield Ranked(users[order], exact[order])

    def _rough(self, side: Side, fixed: list[fast.Fixed], rows: Ints | None) -> Floats:
        """(F, n) in float32: of these rows, or of all."""
        most = rows is not None and MOST * len(side) < len(rows)
        scores = fast.scores(self.weights, side.projections, fixed, None if most else rows, self.threads, self.block)
        scores = scores[:, rows] if most else scores
        require_numbers(scores, rows, side)
        return scores

    def _lists(self, users: Ints, rows: Ints | None, k: int) -> RankedLists:
        fixed, off = self.fixed_users(users)
        rough = self._rough(self.labels, fixed, rows)
        near = [topk.candidates(row, k, bound) for row, bound in zip(rough, off.tolist(), strict=True)]
        owner = np.repeat(np.arange(len(users)), [len(positions) for positions in near])
        positions = np.concatenate(near)
        labels = positions if rows is None else rows[positions]
        return self.settle(users, owner, labels, rough[owner, positions], off, k)

    def _fix(self, projections: Doubles, against: Side) -> tuple[list[fast.Fixed], Doubles]:
        stored = projections.astype(np.float32)
        return fast.fix(self.weights, stored), self.bound.most(against.norm, against.error, projections, stored)

    def check(self) -> None:
        """Refuse files that were cut short since they were opened: a map of such a file would end the process."""
        self.users.check()
        self.labels.check()


def _require_within(rough: Floats, exact: Doubles, off: Doubles | float, where: str) -> None:
    """The bound is proven, so a larger error means that projections and vectors do not belong together."""
    if (np.abs(rough - exact) > off).any():
        raise DamagedArtifact(f"The projections of {where} do not fit their vectors. Make them again with `merit run`.")


def require_numbers(rough: Floats, rows: Ints | None, side: Side) -> None:
    """Refuse rough scores, (n,) or (F, n), that are not finite, by the row of the side that gave them."""
    if not (good := np.isfinite(np.atleast_2d(rough)).all(axis=0)).all():
        position = int(np.argmin(good))
        raise DamagedArtifact(
            f"Row {position if rows is None else rows[position]:,} of {side.name} gives a score that is not a number: "
            "its projection is damaged. Make the folder again with `merit run`."
        )


def _vectors(vectors: Floats, projection: Projection, what: str) -> Floats:
    """(n, D)"""
    array = np.asarray(vectors, np.float32)
    shape, width = array.shape[1:], len(projection.weight)
    if shape != (width,):
        raise DataError(f"A {what} vector has {width} numbers; this one has the shape {shape}.")
    if not np.isfinite(array).all():
        raise DataError(f"The {what} vector holds values that are not numbers. Encode the {what} again.")
    return array


def _rows(rows: Ints, side: Side) -> Ints:
    array = np.asarray(rows, np.int64)
    if len(wrong := array[(array < 0) | (array >= len(side))]):
        raise DataError(f"{side.name} has rows 0 to {len(side) - 1:,}, and no row {wrong[0]}.")
    return array


def allowed(mask: Mask | None, side: Side) -> Ints | None:
    """The rows a mask allows, ascending; None for all."""
    if mask is None:
        return None
    if mask.shape != (len(side),) or mask.dtype != np.bool_:
        raise DataError(f"A mask over {side.name} is {len(side):,} truth values; this is {mask.dtype} {mask.shape}.")
    return None if mask.all() else np.flatnonzero(mask)
