"""Routes about the service and its model: health, metrics, what is served, how good it is, and reloading it."""

from __future__ import annotations

import json
from typing import Any, get_args

import polars as pl
from fastapi import Response

from merit import __version__
from merit.core.errors import MeritError, MissingArtifact
from merit.core.types import Status
from merit.evaluation import calibration as reliability
from merit.evaluation.evaluate import AUDIENCES
from merit.report.page import SMALLEST_CELL
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


def results(served: TheModel) -> schemas.ResultsResponse:
    """The figures of the run's evaluation, both ways, and the calibration of probabilities."""
    evaluated = served.beside("results", "results", served.model.artifact.manifest.parents["results"].hash)
    if evaluated is None:
        raise MissingArtifact("The results of this model are not beside it. Serve the folder of its run.")
    audiences = []
    for name, parent in evaluated.manifest.parents.items():
        predictions = served.beside(name, parent.kind, parent.hash) if parent.kind == "predictions" else None
        if predictions and AUDIENCES in predictions.manifest.files:
            audiences += _figures(pl.read_parquet(predictions.file(AUDIENCES)))
    return schemas.ResultsResponse(
        figures=_figures(pl.read_parquet(evaluated.file("figures.parquet"))),
        audiences=audiences,
        calibration=calibration(served),
    )


def calibration(served: TheModel) -> schemas.CalibrationResponse:
    """Predicted probabilities and what came true for test users, overall and by vertical."""
    table = pl.read_parquet(served.model.artifact.file("propensity") / "reliability.parquet")
    parts = table.partition_by("vertical", as_dict=True)
    verticals = [{"vertical": name} | _metrics(part) for (name,), part in sorted(parts.items())]
    return schemas.CalibrationResponse(
        **_metrics(table), verticals=[row for row in verticals if row["pairs"] >= SMALLEST_CELL]
    )


def _metrics(table: pl.DataFrame) -> dict[str, Any]:
    """The fields of CalibrationMetrics, with bins of at least 50 pairs."""
    enough = reliability.by_bin(table).filter(pl.col("pairs") >= SMALLEST_CELL)
    bins = enough.select("low", "high", pl.col("pairs").cast(pl.Int64), pl.col("promised", "true") / pl.col("pairs"))
    metrics = {name.replace("ece", "error"): value for name, value in vars(reliability.summary(table)).items()}
    return metrics | {"bins": bins.to_dicts()}


def _figures(figures: pl.DataFrame) -> list[dict[str, Any]]:
    """Those of at least 50 users; JSON has no NaN."""
    numbers = pl.selectors.float()
    finite = figures.filter(pl.col("users") >= SMALLEST_CELL).with_columns(pl.when(numbers.is_finite()).then(numbers))
    return finite.select(list(schemas.Figure.model_fields)).to_dicts()


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
