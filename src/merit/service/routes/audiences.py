"""Routes about audiences: figures at once, members as a job, a file at the end; and the tables that rules may name."""

from __future__ import annotations

import secrets
import shutil
from collections.abc import Sequence
from functools import partial
from pathlib import Path as FilePath
from typing import Annotated, Any, Literal

import numpy as np
import polars as pl
from fastapi import Body, Path, Query
from fastapi.responses import FileResponse, Response
from starlette.background import BackgroundTask

from merit.campaigns.audiences import export as exports
from merit.campaigns.audiences.audience import TREATED, require_enough
from merit.campaigns.audiences.export import Form
from merit.campaigns.audiences.forecast import EDGES, merged
from merit.campaigns.audiences.report import public_summary
from merit.campaigns.audiences.request import AudienceRequest
from merit.core.errors import MeritError
from merit.data.sources import files
from merit.data.sources.files import FORMATS
from merit.privacy import audit
from merit.report.page import SMALLEST_CELL
from merit.service import campaign_schemas as schemas
from merit.service import problems
from merit.service.dependencies import Caller, Cursor, Idempotency, Limit, TheService, cursor_at, owner_of, position_of
from merit.service.problems import Refusal
from merit.service.schemas import LONGEST_ID
from merit.service.service import EXPORTS, Service

MOST_SAMPLED = 20  # members shown before an audience is built: to judge it, not to take it away
MOST_TABLES = 200  # listed for rules
Request = Annotated[AudienceRequest, Body(description="as in docs/audiences.md; tables by their names on the service")]
Number = Annotated[str, Path(max_length=LONGEST_ID, description="the id of a job")]
MEDIA = {"parquet": "application/vnd.apache.parquet", "csv": "text/csv; charset=utf-8", "jsonl": "application/jsonl"}


def tables(service: TheService) -> schemas.TablesResponse:
    """The tables that a rule may name, with their columns. Files that cannot be read are left out."""
    if service.tables is None:
        return schemas.TablesResponse(offered=False, items=[])
    root = service.tables.resolve()
    names = [file.relative_to(root) for file in sorted(root.rglob("*")) if file.name.endswith(tuple(FORMATS))]
    items = [{"name": name.as_posix(), "columns": columns_of(name, service)} for name in names[:MOST_TABLES]]
    return schemas.TablesResponse(offered=True, items=[row for row in items if row["columns"] is not None])


def columns_of(name: FilePath, service: Service) -> list[str] | None:
    """The columns of a table of the service; None if it cannot be read as a table."""
    try:
        path = service.table(name)
        return files.columns_of(files.scan(path, path.parent))
    except (MeritError, pl.exceptions.PolarsError, OSError):
        return None


def preview(service: TheService, request: Request) -> schemas.PreviewResponse:
    """The size of an audience, how it comes about, and what to expect, all with noise. No user is named."""
    audience, served = service.choose(request)
    figures = audience.published
    page = public_summary(figures)
    hide = partial(problems.without_paths, folders=[service.tables])
    steps = [row | {"step": hide(row["step"])} for row in page["waterfall"]]
    if window := page.get("window"):
        window["products"] = [part | {"name": hide(part["name"])} for part in window["products"]]
    over_indexed = audience.noise.members.shares(served.model.over_indexed_rows(audience.rows, at_least=SMALLEST_CELL))
    return schemas.PreviewResponse.model_validate(
        page
        | {
            "waterfall": steps,
            "notes": [hide(note) for note in page["notes"]],
            "model": served.version,
            "lowest": figures.lowest,
            "eligible": figures.eligible,
            "interests": figures.interests,
            "eligible_histogram": _histogram(figures.eligible_histogram),
            "member_histogram": _histogram(figures.member_histogram),
            "over_indexed": over_indexed.to_dicts(),
        }
    )


def _histogram(counts: Sequence[int]) -> list[dict[str, float]]:
    """Neighbouring bins are merged until each holds 50 users."""
    edges = (0.0, *EDGES[1:])
    bins = merged(counts, SMALLEST_CELL)
    return [{"low": edges[first], "high": edges[last], "users": users} for first, last, users in bins]


def sample(
    service: TheService,
    caller: Caller,
    request: Request,
    k: Annotated[int, Query(ge=1, le=MOST_SAMPLED, description="users shown")] = 6,
) -> schemas.SampleResponse:
    """Some of the users who would be contacted. Refused where their export would be."""
    audience, served = service.choose(request)
    contacted = audience.members.filter(pl.col("arm") == TREATED)
    require_enough(len(contacted), ())
    shown = contacted[np.unique(np.linspace(0, len(contacted) - 1, k).round().astype(np.int64))]
    texts = [interest.text for interest in audience.figures.interests]  # none of a lookalike
    pairs: list[dict[str, Any]] = []
    if texts:
        with served.reading(texts) as model:
            pairs = model.score(shown["user_id"], texts).to_dicts()
    items = [
        member | {"interests": [pair for pair in pairs if pair["user_id"] == member["user_id"]]}
        for member in shown.to_dicts()
    ]
    audit.append(service.state, "users named", what="sample", users=len(items), key=caller.id)
    return schemas.SampleResponse(model=served.version, contacted=len(contacted), items=items)


def build(
    service: TheService, caller: Caller, request: Request, response: Response, idempotency: Idempotency = None
) -> schemas.JobResponse:
    """Start a job that chooses the users, draws holdout and control, and stores them."""
    job = service.jobs.submit(caller.id, request, idempotency)
    response.headers["Location"] = f"/v1/audience/jobs/{job.id}"
    return job


def jobs(service: TheService, caller: Caller, limit: Limit = 20, cursor: Cursor = None) -> schemas.JobPage:
    """The jobs of this key, the newest first; an admin sees all."""
    about = ("jobs", caller.id)
    last = position_of(cursor, *about) if cursor else None
    left = [job for job in service.jobs.list(owner_of(caller)) if last is None or job.id < str(last)]
    more = len(left) > limit
    return schemas.JobPage(items=left[:limit], next=cursor_at(left[limit - 1].id, *about) if more else None)


def job(service: TheService, caller: Caller, number: Number) -> schemas.JobResponse:
    """The state of a job."""
    return service.jobs.get(number, owner_of(caller))


def cancel(service: TheService, caller: Caller, number: Number) -> schemas.JobResponse:
    """Cancel a job that waits or runs: it fails with the reason "Cancelled."."""
    return service.jobs.cancel(number, owner_of(caller))


def export(
    service: TheService,
    caller: Caller,
    number: Number,
    form: Annotated[Form, Query(description="csv is safe to open in a spreadsheet")] = "parquet",
    arm: Annotated[Literal["treatment", "control", "holdout", "all"], Query()] = "treatment",
) -> Response:
    """The users of a finished job as a file. Interests are checked again: those blocked since are not sent."""
    if service.jobs.get(number, owner_of(caller)).owner != caller.id:
        detail = "Members are downloaded with the key that started the job; an admin sees its state only."
        raise Refusal(403, "A job of another key", detail, "Build the audience again with this key.")
    members = service.jobs.audience(number, caller.id)
    folder = service.state / EXPORTS / secrets.token_hex(8)
    with service.store.current.reading(interest.text for interest in exports.load_summary(members).interests) as model:
        made = exports.export(members, model, form, folder, arm, log=service.state, key=caller.id)
    name = f"audience.{form}"
    return FileResponse(
        made.file(name),
        media_type=MEDIA[form],
        filename=name,
        headers={"X-Content-SHA256": made.manifest.files[name].sha256},
        background=BackgroundTask(shutil.rmtree, folder, ignore_errors=True),
    )
