"""The n best of many, so that the order is that of the exact scores: higher first, then the lower row.

Let each approximate score be off by at most `bound`. The n rows with the best of them have exact scores of at least
worst − bound, where worst is the n-th best approximate score, so the n-th best exact score is no lower. A row that
belongs to the exact n best therefore has an approximate score of at least worst − 2 · bound. These rows are scored
exactly, and no other can be missing.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from merit.core.errors import DataError
from merit.core.ragged import offsets_of
from merit.core.types import Floats, Ints
from merit.retrieval.exact import Doubles


class Ranked(NamedTuple):
    """The best rows (users, or labels) and their exact scores, best first."""

    rows: Ints
    scores: Doubles


def require_count(count: int, of_what: str) -> None:
    """Refuse counts below one; `of_what` tells in the message what was to be ranked."""
    if count < 1:
        raise DataError(f"{count} {of_what} cannot be ranked. Ask for 1 or more.")


def candidates(scores: Floats, n: int, bound: float) -> Ints:
    """Places, ascending, of every score that can be among the n best once scored exactly."""
    if n >= len(scores):
        return np.arange(len(scores))
    worst = np.partition(scores, len(scores) - n)[len(scores) - n]
    return np.flatnonzero(scores >= np.float64(worst) - 2 * bound)


def order(rows: NDArray[Any], scores: NDArray[Any], n: int) -> Ints:
    """Places of the n best: higher scores first, among equal ones the lower row."""
    return np.lexsort((rows, -scores))[:n]


def order_within(owner: Ints, rows: NDArray[Any], scores: NDArray[Any], n: int, owners: int) -> tuple[Ints, Ints]:
    """The same for each owner of some of the rows: places, owner after owner, and how many each owner has."""
    places = np.lexsort((rows, -scores, owner))
    sizes = np.bincount(owner, minlength=owners)
    rank = np.arange(len(owner)) - np.repeat(offsets_of(sizes)[:-1], sizes)
    return places[rank < n], np.minimum(sizes, n)
