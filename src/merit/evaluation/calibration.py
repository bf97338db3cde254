"""Do probabilities keep their word? What was promised against what came true, in bins of probability.

Bins are even in log-odds: interests are rare, and nearly all pairs would fall into the first of ten even bins.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import polars as pl
from numpy.typing import NDArray

Reals = NDArray[np.float64]
EDGES = np.concatenate([[0.0], 1 / (1 + np.exp(-np.arange(-12, 5, 0.5))), [1.0]])


@dataclass
class Bins:
    """Sums over pairs, by group and bin of probability."""

    pairs: Reals  # (groups, bins)
    promised: Reals
    true: Reals
    squares: Reals  # of promise - truth

    @staticmethod
    def empty(groups: int) -> Bins:
        """All sums zero, to be added to; `groups` is how many there will be."""
        return Bins(*(np.zeros((groups, len(EDGES) - 1)) for _ in range(4)))

    def add(self, probability: Reals, truth: NDArray[np.bool_], group: NDArray[np.integer]) -> None:
        """Any number of pairs; the three arrays have one shape."""
        place = np.clip(np.searchsorted(EDGES, probability, side="right") - 1, 0, len(EDGES) - 2)
        cell = (group * (len(EDGES) - 1) + place).ravel()
        hit = truth.ravel().astype(np.float64)
        promise = probability.ravel()
        for name, weights in {"pairs": None, "promised": promise, "true": hit, "squares": (promise - hit) ** 2}.items():
            total = getattr(self, name)
            total += np.bincount(cell, weights=weights, minlength=total.size).reshape(total.shape)

    def table(self, groups: list[str]) -> pl.DataFrame:
        """A row for every group and bin that has pairs."""
        rows, places = np.nonzero(self.pairs)
        return pl.DataFrame(
            {
                "vertical": pl.Series([groups[row] for row in rows], dtype=pl.String),
                "low": EDGES[places],
                "high": EDGES[places + 1],
                "pairs": self.pairs[rows, places],
                "promised": self.promised[rows, places],
                "true": self.true[rows, places],
                "squares": self.squares[rows, places],
            }
        )


@dataclass(frozen=True)
class Reliability:
    """How well a table's probabilities keep their word; all figures are zero where it has no pairs."""

    ece: float
    """Expected calibration error: the mean distance of promise and truth over bins, by pairs."""
    ece_likely: float
    """The same among pairs promised 1 % and more: with rare interests the first figure is small for any model."""
    brier: float
    prevalence: float
    pairs: int


LIKELY = 0.01
DISTANCE, LIKELY_BIN = (pl.col("promised") - pl.col("true")).abs(), pl.col("promised") / pl.col("pairs") >= LIKELY
FIGURES = {
    "ece": DISTANCE.sum() / pl.col("pairs").sum(),
    "ece_likely": DISTANCE.filter(LIKELY_BIN).sum() / pl.col("pairs").filter(LIKELY_BIN).sum(),
    "brier": pl.col("squares").sum() / pl.col("pairs").sum(),
    "prevalence": pl.col("true").sum() / pl.col("pairs").sum(),
    "pairs": pl.col("pairs").sum().cast(pl.Int64),
}


def summary(table: pl.DataFrame) -> Reliability:
    """Over all groups of the table."""
    return Reliability(**by_bin(table).select(**FIGURES).fill_nan(0).row(0, named=True))


def by_bin(table: pl.DataFrame) -> pl.DataFrame:
    """The sums of all verticals together, a row for each bin that has pairs, the least likely first."""
    sums = pl.col("pairs", "promised", "true", "squares").sum()
    return table.group_by("low", "high").agg(sums).sort("low")


def by_vertical(table: pl.DataFrame) -> pl.DataFrame:
    """One row for each vertical."""
    parts = table.partition_by("vertical", as_dict=True)
    return pl.DataFrame([{"vertical": name, **vars(summary(part))} for (name,), part in sorted(parts.items())])
