"""Names that several packages share. No behaviour lives here."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal, Protocol, runtime_checkable

import numpy as np
from numpy.typing import NDArray

Event = Literal["view", "click", "cart", "purchase"]
Split = Literal["train", "validation", "test"]
SPLITS: tuple[Split, ...] = ("train", "validation", "test")
Status = Literal["live", "retired", "blocked"]

Floats = NDArray[np.float32]
Ints = NDArray[np.int64]


@runtime_checkable
class LabelEncoder(Protocol):
    """Texts → unit vectors. Any provider fits; nothing has to be inherited."""

    @property
    def fingerprint(self) -> str:
        """Changes whenever the same text could get another vector. Cached vectors are stored under it."""
        ...

    @property
    def dimension(self) -> int:
        """How many numbers each vector has."""
        ...

    def encode(self, texts: Sequence[str]) -> Floats:
        """One row of length one per text, in the order given."""
        ...

    def same(self, texts: Sequence[str]) -> list[str]:
        """A key per text: texts with equal keys cannot get different vectors (equal after tokenisation)."""
        ...
