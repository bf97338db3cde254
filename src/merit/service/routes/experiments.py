"""Routes about experiments: outcomes and the agreed design in, the whole analysis out. Nothing is kept."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import date
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Annotated, Any

import numpy as np
import pyarrow.parquet as pq
from fastapi import File, Form, UploadFile

from merit.campaigns.experiments import statistics
from merit.campaigns.experiments.analysis import Analysis, analyse
from merit.campaigns.experiments.checks import AnalysisContext
from merit.campaigns.experiments.design import ExperimentDesign
from merit.campaigns.experiments.outcomes import Outcomes, tabulate
from merit.core import config
from merit.core.errors import DataError, MeritError, PolicyError
from merit.report.page import SMALLEST_CELL
from merit.service import json_body, places, schemas
from merit.service.asking import TheService
from merit.service.limits import MOST_ROWS, MOST_UNFOLDED
from merit.service.routes import tables

FORMS = (".parquet", ".csv", ".tsv", ".jsonl", ".ndjson")  # packed ones could unfold to anything


def analyze(asked: schemas.AnalysisAsked) -> Analysis:
    """Lift, findings and decision from sufficient statistics: no user leaves the warehouse."""
    with _folder() as folder:
        file = folder / "statistics.json"
        file.write_text(asked.statistics.model_dump_json(), encoding="utf-8")
        outcomes = statistics.read(file, asked.design)
    return _analysed(asked.design, outcomes, AnalysisContext(until=asked.until, assigned=asked.assigned))


def analyze_table(
    design: Annotated[str, Form(max_length=100_000, description="the design as JSON, as in docs/experiments.md")],
    table: Annotated[UploadFile, File(description="a row per assigned user: Parquet, CSV or JSONL")],
    until: Annotated[date | None, Form(description="the last day counted")] = None,
    assigned: Annotated[int | None, Form(ge=1, le=10**12, description="how many users were assigned in all")] = None,
) -> Analysis:
    """The same from a table of users, which is read once and not kept."""
    values = json_body.parsed(design)
    if not isinstance(values, dict):
        raise DataError("The design is no JSON object. Write it as docs/experiments.md shows.")
    agreed = config.build(ExperimentDesign, values, origin="the design")
    suffix = Path(table.filename or "").suffix.lower()
    if suffix not in FORMS:
        raise DataError(f"The name of the table does not tell its format. It must end in one of {', '.join(FORMS)}.")
    with _folder() as folder:
        file = folder / f"table{suffix}"  # of the given name, only the end is used
        file.write_bytes(table.file.read())
        if suffix == ".parquet":
            _require_small(file)
        outcomes = tabulate(agreed, file)
    return _analysed(agreed, outcomes, AnalysisContext(until=until, assigned=assigned))


def analyze_named(service: TheService, asked: schemas.NamedAnalysisAsked) -> Analysis:
    """The same from a table of the service. Whoever asks did not bring it: nothing is told about few of its users."""
    place, agreed = places.found(Path(asked.table), service.tables), asked.design
    columns = tables.columns_of(place) if place.is_file() else None
    if columns is None:
        raise DataError(f"'{asked.table}' cannot be read as a table. Choose one that /v1/tables names.")
    _require_plain(agreed)
    try:
        outcomes = tabulate(agreed, place)
    except DataError as error:
        told = places.without_paths(str(error), [service.tables])
        raise DataError(places.without_values(told, [*columns, *agreed.arms])) from None
    return without_few(_analysed(agreed, outcomes, AnalysisContext(until=asked.until, assigned=asked.assigned)))


def _require_plain(design: ExperimentDesign) -> None:
    """A quotation mark in a name could end the quotation of a value, and show it."""
    written = json.dumps(design.model_dump(mode="json", exclude={"name", "salt"}), ensure_ascii=False)
    if set("'`\\") & set(written):
        raise DataError("A column or an arm has a quotation mark in its name. Rename it, or upload the table.")


def without_few(told: Analysis) -> Analysis:
    """As silent as the page of a lift report about arms, segments and groups of fewer than 50 users."""
    compared = [arm.users for arm in told.arms if arm.name in (told.design.treatment, told.design.control)]
    if min(compared) < SMALLEST_CELL:
        raise PolicyError(
            f"An arm of this campaign has fewer than {SMALLEST_CELL} users. Wait until more of them are counted."
        )
    return told.model_copy(
        update={
            "arms": tuple(arm for arm in told.arms if arm.users >= SMALLEST_CELL),
            "segments": tuple(each for each in told.segments if each.users >= SMALLEST_CELL),
            "groups": told.groups if all(each.users >= SMALLEST_CELL for each in told.groups) else (),
            "flow": None,  # how many rows were odd: few, as a rule
        }
    )


def _analysed(design: ExperimentDesign, outcomes: Outcomes, known: AnalysisContext) -> Analysis:
    """Figures come from outside: those that no computation survives are refused, not ours to fail on."""
    try:
        with np.errstate(all="ignore"):
            told = analyse(design, outcomes, known)
    except (ArithmeticError, ValueError, np.linalg.LinAlgError):
        raise DataError(BEYOND) from None
    if not _finite(told.model_dump()):
        raise DataError(BEYOND)
    return told


BEYOND = "These figures lead beyond what numbers can hold. Check users, means, covariances and days for slips of units."


def _finite(value: Any) -> bool:
    if isinstance(value, float):
        return math.isfinite(value)
    if isinstance(value, dict):
        return all(map(_finite, value.values()))
    return all(map(_finite, value)) if isinstance(value, list | tuple) else True


def _require_small(file: Path) -> None:
    try:
        facts = pq.read_metadata(file)
    except (OSError, ValueError):
        return  # the reader tells what is wrong with it
    unfolded = sum(facts.row_group(place).total_byte_size for place in range(facts.num_row_groups))
    if facts.num_rows > MOST_ROWS or unfolded > MOST_UNFOLDED:
        raise DataError(f"The table has more than {MOST_ROWS:,} rows, or unpacks to too much. Send its statistics.")


@contextmanager
def _folder() -> Iterator[Path]:
    """A folder for one analysis, whose name nobody is told."""
    with TemporaryDirectory(prefix="merit-") as name:
        try:
            yield Path(name)
        except MeritError as error:
            raise type(error)(places.without_paths(str(error), [Path(name)])) from None
