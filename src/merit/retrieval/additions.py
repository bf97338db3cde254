"""Scores of a few pairs are raised or lowered (a label the user already had): the best of all pairs, still exactly.

The dense part of a score is ranked by the scorer; what is added concerns few rows. A row without an addition that is
among the n best in total is among the n + m best of the dense part, where m is the number of additions below zero: only
such a row can fall from above it. So those, and every row with an addition, are all that has to be looked at.
"""

from __future__ import annotations

import numpy as np

from merit.core.ragged import Ragged, offsets_of
from merit.core.types import Ints
from merit.retrieval.exact import Doubles
from merit.retrieval.scorer import Lists
from merit.retrieval.topk import Ranked, order, order_within


def ahead(added: Doubles) -> int:
    """m: how many more of the dense part must be ranked."""
    return int((added < 0).sum())


def merged(dense: Ranked, rows: Ints, scores: Doubles, added: Doubles, n: int) -> Ranked:
    """The n best. `dense` holds the n + m best of the dense part; `rows` have dense `scores`, and `added` on top."""
    others = ~np.isin(dense.rows, rows)
    all_rows = np.concatenate([dense.rows[others], rows])
    totals = np.concatenate([dense.scores[others], scores + added])
    places = order(all_rows, totals, n)
    return Ranked(all_rows[places], totals[places])


def merged_lists(dense: Lists, rows: Ragged, scores: Doubles, added: Doubles, k: int, n_labels: int) -> Lists:
    """The same for several users at once: row i of `rows` has the labels that users[i] gets an addition for."""
    users = len(dense.users)
    owner, own = (np.repeat(np.arange(users), lists.lengths()) for lists in (dense.labels, rows))
    others = ~np.isin(owner * n_labels + dense.labels.values, own * n_labels + rows.values)
    labels = np.concatenate([dense.labels.values[others], rows.values]).astype(np.int64)
    totals = np.concatenate([dense.scores[others], scores + added])
    places, sizes = order_within(np.concatenate([owner[others], own]), labels, totals, k, users)
    return Lists(dense.users, Ragged(offsets_of(sizes), labels[places].astype(np.int32)), totals[places])
