"""Designs and tables of outcomes for the tests of campaigns."""

from __future__ import annotations

from datetime import date
from typing import Any

import numpy as np
import polars as pl

from merit.campaigns.experiments.assign import arm_of
from merit.campaigns.experiments.checks import AnalysisContext
from merit.campaigns.experiments.design import ExperimentDesign
from merit.campaigns.experiments.statistics import Moments, Reals
from merit.core.config import build

ARMS = {"expert": 0.5, "merit": 0.5}
SALT = "trail-running-2026"
KNOWN = AnalysisContext(until=date(2026, 3, 8))


def design(**changes: Any) -> ExperimentDesign:
    values: dict[str, Any] = {
        "name": "Trail running",
        "arms": ARMS,
        "control": "expert",
        "treatment": "merit",
        "salt": SALT,
        "start": "2026-03-02",
        "days": 7,
        "outcome": {"column": "bought"},
        "minimum_effect": 0.05,
        "outlook": {"mean": 0.1},
    }
    return build(ExperimentDesign, values | changes)


def outcomes(users: int = 4_000, lift: float = 0.0, seed: int = 1) -> pl.DataFrame:
    """user_id, arm, bought, orders_before, visits_before, spent, vertical; arms by the design's salt."""
    rng = np.random.default_rng(seed)
    ids = pl.Series("user_id", [f"u{number}" for number in range(users)])
    arm = arm_of(ids, ARMS, SALT)
    treated = (arm == "merit").to_numpy()
    lively = rng.gamma(1.0, 1.0, users)
    bought = rng.random(users) < np.clip(0.1 * lively * (1 + lift * treated), 0, 1)
    return pl.DataFrame(
        {
            "user_id": ids,
            "arm": arm.cast(pl.String),
            "bought": bought.astype(np.int64),
            "orders_before": rng.poisson(3 * lively),
            "visits_before": rng.gamma(2.0, 1.0, users),
            "spent": bought * rng.lognormal(3, 0.7, users),
            "vertical": pl.Series(rng.choice(["garden", "sports", "toys"], users).tolist()),
        }
    )


def moments(rows: Reals) -> Moments:
    """The slow, obvious way: (users, 1 + covariates), outcome first."""
    mean = rows.mean(axis=0)
    scatter = np.zeros((rows.shape[1], rows.shape[1]))
    for row in rows:
        scatter += np.outer(row - mean, row - mean)
    return Moments(len(rows), mean, scatter, (rows[:, 0].min(), rows[:, 0].max()))
