"""Routes about audiences: figures at once, members as a job, a file at the end."""

from __future__ import annotations

import secrets
import shutil
from collections.abc import Sequence
from pathlib import Path as Folder
from typing import Annotated, Any, Literal

import numpy as np
import polars as pl
from fastapi import Body, Path, Query
from fastapi.responses import FileResponse, Response
from starlette.background import BackgroundTask

from merit.campaigns.audiences import build as stage
from merit.campaigns.audiences.audience import Audience, require_enough
from merit.campaigns.audiences.export import Form
from merit.campaigns.audiences.forecast import EDGES, merged
from merit.campaigns.audiences.overlap import TREATED
from merit.campaigns.audiences.report import public_summary
from merit.campaigns.audiences.request import AudienceRequest
from merit.report.page import SMALLEST_CELL
from merit.retrieval.model import Model
from merit.service import cursors, places, schemas
from merit.service.asking import Caller, Cursor, Idempotency, Limit, TheService
from merit.service.jobs import Job
from merit.service.keys import Key
from merit.service.limits import LONGEST_ID, MOST_SAMPLED
from merit.service.service import EXPORTS
from merit.service.store import Served

Request = Annotated[AudienceRequest, Body(description="as in docs/audiences.md; tables by their names on the service")]
Number = Annotated[str, Path(max_length=LONGEST_ID, description="the id of a job")]
MEDIA = {"parquet": "application/vnd.apache.parquet", "csv": "text/csv; charset=utf-8", "jsonl": "application/jsonl"}


def preview(service: TheService, asked: Request) -> schemas.Preview:
    """How many, how it comes about, and what to expect. No user is named and nothing is written."""
    found, served = service.preview(asked)
    return told(found, served, service.tables)


def sample(
    service: TheService,
    asked: Request,
    k: Annotated[int, Query(ge=1, le=MOST_SAMPLED, description="users shown")] = 6,
) -> schemas.Sample:
    """Some of those who would be contacted. Refused where their export would be."""
    found, served = service.preview(asked)
    contacted = found.members.filter(pl.col("arm") == TREATED)
    require_enough(len(contacted), ())
    shown = contacted[np.unique(np.linspace(0, len(contacted) - 1, k).round().astype(np.int64))]
    texts = [each.text for each in found.figures.interests]
    with served.reading(texts) as model:
        pairs = model.score(shown["user_id"], texts) if texts else None
    return schemas.Sample(
        model=served.version,
        contacted=len(contacted),
        items=[schemas.MemberRow.model_validate(row | {"interests": _of(pairs, row)}) for row in shown.to_dicts()],
    )


def _of(pairs: pl.DataFrame | None, member: dict[str, Any]) -> list[dict[str, Any]]:
    """The scores of one member; none of a lookalike, which asks for no interest."""
    return [] if pairs is None else pairs.filter(pl.col("user_id") == member["user_id"]).to_dicts()


def build(
    service: TheService,
    caller: Caller,
    asked: Request,
    response: Response,
    idempotency: Idempotency = None,
) -> schemas.JobTold:
    """Start a job that chooses the users, draws holdout and control, and keeps them."""
    job = service.jobs.submit(caller.id, asked, idempotency)
    response.headers["Location"] = f"/v1/audience/jobs/{job.id}"
    return _shown(job)


def jobs(service: TheService, caller: Caller, limit: Limit = 20, cursor: Cursor = None) -> schemas.JobPage:
    """The jobs of this key, the newest first; an admin sees all."""
    found = service.jobs.list(owner_of(caller))
    about = ("jobs", caller.id)
    last = cursors.read(cursor, *about) if cursor else None
    later = [job for job in found if last is None or job.id < str(last)]
    more = len(later) > limit
    return schemas.JobPage(
        items=[_shown(job) for job in later[:limit]],
        next=cursors.write(later[limit - 1].id, *about) if more else None,
    )


def job(service: TheService, caller: Caller, number: Number) -> schemas.JobTold:
    """How a job stands."""
    return _shown(service.jobs.get(number, owner_of(caller)))


def cancel(service: TheService, caller: Caller, number: Number) -> schemas.JobTold:
    """Give up a job that waits or runs: it fails with the reason "Cancelled."."""
    return _shown(service.jobs.cancel(number, owner_of(caller)))


def export(
    service: TheService,
    caller: Caller,
    number: Number,
    form: Annotated[Form, Query(description="csv is safe to open in a spreadsheet")] = "parquet",
    arm: Annotated[Literal["treatment", "control", "holdout", "all"], Query()] = "treatment",
) -> Response:
    """The users of a finished job as a file. Interests are judged again: what was blocked since is not sent."""
    members = service.jobs.audience(number, owner_of(caller))
    place = service.state / EXPORTS / secrets.token_hex(8)
    figures = stage.load_summary(members)
    with service.store.current.reading(each.text for each in figures.interests) as model:
        made = stage.export(members, model, form, place, arm, log=service.state, key=caller.id)
    name = f"audience.{form}"
    return FileResponse(
        made.file(name),
        media_type=MEDIA[form],
        filename=name,
        headers={"X-Content-SHA256": made.manifest.files[name].sha256},
        background=BackgroundTask(shutil.rmtree, place, ignore_errors=True),
    )


def told(found: Audience, served: Served, tables: Folder | None) -> schemas.Preview:
    """As silent about fewer than 50 users as the page, and about where the tables are."""
    figures = found.figures
    page = public_summary(figures)
    steps = [row | {"step": places.without_paths(row["step"], [tables])} for row in page["waterfall"]]
    return schemas.Preview.model_validate(
        page
        | {
            "waterfall": steps,
            "model": served.version,
            "lowest": figures.lowest,
            "eligible": figures.eligible,
            "interests": figures.interests,
            "eligible_histogram": _bars(figures.eligible_histogram),
            "member_histogram": _bars(figures.member_histogram),
            "over_indexed": _over_indexed(found, served.model),
        }
    )


def _bars(counts: Sequence[int]) -> list[schemas.Bar]:
    """Neighbouring bins are joined until each holds 50 users."""
    ends = (0.0, *EDGES[1:])
    return [
        schemas.Bar(low=ends[first], high=ends[last], users=users)
        for first, last, users in merged(counts, SMALLEST_CELL)
    ]


def _over_indexed(found: Audience, model: Model) -> list[schemas.OverIndexed]:
    """What at least 50 of the members had more often than everybody."""
    rows = model.over_indexed_rows(found.rows, at_least=SMALLEST_CELL)
    return [schemas.OverIndexed.model_validate(row) for row in rows.to_dicts()]


def owner_of(caller: Key) -> str | None:
    """Whose jobs a key may see; None for all."""
    return None if "admin" in caller.scopes else caller.id


def _shown(job: Job) -> schemas.JobTold:
    return schemas.JobTold.model_validate(job.model_dump(include=set(schemas.JobTold.model_fields)))
