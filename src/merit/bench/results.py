"""The results of a benchmark on one data set as one small JSON file: what tables, pages and documents are made from.

Figures about fewer than 50 users are not in it. Every row is a line of the file, so that version control shows what
changed.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import polars as pl
from pydantic import ValidationError

from merit.core.config import Frozen
from merit.core.errors import DamagedArtifact, MissingArtifact
from merit.evaluation import tables
from merit.report.page import SMALLEST_CELL

DIGITS = 5  # of a share: a thousandth of a point
LEAD = pl.Schema({"lead": pl.Float64(), "lead_low": pl.Float64(), "lead_high": pl.Float64()})
"""How far our method is ahead of the row's, on the same users. Which of ours: `ours`, `generator`."""
COLUMNS = [name for name in tables.SCHEMA if name not in ("command", "commit")] + list(LEAD)
NUMBERS = [name for name, kind in (tables.SCHEMA | LEAD).items() if kind == pl.Float64()]
BINS = ("low", "high", "pairs", "promised", "true", "squares")


class Cost(Frozen):
    """Means over the seeds of a method."""

    method: str
    seeds: int
    train_seconds: float | None
    """With all that it builds on."""
    predict_seconds: float
    """For 1,000 users."""
    parameters: float
    peak_gib: float | None


class BenchResults(Frozen):
    """One data set; fields are written in this order."""

    dataset: str
    commit: str
    config: str
    """Digest of the settings."""
    version: str
    date: str
    machine: dict[str, str]
    seconds: float
    """The training budget of a network."""
    users: int
    """Test users."""
    labels: int
    reference: str
    """What gains of lists are counted from."""
    ranking_reference: str
    """What gains of Hit@k are counted from."""
    ours: str
    """What leads are counted for."""
    generator: str
    """What leads of the exposure-bias meter are counted for."""
    seeds: dict[str, list[int]]
    """By cell's method."""
    steps: dict[str, list[int]]
    """Of generators, by seed."""
    missing: dict[str, str]
    """Cells that failed, and what they said."""
    figures: list[list[Any]]
    """Rows of COLUMNS."""
    costs: list[Cost]
    reliability: list[list[float]]
    """Rows of BINS."""
    pictures: list[list[dict[str, Any]]]
    """Lists of two methods for some examples: method, rank, text, mark, right."""

    def frame(self) -> pl.DataFrame:
        """The figures as `evaluation.tables` has them, with leads."""
        schema = {name: (tables.SCHEMA | LEAD)[name] for name in COLUMNS}
        found = pl.DataFrame(self.figures, schema=schema, orient="row")
        return found.with_columns(command=pl.lit("merit bench"), commit=pl.lit(self.commit))

    def varied(self) -> pl.Expr:
        """Whether a row is of our method with other settings, or read in another way."""
        return (pl.col("method") != self.ours) & pl.col("method").str.starts_with(self.ours)

    def bins(self) -> pl.DataFrame:
        """The reliability of our probabilities, as `evaluation.reliability` has it."""
        found = pl.DataFrame(self.reliability, schema=dict.fromkeys(BINS, pl.Float64), orient="row")
        return found.with_columns(vertical=pl.lit("all"))


def figure_rows(figures: pl.DataFrame) -> list[list[Any]]:
    """What may be kept of figures, as plain values. A figure that is not a number becomes nothing."""
    kept = figures.filter(pl.col("users") >= SMALLEST_CELL).select(COLUMNS)
    rounded = kept.with_columns(pl.col(NUMBERS).fill_nan(None).round(DIGITS))
    return [list(row) for row in rounded.rows()]


def write(results: BenchResults, file: Path) -> None:
    """The folder is made where it is missing; older results are overwritten."""
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(dumped(results), encoding="utf-8")


def dumped(results: BenchResults) -> str:
    """Every setting a line, every row a line."""
    parts = []
    for name, value in results.model_dump(mode="json").items():
        if isinstance(value, list):
            rows = ",\n  ".join(json.dumps(row, ensure_ascii=False) for row in value)
            parts.append(f" {json.dumps(name)}: [\n  {rows}\n ]" if value else f" {json.dumps(name)}: []")
        else:
            parts.append(f" {json.dumps(name)}: {json.dumps(value, ensure_ascii=False)}")
    return "{\n" + ",\n".join(parts) + "\n}\n"


def read(file: Path) -> BenchResults:
    """The results in a file; one that is missing or holds something else is an error that says what to do."""
    try:
        return BenchResults.model_validate_json(file.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise MissingArtifact(f"{file} does not exist. Make it with `merit bench CONFIG`.") from None
    except (ValidationError, UnicodeDecodeError, OSError):
        raise DamagedArtifact(f"{file} does not hold results of a benchmark. Make it again.") from None


def read_all(folder: Path, datasets: Sequence[str]) -> list[BenchResults]:
    """Those data sets that have results, in the order given."""
    found = [read(folder / f"{name}.json") for name in datasets if (folder / f"{name}.json").exists()]
    if not found:
        raise MissingArtifact(f"{folder} has no results of {', '.join(datasets)}. Make them with `merit bench CONFIG`.")
    return found
