"""Routes about the service and its model: is it well, what is it, how good is it; and reload it."""

from __future__ import annotations

import json

import polars as pl
from fastapi import Response

from merit import __version__, artifacts
from merit.errors import MeritError, MissingArtifact
from merit.evaluation import reliability
from merit.report.page import SMALLEST_CELL
from merit.serving import shapes
from merit.serving.asking import TheModel, TheService
from merit.serving.service import Service
from merit.serving.store import Served
from merit.types import Status

STATUSES: tuple[Status, ...] = ("live", "retired", "blocked")


def health() -> shapes.Health:
    """That the process answers."""
    return shapes.Health(status="ok", merit=__version__)


def ready(served: TheModel) -> shapes.Ready:
    """That a model is open, and which."""
    return shapes.Ready(
        status="ready", name=served.name, version=served.version, label_version=served.model.labels.version
    )


def metrics(service: TheService) -> Response:
    """Figures for Prometheus."""
    return Response(service.metrics.text(), media_type="text/plain; version=0.0.4; charset=utf-8")


def model(served: TheModel) -> shapes.ModelFacts:
    """What is being served."""
    manifest, space = served.model.artifact.manifest, served.model.labels
    counts = dict(space.table["status"].cast(pl.String).value_counts().iter_rows())
    names = json.loads(served.model.artifact.file("verticals.json").read_text(encoding="utf-8"))
    return shapes.ModelFacts(
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


def card(served: TheModel) -> shapes.Card:
    """The model card: what the model was made from, how good it is, and what not to use it for."""
    return shapes.Card(markdown=served.model.card())


def results(served: TheModel) -> shapes.Results:
    """The figures of the run's evaluation, and the calibration of probabilities."""
    figures = pl.read_parquet(_results_of(served).file("figures.parquet")).filter(pl.col("users") >= SMALLEST_CELL)
    numbers = pl.selectors.float()
    plain = figures.with_columns(pl.when(numbers.is_finite()).then(numbers))  # JSON has no NaN
    return shapes.Results(
        figures=[
            shapes.Figure.model_validate(row) for row in plain.select(list(shapes.Figure.model_fields)).to_dicts()
        ],
        calibration=_calibration(served),
    )


def reload(service: TheService) -> shapes.Reloaded:
    """Serve what the model's folder now holds. Requests under way keep the model they began with."""
    return reloaded(service)


def reloaded(service: Service) -> shapes.Reloaded:
    before = service.store.current.version
    try:
        now = service.store.reload().version
    except MeritError:
        service.metrics.reloads.labels("failed").inc()
        raise
    service.metrics.reloads.labels("done").inc()
    return shapes.Reloaded(changed=now != before, before=before, now=now)


def _results_of(served: Served) -> artifacts.Artifact:
    place = served.run / "results"
    parent = served.model.artifact.manifest.parents["results"]
    if (
        not (place / artifacts.MANIFEST).exists()
        or (found := artifacts.load(place, "results", verify=False)).manifest.hash != parent.hash
    ):
        raise MissingArtifact("The results of this model are not beside it. Serve the folder of its run.")
    return found


def _calibration(served: Served) -> shapes.Calibration:
    table = pl.read_parquet(served.model.artifact.file("propensity") / "reliability.parquet")
    overall, bins = reliability.summary(table), reliability.by_bin(table)
    enough = bins.filter(pl.col("pairs") >= SMALLEST_CELL)
    means = enough.select("low", "high", pl.col("pairs").cast(pl.Int64), pl.col("promised", "true") / pl.col("pairs"))
    return shapes.Calibration(
        error=overall.ece,
        error_likely=overall.ece_likely,
        brier=overall.brier,
        bins=[shapes.Bin.model_validate(row) for row in means.to_dicts()],
    )
