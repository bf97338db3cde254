"""Routes about experiments: a design with its power, and the analysis of outcomes. Nothing is stored."""

from __future__ import annotations

import json
from datetime import UTC, date, datetime
from hashlib import sha256
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Annotated

import numpy as np
from fastapi import File, Form, UploadFile

from merit.campaigns.experiments import power, statistics
from merit.campaigns.experiments.analysis import Analysis, analyse
from merit.campaigns.experiments.checks import AnalysisContext
from merit.campaigns.experiments.design import ExperimentDesign
from merit.campaigns.experiments.statistics import Outcomes
from merit.core import config
from merit.core.errors import DataError, MeritError, PolicyError
from merit.report.page import SMALLEST_CELL
from merit.service import campaign_schemas as schemas
from merit.service import problems
from merit.service.dependencies import TheService
from merit.service.request_limits import parse_json
from merit.service.routes.audiences import columns_of

FORMS = (".parquet", ".csv", ".tsv", ".jsonl", ".ndjson")  # packed ones could unpack to anything
MOST_USERS = 10**15  # of an experiment: above it, floats lose their last digits
DESIGN_OVERFLOW = (
    "This design leads beyond what numbers can hold. Check the smallest effect, the outlook, the prior and the days "
    "for wrong units."
)
OVERFLOW = "These figures lead beyond what numbers can hold. Check users, means, covariances and days for wrong units."


def design(request: ExperimentDesign) -> schemas.DesignResponse:
    """The file to keep, how many users the experiment needs and how long that takes. The service stores nothing."""
    file, outlook, rule = request.model_dump_json(indent=1) + "\n", request.outlook, request.rule
    try:
        daily = outlook.users_per_day or 0
        smallest = power.users_needed(power.SIZES[0] * request.minimum_effect, outlook, rule)
        if max(smallest, outlook.users or 0, daily * request.days, daily * 7 * max(power.WEEKS)) > MOST_USERS:
            raise DataError(DESIGN_OVERFLOW)
        return schemas.DesignResponse(
            file=file,
            sha256=sha256(file.encode()).hexdigest(),
            frozen=datetime.now(UTC).date(),
            end=request.end,
            users_needed=power.users_needed(request.minimum_effect, outlook, rule),
            expected=_expected(request),
            by_lift=power.by_lift(request.minimum_effect, outlook, rule).to_dicts(),
            by_week=power.by_week(outlook, rule).to_dicts(),
        )
    except (ArithmeticError, ValueError):
        raise DataError(DESIGN_OVERFLOW) from None


def _expected(design: ExperimentDesign) -> schemas.ExpectedPower | None:
    """What the users of the agreed window can show, where the outlook has their number."""
    outlook, rule = design.outlook, design.rule
    numbers = [users for users in (outlook.users, (outlook.users_per_day or 0) * design.days) if users]
    if not numbers:
        return None
    users = min(numbers)
    return schemas.ExpectedPower(
        users=users,
        lift=power.smallest_lift(outlook, rule, users),
        chance=power.chance_to_ship(design.minimum_effect, outlook, rule, users),
        luck=power.chance_to_ship(0.0, outlook, rule, users),
    )


def analyze(request: schemas.AnalysisRequest) -> Analysis:
    """Lift, findings and decision from sufficient statistics: no user leaves the warehouse."""
    outcomes = statistics.outcomes_of(request.statistics, request.design, "The request")
    return _analysed(request.design, outcomes, request.until, request.assigned)


def analyze_table(
    service: TheService,
    design: Annotated[str, Form(max_length=100_000, description="the design as JSON, as in docs/experiments.md")],
    table: Annotated[UploadFile, File(description="a row per assigned user: Parquet, CSV or JSONL")],
    until: Annotated[date | None, Form(description="the last day counted")] = None,
    assigned: Annotated[int | None, Form(ge=1, le=10**12, description="how many users were assigned in all")] = None,
) -> Analysis:
    """The same from a table of users, which is read once and not stored."""
    values = parse_json(design)
    if not isinstance(values, dict):
        raise DataError("The design is no JSON object. Write it as docs/experiments.md shows.")
    agreed = config.build(ExperimentDesign, values, origin="the design")
    suffix = Path(table.filename or "").suffix.lower()
    if suffix not in FORMS:
        raise DataError(f"The name of the table does not tell its format. It must end in one of {', '.join(FORMS)}.")
    with TemporaryDirectory(prefix="merit-") as name:
        file = Path(name) / f"table{suffix}"  # of the given name, only the suffix is used
        file.write_bytes(table.file.read())
        try:
            outcomes = service.reader.sent(agreed, file)
        except MeritError as error:
            raise type(error)(problems.without_paths(str(error), [file.parent])) from None
    return _analysed(agreed, outcomes, until, assigned)


def analyze_named(service: TheService, request: schemas.NamedAnalysisRequest) -> Analysis:
    """The same from a table of the service. The caller did not bring it: nothing is shown about few of its users."""
    path, agreed = service.table(Path(request.table)), request.design
    columns = columns_of(Path(request.table), service) if path.is_file() else None
    if columns is None:
        raise DataError(f"'{request.table}' cannot be read as a table. Choose one that /v1/tables names.")
    _require_plain(agreed)
    try:
        outcomes = service.reader.named(agreed, path)
    except DataError as error:
        raise DataError(problems.without_values(str(error), [*columns, *agreed.arms])) from None
    return without_few(_analysed(agreed, outcomes, request.until, request.assigned))


def _require_plain(design: ExperimentDesign) -> None:
    """A quotation mark in a name could end the quotation of a value, and show it."""
    content = json.dumps(design.model_dump(mode="json", exclude={"name", "salt"}), ensure_ascii=False)
    if set("'`\\") & set(content):
        raise DataError("A column or an arm has a quotation mark in its name. Rename it, or upload the table.")


def without_few(analysis: Analysis) -> Analysis:
    """The analysis without arms, segments and groups of fewer than 50 users, as on the page of a lift report."""
    design = analysis.design
    if min(arm.users for arm in analysis.arms if arm.name in (design.treatment, design.control)) < SMALLEST_CELL:
        raise PolicyError(
            f"An arm of this campaign has fewer than {SMALLEST_CELL} users. Wait until more of them are counted."
        )
    enough = all(group.users >= SMALLEST_CELL for group in analysis.groups)
    return analysis.model_copy(
        update={
            "arms": tuple(arm for arm in analysis.arms if arm.users >= SMALLEST_CELL),
            "segments": tuple(segment for segment in analysis.segments if segment.users >= SMALLEST_CELL),
            "groups": analysis.groups if enough else (),
            "flow": None,  # counts of unusual rows, which are few as a rule
        }
    )


def _analysed(design: ExperimentDesign, outcomes: Outcomes, until: date | None, assigned: int | None) -> Analysis:
    """The analysis; figures that overflow come from the caller, and are refused rather than an error of the service."""
    try:
        with np.errstate(all="ignore"):
            analysis = analyse(design, outcomes, AnalysisContext(until=until, assigned=assigned))
        json.dumps(analysis.model_dump(mode="json"), allow_nan=False)
    except (ArithmeticError, ValueError, np.linalg.LinAlgError):
        raise DataError(OVERFLOW) from None
    return analysis
