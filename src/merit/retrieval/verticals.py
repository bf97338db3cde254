"""From labels to verticals: P(g | u) = Σ_c P(g | c) P(c | u).

P(c | u) are calibrated probabilities of labels one by one, so they need not add up to 1 and neither need the result: it
is how many interests of that vertical the user is expected to have, and ranks users within a vertical.
"""

from __future__ import annotations

import numpy as np
import polars as pl
from numpy.typing import NDArray

from merit.core.artifacts import Artifact
from merit.core.errors import DataError
from merit.core.types import Floats, Ints
from merit.data.corpus import VERTICALS, vertical_names
from merit.labels.space import LabelSpace
from merit.retrieval.exact import Doubles


def vertical_shares(corpus: Artifact, labels: LabelSpace) -> tuple[Floats, list[str]]:
    """(labels, verticals): P(vertical | label) from training events alone; and the names of the verticals."""
    names = vertical_names(corpus, labels)
    return shares_of(pl.read_parquet(corpus.file(VERTICALS)), names, len(labels)), names


def shares_of(table: pl.DataFrame, names: list[str], labels: int) -> Floats:
    """(labels, verticals): P(vertical | label), from events by label and vertical."""
    verticals = table["vertical"].replace_strict(names, range(len(names)), return_dtype=pl.Int64).to_numpy()
    events = table["label"].to_numpy().astype(np.int64), verticals, table["count"].to_numpy()
    return given_label(*events, (labels, len(names))).astype(np.float32)


def given_label(
    labels: Ints, verticals: Ints, counts: NDArray[np.integer], shape: tuple[int, int], strength: float = 1.0
) -> Doubles:
    """(labels, verticals): P(g | c) from how often training events of label c were of vertical g.

    Each label is given `strength` events spread as all events are, so that a label without training events has the
    overall shares and one event is not taken for certainty.
    """
    if not len(labels) or counts.sum() <= 0:
        raise DataError(
            "No training event names both a label and a vertical. Give the items of the catalogue verticals."
        )
    seen = np.bincount(labels * shape[1] + verticals, weights=counts, minlength=shape[0] * shape[1]).reshape(shape)
    overall = seen.sum(axis=0) / seen.sum()
    likelihood: Doubles = (seen + strength * overall) / (seen.sum(axis=1, keepdims=True) + strength)
    return likelihood


def roll_up(probabilities: NDArray[np.floating], likelihood: Doubles) -> Doubles:
    """(users, verticals) from the probabilities of all labels, (users, labels)."""
    expected: Doubles = probabilities.astype(np.float64) @ likelihood
    return expected
