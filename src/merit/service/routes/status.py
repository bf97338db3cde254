"""Routes about the service and its model: is it well, what is it; and reload it."""

from __future__ import annotations

import json

import polars as pl
from fastapi import Response

from merit import __version__
from merit.core.errors import MeritError
from merit.core.types import Status
from merit.service import schemas
from merit.service.asking import Caller, TheModel, TheService
from merit.service.service import Service

STATUSES: tuple[Status, ...] = ("live", "retired", "blocked")


async def health() -> schemas.Health:  # async: it answers while all threads are busy
    """That the process answers."""
    return schemas.Health(status="ok", merit=__version__)


def ready(served: TheModel) -> schemas.Ready:
    """That a model is open, and which."""
    return schemas.Ready(
        status="ready", name=served.name, version=served.version, label_version=served.model.labels.version
    )


def metrics(service: TheService) -> Response:
    """Figures for Prometheus."""
    return Response(service.metrics.text(), media_type="text/plain; version=0.0.4; charset=utf-8")


def model(served: TheModel) -> schemas.ModelFacts:
    """What is being served."""
    manifest, space = served.model.artifact.manifest, served.model.labels
    counts = dict(space.table["status"].cast(pl.String).value_counts().iter_rows())
    names = json.loads(served.model.artifact.file("verticals.json").read_text(encoding="utf-8"))
    return schemas.ModelFacts(
        name=served.name,
        version=served.version,
        hash=manifest.hash,
        made=manifest.created,
        opened=served.opened,
        merit=manifest.version,
        users=len(served.model.users),
        labels={status: counts.get(status, 0) for status in STATUSES},
        label_version=space.version,
        verticals=names,
    )


def key(caller: Caller) -> schemas.KeyFacts:
    """The key that asks, and what it may do."""
    return schemas.KeyFacts(id=caller.id, name=caller.name, scopes=list(caller.scopes))


def card(served: TheModel) -> schemas.Card:
    """The model card: what the model was made from, how good it is, and what not to use it for."""
    return schemas.Card(markdown=served.model.card())


def reload(service: TheService) -> schemas.Reloaded:
    """Serve what the model's folder now holds. Requests under way keep the model they began with."""
    return reloaded(service)


def reloaded(service: Service) -> schemas.Reloaded:
    """The same for the route and for SIGHUP, counted as done or failed; after a failure the old model stays."""
    before = service.store.current.version
    try:
        now = service.store.reload().version
    except MeritError:
        service.metrics.reloads.labels("failed").inc()
        raise
    service.metrics.reloads.labels("done").inc()
    return schemas.Reloaded(changed=now != before, before=before, now=now)
