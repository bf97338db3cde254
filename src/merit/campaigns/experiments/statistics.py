"""Sufficient statistics: what an analysis needs of its users, in a few numbers per cell that add up.

    frame.group_by("arm").agg(*sums(names, about))          # one pass, streaming, any number of rows
    from_sums(row, names, about)                            # → Moments of one arm
    merge([north, south])                                   # → Moments of both together

Values are summed about a point near them (`about`), not about zero: squares of numbers such as 1,700,000,003 leave no
digits for the differences between them.

As a file, a warehouse can compute them without handing out a single user; docs/experiments.md shows one. For a binary
outcome without covariates, the covariance follows from the mean and may be left out.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import combinations_with_replacement
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
from numpy.typing import NDArray
from pydantic import Field

from merit.campaigns.experiments.design import ExperimentDesign
from merit.core import config
from merit.core.config import Frozen
from merit.core.errors import DataError

Reals = NDArray[np.float64]
SAMPLED_ROWS = 1_000  # rows whose median is the point that a column is summed about
CHOSEN = ("treatment only", "control only", "both", "neither")  # by which of two targeting rules


@dataclass(frozen=True, eq=False)
class Moments:
    """Users, their mean outcome and covariates, and how these vary together."""

    users: int
    mean: Reals
    """(1 + covariates,), the outcome first."""
    scatter: Reals
    """(1 + covariates, 1 + covariates): sums of products of deviations from the mean."""
    extremes: tuple[float, float] | None = None
    """The least and the greatest outcome. A file of statistics has none: each is of a single user."""

    @property
    def heaviest(self) -> float | None:
        """The share of the outcome's scatter that one user makes up; None where that is unknown."""
        if self.extremes is None or not self.scatter[0, 0] > 0:
            return None
        return float(max((outcome - self.mean[0]) ** 2 for outcome in self.extremes) / self.scatter[0, 0])

    @property
    def covariance(self) -> Reals:
        """(1 + covariates, 1 + covariates): the scatter over users − 1, and over 1 for a single user."""
        return self.scatter / max(self.users - 1, 1)


@dataclass(frozen=True)
class CellMoments:
    """The moments of the users of one arm, segment and choice of the targeting rules."""

    arm: str
    segment: str | None
    chosen: str | None
    moments: Moments


@dataclass(frozen=True)
class Flow:
    """What became of the rows on the way to the analysis."""

    rows: int
    crossovers: int = 0
    """Users in more than one arm. They are left out of all."""
    checked: int = 0
    misplaced: int = 0
    """Of the users checked: recorded in another arm than their hash says."""
    early: int = 0
    """Exposed before they were assigned."""
    capped: int = 0
    cap: float | None = None
    """What the agreed quantile of the amounts was, where they were winsorised."""
    missing: dict[str, int] = field(default_factory=dict)
    """Covariate → users without it. They stay: they get a constant, and having none becomes a covariate."""


@dataclass(frozen=True)
class Outcomes:
    """The input of an analysis, from a table of users or from a file of statistics."""

    names: tuple[str, ...]
    """Of the columns of the moments: outcome, covariates, and "… is missing" where some are."""
    cells: tuple[CellMoments, ...]
    flow: Flow | None
    """None where only statistics are known."""


def points_near(frame: pl.LazyFrame, names: Sequence[str]) -> dict[str, float]:
    """A value near those of each column. Any will do: rounding then grows with the spread around it only."""
    medians = frame.select(names).head(SAMPLED_ROWS).median().collect(engine="streaming").row(0)
    return {name: float(value or 0.0) for name, value in zip(names, medians, strict=True)}


def sums(names: Sequence[str], about: Mapping[str, float]) -> list[pl.Expr]:
    """The aggregations of one pass over rows. The columns must be Float64 without nulls."""
    away = {name: pl.col(name) - about[name] for name in names}
    return [
        pl.len().alias("users"),
        *(value.sum().alias(f"Σ {name}") for name, value in away.items()),
        *((away[a] * away[b]).sum().alias(f"Σ {a} × {b}") for a, b in combinations_with_replacement(names, 2)),
        pl.col(names[0]).min().alias("least"),
        pl.col(names[0]).max().alias("greatest"),
    ]


def from_sums(row: Mapping[str, Any], names: Sequence[str], about: Mapping[str, float]) -> Moments:
    """The moments of one row of what `sums` aggregated."""
    users = int(row["users"])
    first = np.array([row[f"Σ {name}"] for name in names], dtype=np.float64)
    second = np.zeros((len(names), len(names)))
    second[np.triu_indices(len(names))] = [row[f"Σ {a} × {b}"] for a, b in combinations_with_replacement(names, 2)]
    second += np.triu(second, 1).T
    mean = np.array([about[name] for name in names]) + first / users
    return Moments(users, mean, second - np.outer(first, first) / users, (row["least"], row["greatest"]))


def merge(parts: Iterable[Moments]) -> Moments:
    """The moments of disjoint groups of users together."""
    parts = list(parts)
    users = np.array([part.users for part in parts], dtype=np.float64)
    means = np.stack([part.mean for part in parts])
    mean = users @ means / users.sum()
    between = (means - mean).T * users @ (means - mean)
    scatter = np.sum([part.scatter for part in parts], axis=0) + between
    known = [part.extremes for part in parts if part.extremes]
    extremes = (min(least for least, _ in known), max(most for _, most in known)) if len(known) == len(parts) else None
    return Moments(int(users.sum()), mean, scatter, extremes)


