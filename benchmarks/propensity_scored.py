"""P@k and PSP@k: precision among the first k labels, as it is, and as if no true label had been overlooked.

Who tags texts forgets rare labels more often than frequent ones. Jain et al. (2016) model how likely a label is to be
noticed where it applies, by how often it is seen,

    p_l = 1 / (1 + C (N_l + B)^-A),    C = (ln N - 1) (B + 1)^A,

and count a hit as 1 / p_l: finding what is rarely said is worth more. (Their propensity is that of being labelled, not
the user's.) PSP@k is what was gained over what the best list of k could have gained, both summed over documents.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from merit.core.errors import DataError
from merit.core.ragged import Ragged, head, owners, ranks
from merit.core.types import Ints
from merit.evaluation.uncertainty import Metric, Reals, per_user

A, B = 0.55, 1.5  # the repository's, for all but its Wikipedia and Amazon sets
FEWEST = 3  # documents: with less, C is below zero


def inverse_propensities(counts: Ints, documents: int, a: float = A, b: float = B) -> Reals:
    """1 / p_l by label, from how many training documents have it."""
    if documents < FEWEST:
        raise DataError(f"Propensities need at least {FEWEST} training documents, not {documents}. Bring more.")
    c = (np.log(documents) - 1) * (b + 1) ** a
    found: Reals = 1 + c * (np.asarray(counts, np.float64) + b) ** -a
    return found


def measure(said: Ragged, gold: Ragged, worth: Reals, ks: Sequence[int] = (1, 3, 5)) -> dict[str, Metric]:
    """P@k, PSP@k and recall@k of ranked lists; `worth` is what a hit of each label counts in PSP."""
    return {
        name: metric
        for k in ks
        for name, metric in zip((f"P@{k}", f"PSP@{k}", f"R@{k}"), _at(said, gold, worth, k), strict=True)
    }


def label_counts(gold: Ragged, labels: int) -> Ints:
    """How many documents have each label."""
    return np.bincount(gold.values, minlength=labels).astype(np.int64)


def _at(said: Ragged, gold: Ragged, worth: Reals, k: int) -> tuple[Metric, Metric, Metric]:
    first = head(said, k)
    right = _hits(first, gold)
    who, size = owners(first)[right], len(gold)
    hits = per_user(who, size)
    gained = per_user(who, size, worth[first.values[right]])
    columns = ((hits, np.full(size, float(k))), (gained, _best(gold, worth, k)), (hits, gold.lengths().astype(float)))
    precision, scored, recall = (Metric(np.stack(pair, axis=1)) for pair in columns)
    return precision, scored, recall


def _hits(said: Ragged, gold: Ragged) -> np.ndarray[tuple[int], np.dtype[np.bool_]]:
    """Beside said.values: whether the label is a gold one of its document."""
    width = int(max(said.values.max(initial=0), gold.values.max(initial=0))) + 1
    return np.isin(owners(said) * width + said.values, owners(gold) * width + gold.values)


def _best(gold: Ragged, worth: Reals, k: int) -> Reals:
    """By document: what its k most valuable labels are worth."""
    order = np.lexsort((-worth[gold.values], owners(gold)))
    kept = ranks(gold) < k  # rows keep their places, so this picks the k most valuable of each
    return per_user(owners(gold)[kept], len(gold), worth[gold.values[order][kept]])
