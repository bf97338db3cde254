"""Does a 95 % interval hold the true lift in 95 % of campaigns, and is it said where it does not?

    python -m benchmarks.coverage

2,000 planted campaigns of each kind: yes or no, amounts with a covariate, and amounts with heavy tails, with a cap and
without. "Missed in silence": the interval misses the true lift, and no finding speaks of few conversions
or heavy amounts.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from benchmarks import harness
from benchmarks.planted_campaigns import PlantedCampaign, campaigns
from merit.campaigns.experiments.checks import FEWEST, HEAVIEST
from merit.campaigns.experiments.lift import compare, conversions
from merit.core.console import show_table

CAMPAIGNS = 2_000
WORLDS = {
    "coverage": PlantedCampaign(lift=0.05),
    "coverage_covariate": PlantedCampaign(kind="amount", shape=2.0, lift=0.05, explained=0.5),
    "coverage_9_to_1": PlantedCampaign(treated=0.1, lift=0.05),
    "coverage_25_conversions": PlantedCampaign(users=2_000, rate=0.025),
    "coverage_heavy_amounts": PlantedCampaign(kind="amount", shape=0.05, users=2_000),
}
HEAVY = PlantedCampaign(kind="heavy", rate=0.1, shape=2.0, lift=0.05)
TAILS = {
    "lognormal_1": HEAVY.model_copy(update={"shape": 1.0, "users": 20_000}),
    "lognormal_2": HEAVY.model_copy(update={"users": 20_000}),
    "lognormal_2_9_to_1": HEAVY.model_copy(update={"users": 20_000, "treated": 0.1}),
    "lognormal_2_9_to_1_capped": HEAVY.model_copy(update={"users": 20_000, "treated": 0.1, "cap": 20.0}),
    "lognormal_2_5_small": HEAVY.model_copy(update={"shape": 2.5}),
}


@dataclass(frozen=True)
class Coverage:
    """Shares of campaigns."""

    covered: float
    flagged: float
    missed_in_silence: float


def coverage(world: PlantedCampaign, seed: int) -> Coverage:
    covered, flagged = [], []
    for arms in campaigns(world, CAMPAIGNS, seed):
        low, high = compare(*arms).lift.interval()
        covered.append(low <= world.true_lift <= high)
        heavy = world.kind != "binary" and max(arm.heaviest or 0.0 for arm in arms) > HEAVIEST
        flagged.append(heavy or min(map(conversions, arms)) < FEWEST)
    held, told = np.array(covered), np.array(flagged)
    return Coverage(float(held.mean()), float(told.mean()), float((~held & ~told).mean()))


def main() -> None:
    given = harness.parser(__doc__).parse_args()
    figures, rows = {}, []
    for name, world in (WORLDS | TAILS).items():
        found = coverage(world, given.seed)
        rows.append([name, *(f"{value:.2%}" for value in vars(found).values())])
        figures |= {f"{name}_{figure}": round(value, 4) for figure, value in vars(found).items()}
    show_table("Of 2,000 campaigns", ["world", "interval holds", "flagged", "missed in silence"], rows)
    harness.finish("coverage", figures, given.seed)


if __name__ == "__main__":
    harness.run(main)
