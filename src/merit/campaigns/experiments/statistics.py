"""Sufficient statistics as a file: what a warehouse can compute without handing out a single user.

    {"columns": ["bought", "orders_before"],
     "cells": [{"arm": "expert", "users": 3500000, "mean": [0.04, 2.1], "covariance": [[0.0384, 0.1], [0.1, 4.2]]},
               {"arm": "merit",  "users": 3500000, "mean": [0.0402, 2.1], "covariance": [[0.0386, 0.1], [0.1, 4.2]]}]}

For a yes-or-no outcome without covariates, the covariance follows from the mean and may be left out.
"""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
from pydantic import Field

from merit.campaigns.experiments.design import ExperimentDesign
from merit.campaigns.experiments.moments import Moments
from merit.campaigns.experiments.outcomes import CHOSEN, CellMoments, Outcomes
from merit.core.config import Frozen, build
from merit.core.errors import DataError


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
    """Statistics that fit the design, or an explanation."""
    try:
        values = json.loads(file.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise DataError(f"{file} does not exist. Name a file of statistics with --statistics PATH.") from None
    except (OSError, UnicodeDecodeError, json.JSONDecodeError) as error:
        raise DataError(f"{file} is no JSON: {error}. Write it as docs/experiments.md shows.") from None
    if not isinstance(values, dict):
        raise DataError(f"{file} holds no JSON object. Write it as docs/experiments.md shows.")
    given = build(Statistics, values, origin=str(file))
    _check_columns(given, design, file)
    return Outcomes(given.columns, tuple(_cell(each, given, design, file) for each in given.cells), None)


def write(file: Path, outcomes: Outcomes) -> None:
    """So that an analysis can be repeated, or pooled in other ways, without its users."""
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
    told = Statistics(columns=outcomes.names, cells=cells)
    file.write_text(told.model_dump_json(indent=1, exclude_none=True) + "\n", encoding="utf-8")


def _check_columns(given: Statistics, design: ExperimentDesign, file: Path) -> None:
    agreed = (design.outcome.column, *design.covariates)
    if given.columns[: len(agreed)] != agreed:
        raise DataError(
            f"{file} is about {', '.join(given.columns)}, but the design agreed on {', '.join(agreed)}, in this order. "
            "Compute the statistics of those columns."
        )
    if unknown := {cell.arm for cell in given.cells} - set(design.arms):
        raise DataError(f"{file} has an arm '{min(unknown)}'; the design has {', '.join(design.arms)}.")
    keys = [(cell.arm, cell.segment, cell.chosen) for cell in given.cells]
    if len(set(keys)) < len(keys):
        raise DataError(f"{file} gives an arm twice. Each arm (and segment, and choice) is one cell.")
    if other := {cell.chosen for cell in given.cells} - {None, *CHOSEN}:
        raise DataError(f"{file}: chosen is one of {', '.join(CHOSEN)}, not {min(map(str, other))!r}.")


def _cell(cell: CellStatistics, given: Statistics, design: ExperimentDesign, file: Path) -> CellMoments:
    mean = np.array(cell.mean)
    where = f"{file}, arm '{cell.arm}'"
    if len(mean) != len(given.columns):
        raise DataError(f"{where}: {len(mean)} means for {len(given.columns)} columns. Give one per column.")
    if cell.covariance is None:
        if design.outcome.kind != "binary" or len(mean) > 1:
            raise DataError(f"{where}: the covariance may be left out only for a yes-or-no outcome without covariates.")
        covariance = np.array([[mean[0] * (1 - mean[0]) * cell.users / (cell.users - 1)]])
    else:
        covariance = np.array([list(row) for row in cell.covariance if len(row) == len(mean)])
    if covariance.shape != (len(mean), len(mean)) or not np.allclose(covariance, covariance.T):
        raise DataError(f"{where}: the covariance must be a symmetric table of {len(mean)} × {len(mean)} numbers.")
    with np.errstate(over="ignore"):
        scatter = covariance * (cell.users - 1)
    if not np.isfinite(scatter).all() or np.linalg.eigvalsh(_unit(covariance)).min() < -1e-9:
        raise DataError(
            f"{where}: no numbers have such a covariance (it is not positive, or far too large). Compute it again."
        )
    if design.outcome.kind == "binary" and not 0 <= mean[0] <= 1:
        raise DataError(f"{where}: a rate of {mean[0]:g} is not between 0 and 1.")
    return CellMoments(cell.arm, cell.segment, cell.chosen, Moments(cell.users, mean, scatter))


def _unit(covariance: np.ndarray) -> np.ndarray:
    """Free of units, so that rounding is judged alike for cents and for millions."""
    scale = np.sqrt(np.clip(np.diag(covariance), 0, None))
    scale[scale == 0] = 1.0
    unit: np.ndarray = covariance / np.outer(scale, scale)
    return unit
