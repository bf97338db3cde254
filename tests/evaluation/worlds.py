"""A small world to measure in: labels on a circle, so that every cosine is known."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from merit.core.ragged import Ragged
from merit.core.types import Floats
from merit.evaluation.predictions import Predictions, Truth


def circle(degrees: Sequence[float]) -> Floats:
    angles = np.deg2rad(np.asarray(degrees, dtype=np.float64))
    return np.stack([np.cos(angles), np.sin(angles)], axis=1).astype(np.float32)


def world(
    gold: Sequence[Sequence[int]],
    history: Sequence[Sequence[int]] | None = None,
    degrees: Sequence[float] = tuple(range(0, 360, 10)),
    user: Sequence[int] | None = None,
    counts: Sequence[int] | None = None,
) -> Truth:
    """Labels every 10°; verticals are the halves of the circle, clusters its quarters."""
    known = Ragged.of(history if history is not None else [[] for _ in gold])
    labels = np.arange(len(degrees))
    amounts = np.ones(len(known.values), dtype=np.int32) if counts is None else np.array(counts, dtype=np.int32)
    return Truth(
        gold=Ragged.of(gold),
        bought=Ragged.of([sorted({int(degrees[label] >= 180) for label in row}) for row in gold]),
        history=known,
        counts=amounts,
        purchases=amounts,
        user=np.arange(len(gold)) if user is None else np.array(user),
        vertical=(np.asarray(degrees) >= 180).astype(np.int64),
        verticals=["upper", "lower"],
        vectors=circle(degrees),
        cluster=(np.asarray(degrees) // 90).astype(np.int64) + 0 * labels,
    )


def said(
    lists: Sequence[Sequence[int]], method: str = "m", ranked: Sequence[Sequence[int]] | None = None
) -> Predictions:
    return Predictions(method, 0, Ragged.of(lists), None if ranked is None else Ragged.of(ranked))
