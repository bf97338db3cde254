"""A workspace with everything that may hold a user: a run, an audience, its exports and an assignment."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import polars as pl

import merit
from merit.campaigns.audiences import build
from merit.campaigns.audiences.export import WRITERS, export
from merit.campaigns.audiences.request import AudienceRequest
from merit.campaigns.experiments import steps
from merit.campaigns.experiments.design import ExperimentDesign
from merit.core import config

DESIGN = {
    "name": "Spring",
    "arms": {"expert": 0.5, "merit": 0.5},
    "control": "expert",
    "treatment": "merit",
    "salt": "spring-2027",
    "start": "2027-03-01",
    "days": 7,
    "minimum_effect": 0.02,
    "outcome": {"column": "bought"},
    "outlook": {"mean": 0.04, "users_per_day": 1000},
}


def fill(run: Path, place: Path) -> Path:
    """The workspace, with a copy of the run in it."""
    shutil.copytree(run, place / "run")
    model = merit.load(place / "run", verify=False)
    values: dict[str, Any] = {
        "name": "Spring",
        "interests": [model.labels.texts[0]],
        "size": {"by": "percentile", "percent": 95},
        "control": {"share": 0.1, "salt": "spring-control"},
    }
    made = build.build(model, config.build(AudienceRequest, values), place / "spring")
    for form in WRITERS:
        export(made, model, form, place / f"sent-{form}")
    export(made, model, "csv", place / "sent and gone", "all")
    shutil.rmtree(place / "sent and gone")
    model.users.select("user_id").write_csv(place.parent / "everyone.csv")
    agreed = steps.freeze(config.build(ExperimentDesign, DESIGN), place / "design")
    steps.assign_users(agreed, place.parent / "everyone.csv", place / "assignment")
    return place


def contents(folder: Path) -> dict[str, pl.DataFrame]:
    """Every table below a folder."""
    return {str(file.relative_to(folder)): pl.read_parquet(file) for file in sorted(folder.rglob("*.parquet"))}
