"""The report on several campaigns: each alone, each in the light of the others, and what they say together."""

from __future__ import annotations

from collections.abc import Mapping

import polars as pl

from merit.campaigns.experiments.charts import ForestRow, density, forest
from merit.campaigns.experiments.lift import Lift
from merit.campaigns.experiments.pooling import Mixture, Pooled
from merit.campaigns.words import share, signed
from merit.report.page import Chart, Page, Provenance, Section, Table, Tile


def pool_sentence(campaigns: int, found: Pooled) -> str:
    """What a manager should take home."""
    low, high = found.common.interval()
    return (
        f"Over {campaigns} campaigns the lift is {signed(found.common.value)} on average (95 % interval {signed(low)} "
        f"to {signed(high)}); the probability that it is positive is {share(found.common.above())}."
    )


def pool_page(campaigns: Mapping[str, Lift], found: Pooled, provenance: Provenance | None = None) -> Page:
    """`campaigns`: estimates under a flat prior, by name."""
    sections = (_together_section(campaigns, found), _each_section(campaigns, found), _next_section(found))
    return Page(
        "Pooled campaigns", pool_sentence(len(campaigns), found), sections, _tiles(campaigns, found), provenance
    )


def _tiles(campaigns: Mapping[str, Lift], found: Pooled) -> tuple[Tile, ...]:
    return (
        Tile("Campaigns", f"{len(campaigns)}"),
        Tile("Mean lift", signed(found.common.value), _between(found.common)),
        Tile("P(mean lift > 0)", share(found.common.above())),
        Tile("If all had one lift", signed(found.fixed.value), _between(found.fixed)),
        Tile("Spread of lifts", signed(found.spread)[1:], "standard deviation between campaigns"),
    )


def _together_section(campaigns: Mapping[str, Lift], found: Pooled) -> Section:
    rows: dict[str, Lift | Mixture] = {**campaigns, "one lift for all": found.fixed, "mean of lifts": found.common}
    return Section(
        "Together",
        (
            "Two readings. One lift for all: campaigns differ by chance only. Mean of lifts: each campaign has its "
            "own, and the spread between them is not known either, so that few campaigns leave a wide interval.",
            f"Had all campaigns one lift, {share(found.alike)} of such sets would differ as much.",
        ),
        charts=(
            Chart("Campaigns and what they say together", forest([_bar(*row) for row in rows.items()])),
            Chart("If all had one lift", density(found.fixed), "The blue area is the probability that it is positive."),
        ),
    )


def _each_section(campaigns: Mapping[str, Lift], found: Pooled) -> Section:
    rows = [
        (name, _told(own), share(own.above()), _told(shared), share(shared.above()))
        for (name, own), shared in zip(campaigns.items(), found.each, strict=True)
    ]
    names = ["campaign", "by itself", "P(lift > 0)", "in the light of all", "P(lift > 0), all"]
    frame = pl.DataFrame(rows, schema=names, orient="row")
    note = "In the light of all: drawn to the common mean, the more the less is known of the campaign itself."
    return Section("Each", tables=(Table("Campaigns", frame, dict.fromkeys(names[1:], "count"), note, wide=True),))


def _next_section(found: Pooled) -> Section:
    prior = found.following
    return Section(
        "The next campaign",
        (
            f"From these, a next campaign of the same kind is expected to lift by {signed(prior.mean)}, give or take "
            f"{signed(prior.sd or 0)[1:]} (one standard deviation). To weigh it against the data of that campaign, "
            f"write into its design, before launch: prior = {{ mean = {prior.mean:.6f}, sd = {prior.sd:.6f} }}.",
        ),
    )


def _bar(name: str, lift: Lift | Mixture) -> ForestRow:
    return ForestRow(name, lift.value, *lift.interval())


def _between(lift: Lift | Mixture) -> str:
    low, high = lift.interval()
    return f"{signed(low)} to {signed(high)}"


def _told(lift: Lift | Mixture) -> str:
    return f"{signed(lift.value)} ({_between(lift)})"
