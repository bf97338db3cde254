"""From labels to verticals: P(g | u) = Σ_c P(g | c) P(c | u).

    likelihood = given_label(labels, verticals, counts, shape)     # from training data alone
    roll_up(probabilities, likelihood)                             # (users, labels) → (users, verticals)

P(c | u) are calibrated probabilities of labels one by one, so they need not add up to 1 and neither need the result: it
is how many interests of that vertical the user is expected to have, and ranks users within a vertical.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_array

from merit.core.errors import DataError
from merit.core.ragged import Ragged
from merit.core.types import Ints
from merit.retrieval.exact import Doubles


def given_label(
    labels: Ints, verticals: Ints, counts: NDArray[np.integer], shape: tuple[int, int], strength: float = 1.0
) -> Doubles:
    """(labels, verticals): P(g | c) from how often training events of label c were of vertical g.

    Each label is given `strength` events spread as all events are, so that a label never met in training has the
    overall shares and one event is not taken for certainty.
    """
    if not len(labels) or counts.sum() <= 0:
        raise DataError(
            "No training event names both a label and a vertical. Give the items of the catalogue verticals."
        )
    seen = np.bincount(labels * shape[1] + verticals, weights=counts, minlength=shape[0] * shape[1]).reshape(shape)
    overall = seen.sum(axis=0) / seen.sum()
    made: Doubles = (seen + strength * overall) / (seen.sum(axis=1, keepdims=True) + strength)
    return made


def roll_up(probabilities: NDArray[np.floating], likelihood: Doubles) -> Doubles:
    """(users, verticals) from the probabilities of all labels, (users, labels)."""
    made: Doubles = probabilities.astype(np.float64) @ likelihood
    return made


def roll_up_lists(labels: Ragged, probabilities: NDArray[np.floating], likelihood: Doubles) -> Doubles:
    """The same from a list of labels per user; labels outside the list count as 0."""
    shape = (len(labels), len(likelihood))
    parts = csr_array((probabilities.astype(np.float64), labels.values, labels.offsets), shape=shape)
    made: Doubles = parts @ likelihood
    return made
