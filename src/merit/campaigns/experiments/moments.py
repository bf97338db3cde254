"""Sufficient statistics: all that an analysis needs of its users, in a few numbers that add up.

    frame.group_by("arm").agg(*sums(names, about))          # one pass, streaming, any number of rows
    from_sums(row, names, about)                            # → Moments of one arm
    merge([north, south])                                   # → Moments of both together

Values are summed about a point near them (`about`), not about zero: squares of numbers such as 1,700,000,003 leave no
digits for the differences between them.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations_with_replacement
from typing import Any

import numpy as np
import polars as pl
from numpy.typing import NDArray

Reals = NDArray[np.float64]
USERS = "users"
LOOKED_AT = 1_000  # rows that tell where a column's values lie


@dataclass(frozen=True, eq=False)
class Moments:
    """Users, their mean outcome and covariates, and how these vary together."""

    users: int
    mean: Reals
    """(1 + covariates,), the outcome first."""
    scatter: Reals
    """(1 + covariates, 1 + covariates): sums of products of deviations from the mean."""

    @property
    def covariance(self) -> Reals:
        """(1 + covariates, 1 + covariates): the scatter over users − 1, and over 1 for a single user."""
        return self.scatter / max(self.users - 1, 1)


def points_near(frame: pl.LazyFrame, names: Sequence[str]) -> dict[str, float]:
    """For each column a value among its first ones. Any will do: rounding then grows with the spread around it only."""
    found = frame.select(names).head(LOOKED_AT).median().collect(engine="streaming").row(0)
    return {name: float(value or 0.0) for name, value in zip(names, found, strict=True)}


def sums(names: Sequence[str], about: Mapping[str, float]) -> list[pl.Expr]:
    """The aggregations of one pass over rows. The columns must be Float64 without nulls."""
    away = {name: pl.col(name) - about[name] for name in names}
    return [
        pl.len().alias(USERS),
        *(value.sum().alias(f"Σ {name}") for name, value in away.items()),
        *((away[a] * away[b]).sum().alias(f"Σ {a} × {b}") for a, b in combinations_with_replacement(names, 2)),
    ]


def from_sums(row: Mapping[str, Any], names: Sequence[str], about: Mapping[str, float]) -> Moments:
    """One row of what `sums` aggregated."""
    users = int(row[USERS])
    first = np.array([row[f"Σ {name}"] for name in names], dtype=np.float64)
    second = np.zeros((len(names), len(names)))
    above = np.triu_indices(len(names))
    second[above] = [row[f"Σ {a} × {b}"] for a, b in combinations_with_replacement(names, 2)]
    second += np.triu(second, 1).T
    mean = np.array([about[name] for name in names]) + first / users
    return Moments(users, mean, second - np.outer(first, first) / users)


def merge(parts: Iterable[Moments]) -> Moments:
    """The moments of disjoint groups of users together."""
    found = list(parts)
    users = np.array([part.users for part in found], dtype=np.float64)
    means = np.stack([part.mean for part in found])
    mean = users @ means / users.sum()
    between = (means - mean).T * users @ (means - mean)
    return Moments(int(users.sum()), mean, np.sum([part.scatter for part in found], axis=0) + between)
