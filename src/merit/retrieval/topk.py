"""The n best of many, in the order of their exact scores: higher first, then the lower row.

Let each approximate score be off by at most `bound`. The n rows with the best of them have exact scores of at least
worst − bound, where worst is the n-th best approximate score, so the n-th best exact score is no lower. A row that
belongs to the exact n best therefore has an approximate score of at least worst − 2 · bound. These rows are scored
exactly, and no other can be missing.

Repeats change the scores of a few rows. A row without an addition that is among the n best in total is among the n + m
best without additions, where m is the number of additions below zero: only such a row can fall from above it. So those,
and every row with an addition, are all that has to be ranked again (`merged`).
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from merit.core.errors import DataError
from merit.core.ragged import Ragged, offsets_of, owners, pair_keys
from merit.core.types import Floats, Ints
from merit.retrieval.exact import Doubles


class Ranked(NamedTuple):
    """The best rows (users, or labels) and their exact scores, best first."""

    rows: Ints
    scores: Doubles


class RankedLists(NamedTuple):
    """Ranked labels of several users: row i of `labels` belongs to users[i], and `scores` go along with its values."""

    users: Ints
    labels: Ragged
    scores: Doubles

    def pairs(self, n_labels: int) -> Ints:
        """A number for every pair of user and label."""
        return np.repeat(self.users, self.labels.lengths()) * n_labels + self.labels.values


def require_count(count: int, of_what: str) -> None:
    """Refuse counts below one; `of_what` is for the message."""
    if count < 1:
        raise DataError(f"{count} {of_what} cannot be ranked. Ask for 1 or more.")


def candidates(scores: Floats, n: int, bound: float) -> Ints:
    """Positions, ascending, of every score that can be among the n best once scored exactly."""
    if n >= len(scores):
        return np.arange(len(scores))
    worst = np.partition(scores, len(scores) - n)[len(scores) - n]
    return np.flatnonzero(scores >= np.float64(worst) - 2 * bound)


def order(rows: NDArray[Any], scores: NDArray[Any], n: int) -> Ints:
    """Positions of the n best: higher scores first, among equal ones the lower row."""
    return np.lexsort((rows, -scores))[:n]


def order_within(owner: Ints, rows: NDArray[Any], scores: NDArray[Any], n: int, count: int) -> tuple[Ints, Ints]:
    """The same for each owner of some of the rows: positions, owner after owner, and how many each owner has."""
    positions = np.lexsort((rows, -scores, owner))
    sizes = np.bincount(owner, minlength=count)
    rank = np.arange(len(owner)) - np.repeat(offsets_of(sizes)[:-1], sizes)
    return positions[rank < n], np.minimum(sizes, n)


def merged(dense: Ranked, rows: Ints, scores: Doubles, added: Doubles, n: int) -> Ranked:
    """The n best. `dense` holds the n + m best without additions; `rows` have `scores`, and `added` on top."""
    others = ~np.isin(dense.rows, rows)
    all_rows = np.concatenate([dense.rows[others], rows])
    totals = np.concatenate([dense.scores[others], scores + added])
    positions = order(all_rows, totals, n)
    return Ranked(all_rows[positions], totals[positions])


def merged_lists(
    dense: RankedLists, rows: Ragged, scores: Doubles, added: Doubles, k: int, n_labels: int
) -> RankedLists:
    """The same for several users at once: row i of `rows` has the labels that users[i] gets an addition for."""
    others = ~np.isin(pair_keys(dense.labels, n_labels), pair_keys(rows, n_labels))
    labels = np.concatenate([dense.labels.values[others], rows.values]).astype(np.int64)
    totals = np.concatenate([dense.scores[others], scores + added])
    owner = np.concatenate([owners(dense.labels)[others], owners(rows)])
    positions, sizes = order_within(owner, labels, totals, k, len(dense.users))
    return RankedLists(dense.users, Ragged(offsets_of(sizes), labels[positions].astype(np.int32)), totals[positions])
