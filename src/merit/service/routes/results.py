"""Routes about how good the model is: figures of its run's evaluation, and whether probabilities keep their word."""

from __future__ import annotations

import polars as pl

from merit.core import artifacts
from merit.core.artifacts import Artifact
from merit.core.errors import MissingArtifact
from merit.evaluation import calibration as reliability
from merit.evaluation.evaluate import AUDIENCES
from merit.report.page import SMALLEST_CELL
from merit.service import schemas
from merit.service.asking import TheModel
from merit.service.store import Served

FIGURES = "figures.parquet"


def results(served: TheModel) -> schemas.Results:
    """The figures of the run's evaluation, both ways, and the calibration of probabilities."""
    found = _results_of(served)
    return schemas.Results(
        figures=_figures(pl.read_parquet(found.file(FIGURES))),
        audiences=[row for each in _rankings(served, found) for row in _figures(pl.read_parquet(each.file(AUDIENCES)))],
        calibration=calibration_of(served),
    )


def calibration(served: TheModel) -> schemas.Calibration:
    """What was promised to test users and what came true, overall and by vertical."""
    return calibration_of(served)


def calibration_of(served: Served) -> schemas.Calibration:
    """From the model's own table of test users; bins and verticals of fewer than 50 pairs are left out."""
    table = pl.read_parquet(served.model.artifact.file("propensity") / "reliability.parquet")
    overall = reliability.summary(table)
    return schemas.Calibration(
        error=overall.ece,
        error_likely=overall.ece_likely,
        brier=overall.brier,
        prevalence=overall.prevalence,
        pairs=overall.pairs,
        bins=_bins(table),
        verticals=[
            schemas.VerticalCalibration(
                vertical=row["vertical"],
                error=row["ece"],
                error_likely=row["ece_likely"],
                brier=row["brier"],
                prevalence=row["prevalence"],
                pairs=row["pairs"],
                bins=_bins(table.filter(pl.col("vertical") == row["vertical"])),
            )
            for row in reliability.by_vertical(table).to_dicts()
            if row["pairs"] >= SMALLEST_CELL
        ],
    )


def _bins(table: pl.DataFrame) -> list[schemas.Bin]:
    """Those with enough pairs to be told."""
    enough = reliability.by_bin(table).filter(pl.col("pairs") >= SMALLEST_CELL)
    means = enough.select("low", "high", pl.col("pairs").cast(pl.Int64), pl.col("promised", "true") / pl.col("pairs"))
    return [schemas.Bin.model_validate(row) for row in means.to_dicts()]


def _figures(figures: pl.DataFrame) -> list[schemas.Figure]:
    """Of at least 50 users; JSON has no NaN."""
    numbers = pl.selectors.float()
    plain = figures.filter(pl.col("users") >= SMALLEST_CELL).with_columns(pl.when(numbers.is_finite()).then(numbers))
    return [schemas.Figure.model_validate(row) for row in plain.select(list(schemas.Figure.model_fields)).to_dicts()]


def _results_of(served: Served) -> Artifact:
    found = _beside(served, "results", "results", served.model.artifact.manifest.parents["results"].hash)
    if found is None:
        raise MissingArtifact("The results of this model are not beside it. Serve the folder of its run.")
    return found


def _rankings(served: Served, found: Artifact) -> list[Artifact]:
    """What ranked users for interests, among all that the results are about."""
    said = [
        _beside(served, name, parent.kind, parent.hash)
        for name, parent in found.manifest.parents.items()
        if parent.kind == "predictions"
    ]
    return [each for each in said if each and AUDIENCES in each.manifest.files]


def _beside(served: Served, name: str, kind: str, wanted: str) -> Artifact | None:
    """An artifact of the same run, if it is there and still the same."""
    place = served.run / name
    if not (place / artifacts.MANIFEST).exists():
        return None
    found = artifacts.load(place, kind, verify=False)
    return found if found.manifest.hash == wanted else None
