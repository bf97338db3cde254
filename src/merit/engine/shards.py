"""Which rows are worked on together: a property of the job, never of who works on it.

A shard is done whole and in its own order, so its bytes are the same wherever that happens. All rows of a user are in
one shard, by a hash of the user's id and by nothing else.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from merit.core.seeds import derive, stable_hash
from merit.core.types import Ints
from merit.data.split import SALT

ROWS = 1_000  # some sixteen batches of prompts: full ones, yet little is lost when a worker is
MOST = 60_000


def number(rows: int) -> int:
    """How many shards so many rows make."""
    return min(MOST, max(1, math.ceil(rows / ROWS)))


def plan(user_ids: Sequence[str], shards: int) -> dict[int, Ints]:
    """By shard, ascending: its rows, ascending. Shards that nobody fell into are left out.

    The hash has a name of its own: users of one shard of `prepare` still fall into all shards here.
    """
    names, of_row = np.unique(np.array(user_ids, dtype=object), return_inverse=True)
    own = (derive(stable_hash(names.tolist(), SALT), 0, "engine") % np.uint64(shards)).astype(np.int64)
    return grouped(own[of_row.ravel()])


def grouped(shard: Ints) -> dict[int, Ints]:
    """The same of rows whose shards are known already."""
    order = np.argsort(shard, kind="stable")
    found, first = np.unique(shard[order], return_index=True)
    return dict(zip(found.tolist(), np.split(order, first[1:]), strict=True))
