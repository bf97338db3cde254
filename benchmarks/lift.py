"""Outcomes of users → a lift with its interval: rows a second, against pandas and statsmodels, and does it cover?

    python -m benchmarks.lift            # 7 million users, 3.5 million per arm
    python -m benchmarks.lift --quick    # 1 million

Both sides read the same Parquet files, make sure that no user comes twice, and adjust for three covariates: ours with
sums, theirs with pandas and an ordinary least squares fit with robust standard errors. Their estimates are
compared. Coverage is that of benchmarks.coverage. With --data FOLDER
the synthetic table is kept there.
"""

from __future__ import annotations

from datetime import date
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import pandas as pd
import polars as pl
import statsmodels.api as sm

from benchmarks import harness
from benchmarks.coverage import WORLDS, coverage
from merit.campaigns.experiments.analysis import Analysis, analyse
from merit.campaigns.experiments.checks import AnalysisContext
from merit.campaigns.experiments.design import ExperimentDesign, OutcomeSpec
from merit.campaigns.experiments.outcomes import tabulate
from merit.campaigns.experiments.power import Outlook
from merit.core.seeds import stream

FILES = 7
COVARIATES = ("orders_before", "visits_before", "days_since")
DESIGN = ExperimentDesign(
    name="benchmark",
    arms={"expert": 0.5, "merit": 0.5},
    control="expert",
    treatment="merit",
    start=date(2026, 3, 2),
    days=7,
    outcome=OutcomeSpec(column="bought"),
    covariates=COVARIATES,
    minimum_effect=0.01,
    outlook=Outlook(mean=0.05),
)


def synthesise(folder: Path, rows: int, seed: int) -> None:
    """Users who bought before buy again; the treatment sells one percent more."""
    folder.mkdir(parents=True, exist_ok=True)
    size = rows // FILES
    for number in range(FILES):
        rng = stream(seed, "outcomes", number)
        lively = rng.gamma(0.8, 1.0, size)
        merit = rng.random(size) < 0.5
        rate = np.clip((0.01 + 0.05 * lively) * np.where(merit, 1.01, 1.0), 0, 1)
        pl.DataFrame(
            {
                "user_id": pl.Series(np.arange(number * size, (number + 1) * size)).cast(pl.String),
                "arm": pl.Series(merit.astype(np.uint8)).cat.to(pl.Enum(["expert", "merit"])).cast(pl.String),
                "bought": (rng.random(size) < rate).astype(np.int8),
                "orders_before": rng.poisson(2 * lively),
                "visits_before": rng.poisson(9 * lively),
                "days_since": rng.exponential(30 / (0.2 + lively)),
            }
        ).write_parquet(folder / f"{number}.parquet")


def run_merit(folder: Path) -> Analysis:
    return analyse(DESIGN, tabulate(DESIGN, folder), AnalysisContext(until=DESIGN.end))


def run_statsmodels(folder: Path) -> tuple[float, float]:
    """The difference per user, and its standard error."""
    frame = pd.read_parquet(folder)
    if frame["user_id"].duplicated().any():
        raise SystemExit("a user comes twice")
    treated = (frame["arm"] == "merit").astype(float)
    fitted = sm.OLS(frame["bought"].astype(float), sm.add_constant(frame[[*COVARIATES]].assign(treated=treated)))
    found = fitted.fit(cov_type="HC1")
    return float(found.params["treated"]), float(found.bse["treated"])


def main() -> None:
    arguments = harness.parser(__doc__).parse_args()
    with TemporaryDirectory() as temporary:
        folder = arguments.data or Path(temporary) / "outcomes"
        if not folder.exists():
            synthesise(folder, 1_000_000 if arguments.quick else 7_000_000, arguments.seed)
        report(folder, arguments.seed)


def report(folder: Path, seed: int) -> None:
    rows = pl.scan_parquet(folder).select(pl.len()).collect().item()
    kept: dict[str, Any] = {}
    times = harness.alternate(
        lambda: kept.update(ours=run_merit(folder)), lambda: kept.update(theirs=run_statsmodels(folder)), rounds=3
    )
    peak, _ = harness.in_child(run_merit, folder)
    their_peak, _ = harness.in_child(run_statsmodels, folder)
    ours, (difference, error) = kept["ours"], kept["theirs"]
    own_error = (ours.difference_high - ours.difference_low) / (2 * 1.959964)
    figures = {
        "rows": rows,
        "seconds": round(times.ours, 2),
        "rows_per_second": round(rows / times.ours),
        "statsmodels_seconds": round(times.other, 2),
        "speedup_vs_statsmodels": round(times.speedup, 1),
        "peak_gib": round(peak, 2),
        "statsmodels_peak_gib": round(their_peak, 2),
        "differ_in_standard_errors": round(abs(ours.difference - difference) / error, 4),
        "ratio_of_standard_errors": round(own_error / error, 4),
        **{name: round(coverage(world, seed).covered, 4) for name, world in WORLDS.items()},
    }
    harness.finish("lift", figures, seed)


if __name__ == "__main__":
    harness.run(main)
