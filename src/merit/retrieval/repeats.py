"""What few pairs get on top of their scores, and rankings with it: repeats, and labels that the generator finds likely.

The scorer ranks users and labels without them; the pairs that have something are ranked again (`topk.merged`).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from merit.core.ragged import Ragged, offsets_of, owners, pair_keys, ranges, select
from merit.core.types import Floats, Ints
from merit.propensity.score import repeat_score
from merit.retrieval import shortlist, topk
from merit.retrieval.exact import Doubles
from merit.retrieval.scorer import Mask, Scorer
from merit.retrieval.topk import Ranked, RankedLists

Added = tuple[Ints, Doubles]  # users, ascending, and what is added to their scores


@dataclass(frozen=True)
class Repeats:
    """The histories of all users, and the weights of repeats."""

    history: Ragged
    """By user: labels."""
    times: NDArray[Any]  # beside history.values
    totals: Doubles
    """By user: all labels of the history, repeats counted."""
    weights: tuple[float, float, float]
    """For being there at all, for the logarithm of how often, for that of the share of the history."""
    of_label: Doubles
    """By label: how much more than the average one it is bought again."""

    @staticmethod
    def of(history: Ragged, times: NDArray[Any], weights: tuple[float, float, float], of_label: Doubles) -> Repeats:
        """Totals are added up from `times`; that of an empty history is one."""
        owner = owners(history)
        totals = np.bincount(owner, weights=times, minlength=len(history)).astype(np.float64)
        return Repeats(history, times, np.maximum(totals, 1), weights, of_label)

    def also(self, users: Ints, labels: Ints, times: Doubles) -> Repeats:
        """With labels that products of a history name, though it does not have them; its total stays as it is."""
        owner = np.concatenate([owners(self.history), users])
        order = np.argsort(owner, kind="stable")
        values = np.concatenate([self.history.values, labels.astype(np.int32)])[order]
        history = Ragged(offsets_of(np.bincount(owner, minlength=len(self.history))), values)
        return replace(self, history=history, times=np.concatenate([self.times, times])[order])

    def users_with(self, label: int) -> Added:
        """The users who have a label in the history, and what that adds."""
        positions = np.flatnonzero(self.history.values == label)
        users = np.searchsorted(self.history.offsets, positions, side="right") - 1
        return users, self.added(self.times[positions], self.totals[users], self.of_label[label])

    def of_users(self, rows: Ints) -> Doubles:
        """Beside the labels of these users' histories: what they add."""
        positions, sizes = ranges(self.history.offsets[rows], self.history.offsets[rows + 1])
        return self.added(
            self.times[positions], np.repeat(self.totals[rows], sizes), self.of_label[self.history.values[positions]]
        )

    def added(self, times: NDArray[Any], totals: NDArray[Any], of_label: NDArray[Any] | float) -> Doubles:
        """What labels add that are so often in histories of these totals."""
        return repeat_score(times, np.maximum(times, 1) / totals, self.weights, of_label)


def weights_of(arrays: Mapping[str, NDArray[Any]], labels: int) -> tuple[tuple[float, float, float], Doubles]:
    """The weights of repeats and, by label, how much more it is bought again; zero for labels added later."""
    first, often, share = arrays["repeat"].astype(np.float64).tolist()
    of_label = arrays["repeat_labels"].astype(np.float64)
    return (first, often, share), np.pad(of_label, (0, labels - len(of_label)))


