"""Does a 95 % interval hold the true lift in 95 % of campaigns, and is it said where it does not?

    python -m benchmarks.coverage

2,000 planted campaigns of each kind: yes or no, amounts with a covariate, and amounts with heavy tails: as they are,
with a cap, and winsorised at several quantiles of both arms. The true lift is that of what is counted. "Missed in
silence": the interval misses it, and no finding speaks of few conversions or heavy amounts. "z": the median of the
estimate over its standard error, by which quantiles compare in what a test of that size finds.
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
    "lognormal_2_few_buyers": HEAVY.model_copy(update={"users": 20_000, "rate": 0.02}),
}
QUANTILES = (0.95, 0.99, 0.995, 0.999)


@dataclass(frozen=True)
class Coverage:
    """Shares of campaigns."""

    true_lift: float
    covered: float
    flagged: float
    missed_in_silence: float
    z: float


def coverage(world: PlantedCampaign, seed: int) -> Coverage:
    covered, flagged, z = [], [], []
    for arms in campaigns(world, CAMPAIGNS, seed):
        lift = compare(*arms).lift
        low, high = lift.interval()
        z.append(lift.mean / lift.sd)
        covered.append(low <= world.true_lift <= high)
        heavy = world.kind != "binary" and max(arm.heaviest or 0.0 for arm in arms) > HEAVIEST
        flagged.append(heavy or min(map(conversions, arms)) < FEWEST)
    held, told = np.array(covered), np.array(flagged)
    return Coverage(
        world.true_lift, float(held.mean()), float(told.mean()), float((~held & ~told).mean()), float(np.median(z))
    )


def winsorised() -> dict[str, PlantedCampaign]:
    """The worlds of heavy tails at each quantile that leaves something of what buyers spend."""
    return {
        f"{name}_winsorised_{level:g}": world.model_copy(update={"winsorise": level})
        for name, world in TAILS.items()
        for level in QUANTILES
        if world.cap is None and 1 - level < world.rate
    }


def main() -> None:
    given = harness.parser(__doc__).parse_args()
    figures, rows = {}, []
    for name, world in (WORLDS | TAILS | winsorised()).items():
        found = coverage(world, given.seed)
        rows.append([name, *(f"{value:.2%}" for value in list(vars(found).values())[:-1]), f"{found.z:.2f}"])
        figures |= {f"{name}_{figure}": round(value, 4) for figure, value in vars(found).items()}
    names = ["world", "true lift", "interval holds", "flagged", "missed in silence", "z"]
    show_table("Of 2,000 campaigns", names, rows)
    harness.finish("coverage", figures, given.seed)


if __name__ == "__main__":
    harness.run(main)
