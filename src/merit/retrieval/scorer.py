"""Users for a label, labels for a user, and the score of any pair.

    scorer = Scorer.read(mlp, users_folder, labels_folder)
    rows, scores = scorer.audience(label_vector, n=20_000)       # a listed label's vector, or that of any phrase
    rows, scores = scorer.interests(user_vector, k=20)

Every row is scored in float32 from the stored halves, block by block; those that can be among the best (see `topk`) are
scored again in float64 from their vectors, and these scores rank and are returned. Answers are the same for any size
of block, any number of threads and any form of stored halves. What stays in memory is a block, and 4 bytes per row.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import chain
from pathlib import Path
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from merit.core.errors import DamagedArtifact, DataError
from merit.core.ragged import Ragged, offsets_of
from merit.core.types import Floats, Ints
from merit.retrieval import fast, store, topk
from merit.retrieval.bound import Bound
from merit.retrieval.exact import Doubles, Exact, Layer
from merit.retrieval.mlp import Mlp
from merit.retrieval.store import Side
from merit.retrieval.threads import cores, each, spans
from merit.retrieval.topk import Ranked

Mask = NDArray[np.bool_]
PAIRS = 1_024  # scored exactly at a time, by one thread
MOST = 2 / 3  # of the rows: from there on all are scored, as to gather some of them costs more


class Lists(NamedTuple):
    """Ranked labels of several users: row i of `labels` belongs to users[i], and `scores` go along with its values."""

    users: Ints
    labels: Ragged
    scores: Doubles


class Scorer:
    """Users and labels, and the weights between them. Threads and block change its speed, and no ranking."""

    def __init__(
        self, mlp: Mlp, users: Side, labels: Side, threads: int | None = None, block: int | None = None
    ) -> None:
        self.mlp = mlp
        self.exact = Exact.of(mlp)
        self.bound = Bound.of(mlp)
        self.users, self.labels = users, labels
        self.threads = threads or cores()
        self.block = block or fast.block_rows(mlp)

    @staticmethod
    def read(mlp: Mlp, users: Path, labels: Path, threads: int | None = None) -> Scorer:
        """Over two folders that `store.write` made."""
        exact = Exact.of(mlp)
        return Scorer(mlp, store.read(users, exact.users), store.read(labels, exact.labels), threads)

    def of_users(self, rows: Ints) -> Scorer:
        """The same over some users, who are read into memory."""
        return Scorer(self.mlp, self.users.some(_rows(rows, self.users)), self.labels, self.threads, self.block)

    def audience(self, label: Floats, n: int, eligible: Mask | None = None) -> Ranked:
        """The n users most likely to want what this label vector says, of all or of the eligible ones."""
        topk.require_count(n, "users")
        half = self.exact.labels.halves(_one_vector(label, self.exact.labels, "label"))
        (found,) = self._best(self.users, self.exact.users, half, [n], allowed(eligible, self.users))
        return found

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
            self._best(self.users, self.exact.users, self.exact.labels.halves(vectors[part]), counts[part], rows)
            for part in parts
        )

    def interests(self, user: Floats, k: int, live: Mask | None = None) -> Ranked:
        """The k labels that a user vector leans towards most, of all or of the live ones."""
        topk.require_count(k, "labels")
        half = self.exact.users.halves(_one_vector(user, self.exact.users, "user"))
        (found,) = self._best(self.labels, self.exact.labels, half, [k], allowed(live, self.labels))
        return found

    def user_scores(self, label: Floats, exact: bool = False) -> Floats | Doubles:
        """(users,): what all users score for this label vector.

        In float32, or exact in ten times the time. Those in float32 are the same for any number of threads, and off by
        far less than `bound` can promise.
        """
        half = self.exact.labels.halves(_one_vector(label, self.exact.labels, "label"))[0]
        self.check()
        if exact:
            return self._sure(self.users, self.exact.users, half, np.arange(len(self.users)))
        fixed, _ = self._fix(half[None], self.users)
        rough: Floats = self._rough(self.users, fixed, None)[0]
        return rough

    def label_scores(self, users: Ints) -> Floats:
        """(users, labels): what these users score for all labels, in float32 as those of `user_scores`."""
        fixed, _ = self.fixed_users(users)
        return self._rough(self.labels, fixed, None)

    def score(self, users: Ints, labels: Ints) -> Doubles:
        """(n,): of pairs of rows."""
        users, labels = _rows(users, self.users), _rows(labels, self.labels)
        if len(users) != len(labels):
            raise DataError(f"{len(users):,} users and {len(labels):,} labels are not pairs. Give as many of each.")
        self.check()

        def chunk(span: range) -> Doubles:
            some = slice(span.start, span.stop)
            ours = _spread(self.users, self.exact.users, users[some])
            return self.exact.scores(ours, _spread(self.labels, self.exact.labels, labels[some]))

        return np.concatenate([np.empty(0), *each(chunk, spans(len(users), PAIRS), self.threads)])

    def against(self, users: Ints, label: Floats) -> Doubles:
        """(n,): of these users, in any order, with one label vector."""
        half = self.exact.labels.halves(_one_vector(label, self.exact.labels, "label"))[0]
        rows = _rows(users, self.users)
        self.check()
        return self.exact.scores(self.exact.users.halves(self.users.vectors.take(rows)), half)

    def grid(self, users: Ints, labels: Ints) -> Doubles:
        """(users, labels): of every pair of these rows."""
        users, labels = _rows(users, self.users), _rows(labels, self.labels)
        self.check()
        made = np.empty((len(users), len(labels)))
        ours = self.exact.users.halves(self.users.vectors.take(users))

        def columns(span: range) -> None:
            theirs = self.exact.labels.halves(self.labels.vectors.take(labels[span.start : span.stop]))
            for half, row in zip(ours, made, strict=True):
                row[span.start : span.stop] = self.exact.scores(half, theirs)

        share = max(1, min(PAIRS, -(-len(labels) // self.threads)))
        each(columns, spans(len(labels), share), self.threads)
        return made

    def all_interests(
        self, k: int, users: Ints | None = None, live: Mask | None = None, at_once: int = 32
    ) -> Iterator[Lists]:
        """The k best labels of all users, or of these, exactly: `at_once` users share every block of labels.

        That is users × labels products. Where it is too much, `shortlist.interests` scores only candidates.
        """
        topk.require_count(k, "labels")
        chosen = np.arange(len(self.users)) if users is None else _rows(users, self.users)
        rows = allowed(live, self.labels)
        return (self._lists(chosen[span.start : span.stop], rows, k) for span in spans(len(chosen), at_once))

    def settle(self, users: Ints, owner: Ints, labels: Ints, rough: Floats, off: Doubles, k: int) -> Lists:
        """Candidates ranked by exact scores: labels[i] for users[owner[i]], its `rough` score `off` by at most that."""
        sure = self.score(users[owner], labels)
        self._require_within(rough, sure, off[owner], "the users or the labels")
        places, sizes = topk.order_within(owner, labels, sure, k, len(users))
        return Lists(users, Ragged(offsets_of(sizes), labels[places].astype(np.int32)), sure[places])

    def fixed_users(self, users: Ints) -> tuple[list[fast.Fixed], Doubles]:
        """Users made ready for a pass over labels, and by how much (users,) their rough scores can be off."""
        self.check()
        return self._fix(self.exact.users.halves(self.users.vectors.take(_rows(users, self.users))), self.labels)

    def _best(
        self, side: Side, layer: Layer, halves: Doubles, counts: Sequence[int], rows: Ints | None
    ) -> Iterator[Ranked]:
        """The counts[i] best for halves[i] of the other side, in this order, of these rows (ascending) or of all."""
        self.check()
        fixed, bounds = self._fix(halves, side)
        for half, n, rough, off in zip(halves, counts, self._rough(side, fixed, rows), bounds.tolist(), strict=True):
            near = topk.candidates(rough, n, off)
            found = near if rows is None else rows[near]
            sure = self._sure(side, layer, half, found)
            self._require_within(rough[near], sure, off, side.name)
            order = topk.order(found, sure, n)
            yield Ranked(found[order], sure[order])

    def _rough(self, side: Side, fixed: list[fast.Fixed], rows: Ints | None) -> Floats:
        """(F, n) in float32: of these rows, or of all."""
        most = rows is not None and MOST * len(side) < len(rows)
        made = fast.scores(self.mlp, side.halves, fixed, None if most else rows, self.threads, self.block)
        kept = made[:, rows] if most else made
        require_numbers(kept, rows, side)
        return kept

    def _sure(self, side: Side, layer: Layer, half: Doubles, rows: Ints) -> Doubles:
        """(n,): exact scores of these rows, ascending, with one half of the other side."""

        def chunk(span: range) -> Doubles:
            some = rows[span.start : span.stop]
            made = self.exact.against(layer, side.vectors.take(some), half)
            side.vectors.release(range(int(some[0]), int(some[-1]) + 1))  # they lie far apart, and the map reads around
            return made

        return np.concatenate([np.empty(0), *each(chunk, spans(len(rows), PAIRS), self.threads)])

    def _lists(self, users: Ints, rows: Ints | None, k: int) -> Lists:
        fixed, off = self.fixed_users(users)
        rough = self._rough(self.labels, fixed, rows)
        near = [topk.candidates(row, k, one) for row, one in zip(rough, off.tolist(), strict=True)]
        owner = np.repeat(np.arange(len(users)), [len(places) for places in near])
        places = np.concatenate(near)
        return self.settle(users, owner, places if rows is None else rows[places], rough[owner, places], off, k)

    def _fix(self, halves: Doubles, against: Side) -> tuple[list[fast.Fixed], Doubles]:
        stored = halves.astype(np.float32)
        return fast.fix(self.mlp, stored), self.bound.most(against.norm, against.error, halves, stored)

    def check(self) -> None:
        """That no file was cut short since it was opened: a map of such a file would end the process."""
        self.users.check()
        self.labels.check()

    def _require_within(self, rough: Floats, sure: Doubles, off: Doubles | float, where: str) -> None:
        """The bound is proven, so a larger error means that halves and vectors do not belong together."""
        if (np.abs(rough - sure) > off).any():
            raise DamagedArtifact(f"The halves of {where} do not fit their vectors. Make them again with `merit run`.")


def require_numbers(rough: Floats, rows: Ints | None, side: Side) -> None:
    """Refuse rough scores, (n,) or (F, n), that are not finite, by the row of the side that gave them."""
    if not (good := np.isfinite(np.atleast_2d(rough)).all(axis=0)).all():
        place = int(np.argmin(good))
        raise DamagedArtifact(
            f"Row {place if rows is None else rows[place]:,} of {side.name} gives a score that is not a number: "
            "its half is damaged. Make the folder again with `merit run`."
        )


def _one_vector(vector: Floats, layer: Layer, what: str) -> Floats:
    """(1, D)"""
    return _vectors(np.asarray(vector)[None], layer, what)


def _vectors(vectors: Floats, layer: Layer, what: str) -> Floats:
    """(n, D)"""
    taken = np.asarray(vectors, np.float32)
    if taken.shape[1:] != layer.weight.shape[:1]:
        raise DataError(f"A {what} vector has {len(layer.weight)} numbers; this one has the shape {taken.shape[1:]}.")
    if not np.isfinite(taken).all():
        raise DataError(f"The {what} vector holds values that are not numbers. Encode the {what} again.")
    return taken


def _rows(rows: Ints, side: Side) -> Ints:
    taken = np.asarray(rows, np.int64)
    if len(wrong := taken[(taken < 0) | (taken >= len(side))]):
        raise DataError(f"{side.name} has rows 0 to {len(side) - 1:,}, and no row {wrong[0]}.")
    return taken


def allowed(mask: Mask | None, side: Side) -> Ints | None:
    """The rows a mask allows, ascending; None for all."""
    if mask is None:
        return None
    if mask.shape != (len(side),) or mask.dtype != np.bool_:
        raise DataError(f"A mask over {side.name} is {len(side):,} truth values; this is {mask.dtype} {mask.shape}.")
    return None if mask.all() else np.flatnonzero(mask)


def _spread(side: Side, layer: Layer, rows: Ints) -> Doubles:
    """(n, H + R): exact halves of rows that may repeat, each computed once."""
    distinct, place = np.unique(rows, return_inverse=True)
    return layer.halves(side.vectors.take(distinct))[place]