def standardised(covariance: Reals) -> tuple[Reals, Reals]:
    """The matrix without units, so that rounding is judged alike for cents and for millions; and the units."""
    scale = np.sqrt(np.clip(np.diag(covariance), 0, None))
    scale[scale == 0] = 1.0
    return covariance / np.outer(scale, scale), scale


# --- the file --------------------------------------------------------------------------------------------------------


class CellStatistics(Frozen):
    """Users of one arm (and segment, and choice); mean and covariance are in the order of the columns."""

    arm: str
    segment: str | None = None
    chosen: str | None = None
    users: int = Field(ge=2)
    mean: tuple[float, ...] = Field(min_length=1)
    covariance: tuple[tuple[float, ...], ...] | None = None


class Statistics(Frozen):
    """The file as it is written, before anything is checked against a design."""

    columns: tuple[str, ...] = Field(min_length=1)
    """The outcome first, then the covariates."""
    cells: tuple[CellStatistics, ...]


def read(file: Path, design: ExperimentDesign) -> Outcomes:
    """Statistics that fit the design; a DataError says what does not fit."""
    values = config.read(file, "Name a file of statistics with --statistics PATH, as docs/experiments.md shows.")
    return outcomes_of(config.build(Statistics, values, origin=str(file)), design, str(file))


def outcomes_of(statistics: Statistics, design: ExperimentDesign, origin: str) -> Outcomes:
    """The same from statistics in memory; `origin` names them in messages."""
    _check_columns(statistics, design, origin)
    width = len(statistics.columns)
    cells = tuple(_moments(cell, design, f"{origin}, arm '{cell.arm}'", width) for cell in statistics.cells)
    return Outcomes(statistics.columns, cells, None)


def write(file: Path, outcomes: Outcomes) -> None:
    """Write a file from which the analysis can be repeated, or pooled in other ways, without its users."""
    cells = tuple(
        CellStatistics(
            arm=cell.arm,
            segment=cell.segment,
            chosen=cell.chosen,
            users=cell.moments.users,
            mean=tuple(cell.moments.mean.tolist()),
            covariance=tuple(tuple(row) for row in cell.moments.covariance.tolist()),
        )
        for cell in outcomes.cells
        if cell.moments.users > 1
    )
    statistics = Statistics(columns=outcomes.names, cells=cells)
    file.write_text(statistics.model_dump_json(indent=1, exclude_none=True) + "\n", encoding="utf-8")


def _check_columns(statistics: Statistics, design: ExperimentDesign, origin: str) -> None:
    agreed = (design.outcome.column, *design.covariates)
    if statistics.columns[: len(agreed)] != agreed:
        raise DataError(
            f"{origin} is about {', '.join(statistics.columns)}, but the design agreed on {', '.join(agreed)}, in this "
            "order. Compute the statistics of those columns."
        )
    if unknown := {cell.arm for cell in statistics.cells} - set(design.arms):
        raise DataError(f"{origin} has an arm '{min(unknown)}'; the design has {', '.join(design.arms)}.")
    keys = {(cell.arm, cell.segment, cell.chosen) for cell in statistics.cells}
    if len(keys) < len(statistics.cells):
        raise DataError(f"{origin} gives an arm twice. Each arm (and segment, and choice) is one cell.")
    if other := {cell.chosen for cell in statistics.cells} - {None, *CHOSEN}:
        raise DataError(f"{origin}: chosen is one of {', '.join(CHOSEN)}, not {min(map(str, other))!r}.")


def _moments(cell: CellStatistics, design: ExperimentDesign, where: str, columns: int) -> CellMoments:
    mean, binary = np.array(cell.mean), design.outcome.kind == "binary"
    if len(mean) != columns:
        raise DataError(f"{where}: {len(mean)} means for {columns} columns. Give one per column.")
    if cell.covariance is None:
        if not binary or len(mean) > 1:
            raise DataError(f"{where}: the covariance may be left out only for a binary outcome without covariates.")
        covariance = np.array([[mean[0] * (1 - mean[0]) * cell.users / (cell.users - 1)]])
    else:
        covariance = np.array([list(row) for row in cell.covariance if len(row) == len(mean)])
    if covariance.shape != (len(mean), len(mean)) or not np.allclose(covariance, covariance.T):
        raise DataError(f"{where}: the covariance must be a symmetric table of {len(mean)} × {len(mean)} numbers.")
    with np.errstate(over="ignore"):
        scatter = covariance * (cell.users - 1)
    if not np.isfinite(scatter).all() or np.linalg.eigvalsh(standardised(covariance)[0]).min() < -1e-9:
        raise DataError(
            f"{where}: no numbers have such a covariance (it is not positive, or far too large). Compute it again."
        )
    if binary and not 0 <= mean[0] <= 1:
        raise DataError(f"{where}: a rate of {mean[0]:g} is not between 0 and 1.")
    return CellMoments(cell.arm, cell.segment, cell.chosen, Moments(cell.users, mean, scatter))
