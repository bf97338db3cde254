"""A model card, written by the tool: what the model was made from, how good it is, and what not to use it for."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import date

import polars as pl

from merit import __version__
from merit.evaluation import tables
from merit.evaluation.calibration import Reliability
from merit.report.page import SMALLEST_CELL

WEAK = 2.0  # a vertical whose calibration error is so many times the overall one is named


@dataclass(frozen=True)
class Facts:
    """What the card says of data, label space and policy; `live` labels are those that may be named."""

    first: date
    last: date
    users: int
    events: int
    labels: int
    live: int
    label_version: int
    policy: str
    blocked: int
    seed: int | None


def write(facts: Facts, figures: pl.DataFrame, overall: Reliability, verticals: pl.DataFrame) -> str:
    """Markdown. `figures` of the results stage, `verticals` of `reliability.by_vertical`."""
    parts = [
        "# Model card",
        f"Propensities over {facts.live:,} text interests, made by merit {__version__} with seed {facts.seed}.",
        "## Data",
        f"- Interactions from {facts.first} to {facts.last}: {facts.events:,} events of {facts.users:,} users.\n"
        f"- Label space version {facts.label_version}: {facts.labels:,} labels, {facts.live:,} of them live, "
        f"{facts.blocked:,} blocked by the policy `{facts.policy}`.\n"
        "- A probability speaks of the labels of a purchase at least a week after the last event.",
        "## Interests for a user",
        _figures(figures),
        "## Probabilities",
        f"Test users, a curve fitted on others: expected calibration error {overall.ece:.5f} over {overall.pairs:,} "
        f"pairs, {overall.ece_likely:.4f} among pairs given 1 % and more; Brier score {overall.brier:.5f}; "
        f"{overall.prevalence:.3%} of pairs came true.",
        _weak(overall, verticals),
        "## Not for",
        "Decisions about single people in credit, housing, employment, health or insurance. Interests blocked by the "
        "policy are neither scored nor named. A phrase far from every label of training is answered with a warning: "
        "take that seriously.",
    ]
    return "\n\n".join(parts) + "\n"


def _figures(figures: pl.DataFrame) -> str:
    users = int(figures["users"].max() or 0)  # type: ignore[arg-type]
    if users < SMALLEST_CELL:
        return f"Tested on fewer than {SMALLEST_CELL} users; no figure is shown."
    table = tables.headline(figures, tables.EXACT, ()).drop("commit", "command")
    return f"Exact match on {users:,} test users, in points with 95 % intervals.\n\n" + tables.markdown(
        table, tables.leaders(figures, tables.EXACT)
    )


def _weak(overall: Reliability, verticals: pl.DataFrame) -> str:
    enough = verticals.filter(pl.col("pairs") >= SMALLEST_CELL)
    weak = enough.filter(pl.col("ece") > WEAK * overall.ece).sort("ece", descending=True)
    if not len(weak):
        return "No vertical is calibrated much worse than the whole."
    named = ", ".join(f"{name} ({error:.4f})" for name, error in weak.select("vertical", "ece").head(10).rows())
    return f"Verticals whose calibration error is more than {WEAK:g} times that: {named}."
