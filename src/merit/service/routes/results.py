"""Routes about how good the model is: the figures of its run's evaluation, and the calibration of probabilities."""

from __future__ import annotations

from typing import Any

import polars as pl

from merit.core.errors import MissingArtifact
from merit.evaluation import calibration as reliability
from merit.evaluation.evaluate import AUDIENCES
from merit.report.page import SMALLEST_CELL
from merit.service import schemas
from merit.service.dependencies import TheModel

FIGURES = "figures.parquet"


def results(served: TheModel) -> schemas.ResultsResponse:
    """The figures of the run's evaluation, both ways, and the calibration of probabilities."""
    made = served.beside("results", "results", served.model.artifact.manifest.parents["results"].hash)
    if made is None:
        raise MissingArtifact("The results of this model are not beside it. Serve the folder of its run.")
    predictions = [
        served.beside(name, parent.kind, parent.hash)
        for name, parent in made.manifest.parents.items()
        if parent.kind == "predictions"
    ]
    rankings = [each.file(AUDIENCES) for each in predictions if each and AUDIENCES in each.manifest.files]
    return schemas.ResultsResponse(
        figures=_figures(pl.read_parquet(made.file(FIGURES))),
        audiences=[row for file in rankings for row in _figures(pl.read_parquet(file))],
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