@dataclass(frozen=True)
class Additions:
    """Repeats, and what likely labels of the generator add; of each user a few labels have either or both."""

    repeats: Repeats
    likely: Ragged
    """By user: labels."""
    scores: Doubles  # beside likely.values
    labels: int
    """In the label space."""

    def users_with(self, label: int) -> Added:
        """The users for whom something is added to a label, and what."""
        positions = np.flatnonzero(self.likely.values == label)
        users = np.searchsorted(self.likely.offsets, positions, side="right") - 1
        return both(self.repeats.users_with(label), (users, self.scores[positions]))

    def by_label(self, labels: Ints, rows: Ints) -> list[Added]:
        """The same for several labels and some users (ascending): sorted once, where `users_with` looks through all."""
        lists, added = self.of_users(rows)
        order = np.argsort(lists.values, kind="stable")
        users, added = np.repeat(rows, lists.lengths())[order], added[order]
        ends = np.stack([labels, labels + 1], axis=1).astype(lists.values.dtype)  # of another type, all were copied
        return [
            (users[start:stop], added[start:stop])
            for start, stop in np.searchsorted(lists.values[order], ends).tolist()
        ]

    def of_users(self, rows: Ints) -> tuple[Ragged, Doubles]:
        """By user: the labels for which something is added, ascending; and beside them what."""
        history, likely = self.repeats.history.gather(rows), self.likely.gather(rows)
        keys, place = np.unique(
            np.concatenate([pair_keys(history, self.labels), pair_keys(likely, self.labels)]), return_inverse=True
        )
        values = np.concatenate([self.repeats.of_users(rows), self.likely.beside(self.scores, rows)])
        sizes = np.bincount(keys // self.labels, minlength=len(rows)).astype(np.int64)
        added: Doubles = np.bincount(place, weights=values, minlength=len(keys)).astype(np.float64)
        return Ragged(offsets_of(sizes), (keys % self.labels).astype(np.int32)), added


def both(one: Added, other: Added) -> Added:
    """What both add, by user."""
    users, place = np.unique(np.concatenate([one[0], other[0]]), return_inverse=True)
    added = np.bincount(place, weights=np.concatenate([one[1], other[1]]), minlength=len(users))
    return users, added.astype(np.float64)


@dataclass(frozen=True)
class RepeatScorer:
    """The scorer with what repeats and likely labels add: all answers of a model are ranked by it."""

    scorer: Scorer
    additions: Additions

    def scores(self, rows: Ints, vector: Floats, additions: Added) -> Doubles:
        """(n,): the scores of these users for one label vector."""
        added = np.zeros(len(self.scorer.users))
        added[additions[0]] = additions[1]
        return self.scorer.against(rows, self.scorer.label_projection(vector)) + added[rows]

    def user_scores(self, vector: Floats, additions: Added) -> Doubles:
        """(users,): the scores of all users for one label vector, from float32."""
        users, added = additions
        scores = self.scorer.user_scores(vector).astype(np.float64)
        scores[users] += added
        return scores

    def label_scores(self, rows: Ints, labels: Ints) -> Doubles:
        """(users, labels): the scores of these users for these labels, from float32."""
        scores = self.scorer.label_scores(rows)[:, labels].astype(np.float64)
        lists, added = self.additions.of_users(rows)
        column_of = np.full(len(self.scorer.labels), -1)
        column_of[labels] = np.arange(len(labels))
        owner, column = owners(lists), column_of[lists.values]
        scores[owner[column >= 0], column[column >= 0]] += added[column >= 0]
        return scores

    def audiences(
        self, vectors: Floats, additions: Sequence[Added], n: int, rows: Ints | None = None
    ) -> Iterator[Ranked]:
        """The n best for each label vector, of all users or of these (ascending), among whom additions must be."""
        ranked = self.scorer.audiences(vectors, [n + _below_zero(added) for _, added in additions], rows)
        for vector, dense, (users, added) in zip(vectors, ranked, additions, strict=True):
            yield topk.merged(dense, users, self.scorer.against(users, self.scorer.label_projection(vector)), added, n)

    def interests(
        self, rows: Ints, k: int, live: Mask, clusters: Ints, regions: int | None = None
    ) -> Iterator[RankedLists]:
        """The k best live labels of these users, of all or, approximately, of each user's best regions."""
        lists, added = self.additions.of_users(rows)
        more = _below_zero(added) and int(lists.lengths().max())
        k_dense = min(k + more, int(live.sum()))
        if regions is None:
            dense_lists = self.scorer.all_interests(k_dense, rows, live)
        else:
            dense_lists = shortlist.interests(self.scorer, rows, clusters, regions, k_dense, live)
        for dense in dense_lists:
            alive, added = self._alive(dense.users, live)
            scores = self.scorer.score(np.repeat(dense.users, alive.lengths()), alive.values.astype(np.int64))
            yield topk.merged_lists(dense, alive, scores, added, k, len(live))

    def _alive(self, rows: Ints, live: Mask) -> tuple[Ragged, Doubles]:
        lists, added = self.additions.of_users(rows)
        is_live = live[lists.values]
        return select(lists, is_live), added[is_live]


def _below_zero(added: Doubles) -> int:
    """m of `topk`: how many more must be ranked without additions."""
    return int((added < 0).sum())
