"""Routes about the service and its model: health, metrics, what is served, and reloading it."""

from __future__ import annotations

import json
from typing import get_args

import polars as pl
from fastapi import Response

from merit import __version__
from merit.core.errors import MeritError
from merit.core.types import Status
from merit.service import schemas
from merit.service.dependencies import Caller, TheModel, TheService
from merit.service.service import Service


async def health() -> schemas.HealthResponse:  # async: it answers while all threads are busy
    """That the process answers."""
    return schemas.HealthResponse(status="ok", merit=__version__)


def ready(served: TheModel) -> schemas.ReadyResponse:
    """That a model is open, and which."""
    version = served.model.labels.version
    return schemas.ReadyResponse(status="ready", name=served.name, version=served.version, label_version=version)


def metrics(service: TheService) -> Response:
    """Metrics for Prometheus."""
    return Response(service.metrics.text(), media_type="text/plain; version=0.0.4; charset=utf-8")


def model(served: TheModel) -> schemas.ModelResponse:
    """What is being served."""
    manifest, space = served.model.artifact.manifest, served.model.labels
    counts = dict(space.table["status"].cast(pl.String).value_counts().iter_rows())
    return schemas.ModelResponse(
        name=served.name,
        version=served.version,
        hash=manifest.hash,
        made=manifest.created,
        opened=served.opened,
        merit=manifest.version,
        users=len(served.model.users),
        labels={status: counts.get(status, 0) for status in get_args(Status)},
        label_version=space.version,
        verticals=json.loads(served.model.artifact.file("verticals.json").read_text(encoding="utf-8")),
    )


def key(caller: Caller) -> schemas.KeyResponse:
    """The key of the request, and its scopes."""
    return schemas.KeyResponse(id=caller.id, name=caller.name, scopes=caller.scopes)


def card(served: TheModel) -> schemas.CardResponse:
    """The model card: what the model was made from, how good it is, and what not to use it for."""
    return schemas.CardResponse(markdown=served.model.card())


def reload(service: TheService) -> schemas.ReloadResponse:
    """Serve what the model's folder now holds. Requests under way keep the model they began with."""
    return reload_model(service)


def reload_model(service: Service) -> schemas.ReloadResponse:
    """The same for the route and for SIGHUP, counted as done or failed; after a failure the old model stays."""
    before = service.store.current.version
    try:
        now = service.store.reload().version
    except MeritError:
        service.metrics.reloads.labels("failed").inc()
        raise
    service.metrics.reloads.labels("done").inc()
    return schemas.ReloadResponse(changed=now != before, before=before, now=now)
