"""Rows of numbers in fewer bytes: float16, or int8 with a scale per row. And what that costs, measured.

Small *halves* never change an answer: they only decide which rows are scored exactly, and the bound knows their error,
so more rows are. Small *vectors* do change scores; `loss` says how much.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

from merit.core.errors import DataError
from merit.core.types import Floats
from merit.retrieval.topk import Ranked

Form = Literal["float32", "float16", "int8"]
Codes = NDArray[Any]
DTYPES: dict[Form, str] = {"float32": "<f4", "float16": "<f2", "int8": "|i1"}
LARGEST = 127  # of int8, the same both ways: a row and its negative keep the same scale


def encode(rows: Floats, form: Form) -> tuple[Codes, Floats | None]:
    """Codes (n, D), and for int8 the scales (n,)."""
    if form == "int8":
        scales = np.abs(rows).max(axis=1, initial=0).astype(np.float32) / np.float32(LARGEST)
        scales[scales == 0] = 1
        return np.clip(np.rint(rows / scales[:, None]), -LARGEST, LARGEST).astype(np.int8), scales
    with np.errstate(over="ignore"):
        codes = rows.astype(DTYPES[form])
    if not np.isfinite(codes).all():
        raise DataError(f"Some numbers are too large for {form}. Store them as float32.")
    return codes, None


def decode(codes: Codes, scales: Floats | None) -> Floats:
    """(n, D) in float32: always a copy, which the caller may change."""
    wide = codes.astype(np.float32)
    return wide if scales is None else wide * scales[:, None]


class Loss(NamedTuple):
    """Of all questions together: what became of their answers."""

    kept: float  # of the rows that the full vectors rank among the best, the share that is still there
    difference: float  # the largest change of a score, over the rows in both


def loss(full: Sequence[Ranked], small: Sequence[Ranked]) -> Loss:
    """What the same questions lose when they are answered from smaller storage."""
    kept, asked, difference = 0, 0, 0.0
    for one, other in zip(full, small, strict=True):
        _, at, there = np.intersect1d(one.rows, other.rows, assume_unique=True, return_indices=True)
        kept, asked = kept + len(at), asked + len(one.rows)
        difference = max(difference, float(np.abs(one.scores[at] - other.scores[there]).max(initial=0)))
    return Loss(kept / asked if asked else 1.0, difference)
