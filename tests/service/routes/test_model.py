"""What is told of the model's quality is what its run measured, and nothing about fewer than 50."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import polars as pl
import pytest

from merit.evaluation import calibration
from merit.service.routes import model as routes


@pytest.fixture
def reliable(made: Path) -> pl.DataFrame:
    return pl.read_parquet(made / "model/propensity/reliability.parquet")


def test_calibration_is_that_of_the_model(ask: Any, reliable: pl.DataFrame) -> None:
    told = ask("read").get("/v1/model/calibration").json()
    overall = calibration.summary(reliable)
    assert (told["error"], told["brier"], told["pairs"]) == (overall.ece, overall.brier, overall.pairs)
    assert told == ask("read").get("/v1/model/results").json()["calibration"]


def test_every_vertical_has_its_own(ask: Any, reliable: pl.DataFrame) -> None:
    told = {row["vertical"]: row for row in ask("read").get("/v1/model/calibration").json()["verticals"]}
    expected = [row for row in calibration.by_vertical(reliable).to_dicts() if row["pairs"] >= 50]
    assert set(told) == {row["vertical"] for row in expected}
    for row in expected:
        found = told[row["vertical"]]
        assert (found["error"], found["brier"], found["prevalence"]) == (row["ece"], row["brier"], row["prevalence"])
        assert all(each["pairs"] >= 50 for each in found["bins"])


def test_users_for_an_interest_come_from_the_rankings(ask: Any, made: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert ask("read").get("/v1/model/results").json()["audiences"] == []  # 33 test users are too few to tell
    monkeypatch.setattr(routes, "SMALLEST_CELL", 1)
    told = ask("read").get("/v1/model/results").json()
    ranked = pl.read_parquet(made / "ranking/audiences.parquet").filter(pl.col("users") >= 1)
    assert [row["value"] for row in told["audiences"]] == ranked["value"].to_list()
    figures = pl.read_parquet(made / "results/figures.parquet").filter(pl.col("users") >= 1)
    assert len(told["figures"]) == len(figures) and {row["metric"] for row in told["audiences"]} == {"hit"}


def test_results_of_another_run_are_not_shown(ask: Any, service: Any, tmp_path: Path) -> None:
    served = service.store.current
    elsewhere = type(served)(served.model, served.name, served.opened, served.explainer, tmp_path)
    with pytest.raises(routes.MissingArtifact, match="not beside it"):
        routes.results(elsewhere)
    assert routes.calibration(elsewhere).pairs  # is the model's own
