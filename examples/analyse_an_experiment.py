"""A campaign from its design to the decision, on outcomes whose true lift is known: +8 %.

    python examples/analyse_an_experiment.py

No model is needed: any two arms can be compared. docs/experiments.md says what the figures mean and when not to believe
them.
"""

from __future__ import annotations

from datetime import date
from pathlib import Path

import numpy as np
import polars as pl

from merit.campaigns.experiments import steps
from merit.campaigns.experiments.analysis import Analysis
from merit.campaigns.experiments.design import ExperimentDesign, OutcomeSpec
from merit.campaigns.experiments.power import Outlook

LIFT = 0.08
DESIGN = ExperimentDesign(
    name="Trail running, spring",
    arms={"expert": 0.5, "merit": 0.5},
    control="expert",
    treatment="merit",
    salt="trail-running-2027-03",
    start=date(2027, 3, 1),
    days=7,
    minimum_effect=0.02,
    outcome=OutcomeSpec(column="bought"),
    covariates=("orders_before",),
    outlook=Outlook(mean=0.1, users_per_day=25_000, variance_removed=0.05),
)


def campaign(arms: pl.DataFrame) -> pl.DataFrame:
    """What happened: who ordered more before buys more now, and the treatment adds its lift."""
    rng = np.random.default_rng(7)
    before = rng.poisson(2, len(arms))
    rate = 0.1 * (1 + before / 2) / 2 * np.where(arms["arm"] == "merit", 1 + LIFT, 1)
    bought = (rng.random(len(arms)) < rate).astype(np.int64)
    return arms.with_columns(pl.Series("bought", bought), pl.Series("orders_before", before))


def main() -> Analysis:
    users = Path("users.parquet")
    pl.DataFrame({"user_id": [f"u{number}" for number in range(200_000)]}).write_parquet(users)
    design = steps.freeze(DESIGN, Path("runs/experiment/design"))  # before launch: it is not changed later
    for title, columns, rows in steps.power_tables(design):
        print(title, columns, rows[:3])
    assigned = steps.assign_users(design, users, Path("runs/experiment/arms"))
    campaign(pl.read_parquet(assigned.file("assignment.parquet"))).write_parquet("outcomes.parquet")
    made = steps.analyse_campaign(
        design, Path("runs/experiment/lift"), Path("outcomes.parquet"), assignment=assigned, until=DESIGN.end
    )
    told = steps.analysis_of(made)
    print(told.sentence)
    for name, value in steps.headline(told):
        print(f"{name}: {value}")
    return told


if __name__ == "__main__":
    main()
