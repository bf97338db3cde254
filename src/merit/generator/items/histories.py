"""What the item generator reads of a user: the items of the history with their age, and what the factor model reads."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import polars as pl
import torch
from torch import Tensor

from merit.core.artifacts import Artifact
from merit.core.ragged import Ragged, column_lists
from merit.core.types import Ints
from merit.generator.items.contents import age_steps
from merit.propensity.features import HISTORY, UserFeatures, features_of, no_states

COLUMNS = (*HISTORY, "items", "days")


class Positions(NamedTuple):
    """Histories as tensors (B, L), the nearest item first. L is one at least, so that every user has a position."""

    items: Tensor  # -1 for none
    ages: Tensor
    valid: Tensor  # whether there is an item; the first position is read in any case


@dataclass(frozen=True)
class ItemHistories:
    """Rows of the corpus."""

    items: Ragged  # the nearest last
    days: Ragged  # beside them
    features: UserFeatures

    @staticmethod
    def of(corpus: Artifact, rows: pl.DataFrame, most: int) -> ItemHistories:
        """Of rows with the columns COLUMNS; so many items of each are read."""
        items, days = (column_lists(rows[name]).tail(most) for name in ("items", "days"))
        return ItemHistories(items, days, features_of(corpus, rows, no_states(len(rows))))

    def __len__(self) -> int:
        return len(self.items)

    def gather(self, rows: Ints) -> ItemHistories:
        """These rows, in this order."""
        return ItemHistories(self.items.gather(rows), self.days.gather(rows), self.features.gather(rows))

    @property
    def weeks(self) -> Ints:
        """(rows,): the week of each; beyond all where the features tell of none, so that the last one counts."""
        trends = self.features.trends
        return trends.weeks if trends else np.full(len(self), np.iinfo(np.int64).max)

    def positions(self) -> Positions:
        """All rows as tensors."""
        items = torch.from_numpy(self.items.backwards().padded())
        ages = torch.from_numpy(age_steps(self.days.backwards().padded(0)))
        valid = items >= 0
        valid[:, 0] = True
        return Positions(items, ages, valid)

    def lengths(self) -> Ints:
        """(rows,): how many items each has."""
        return np.maximum(1, self.items.lengths())
