"""Charts of lifts: a density with its probability of loss, and a forest plot of intervals."""

from __future__ import annotations

from collections.abc import Mapping

import altair as alt
import numpy as np
import polars as pl

from merit.campaigns.experiments.lift import Lift
from merit.report.charts import PALETTE, WIDTH, Svg, svg
from merit.report.page import share, signed, signed_interval

POINTS = 241  # of a drawn density
REACH = 3.6  # how far from its median it is drawn, in standard deviations
GAIN, LOSS = PALETTE[0], PALETTE[1]
AXIS = "datum.value ? format(datum.value, '+.3~p') : '0'"  # +0.25%, without the zeros of +0.250%


def density(lift: Lift) -> Svg:
    """The posterior, in two colours that meet at zero, over its 95 % interval."""
    ends = np.expm1(lift.mean + REACH * lift.sd * np.array([-1, 1]))
    lifts = np.linspace(min(ends[0], 0.0), max(ends[1], 0.0), POINTS)
    heights = lift.density(lifts)
    curve = pl.DataFrame({"lift": lifts, "density": heights / heights.max()})
    at_zero = pl.DataFrame({"lift": [0.0], "density": [float(lift.density(np.zeros(1))[0]) / heights.max()]})
    low, high = lift.interval()
    y = alt.Y("density:Q", axis=None, scale=alt.Scale(domain=[-0.1, 1.05]))
    areas = [
        alt.Chart(pl.concat([curve.filter(side), at_zero]).sort("lift")).mark_area(color=colour, opacity=0.55)
        for side, colour in ((pl.col("lift") < 0, LOSS), (pl.col("lift") > 0, GAIN))
    ]
    interval = {"low": [low], "high": [high], "middle": [lift.value], "height": [-0.06]}
    base = alt.Chart(pl.DataFrame(interval)).encode(y="height:Q")
    chart = alt.LayerChart(
        layer=[
            *(area.encode(x=_lift_axis("lift:Q"), y=y) for area in areas),
            base.mark_rule(strokeWidth=3, color="currentColor").encode(x="low:Q", x2="high:Q"),
            base.mark_point(size=70, color="currentColor", opacity=1).encode(x="middle:Q"),
            _zero(),
        ]
    )
    description = (
        f"The density of the lift around {signed(lift.value)}, its 95 % interval from {signed(low)} to {signed(high)}; "
        f"{share(lift.above())} of it lies above zero."
    )
    return svg(chart, description)


def forest(lifts: Mapping[str, tuple[float, float, float]]) -> Svg:
    """Lifts with the ends of their 95 % intervals, by name: points and lines, each with its figure."""
    rows = [(name, *lift, signed(lift[0])) for name, lift in lifts.items()]
    frame = pl.DataFrame(rows, schema=["name", "lift", "low", "high", "text"], orient="row")
    axis = alt.Axis(ticks=False, domain=False, labelLimit=150)
    base = alt.Chart(frame).encode(y=alt.Y("name:N", sort=None, title=None, axis=axis))
    chart = alt.LayerChart(
        layer=[
            base.mark_rule(strokeWidth=2.2, color=GAIN).encode(x=_lift_axis("low:Q"), x2="high:Q"),
            base.mark_point(size=60, color=GAIN, opacity=1).encode(x="lift:Q"),
            base.mark_text(dy=-11, fontSize=11).encode(x="lift:Q", text="text:N"),
            _zero(),
        ],
        width=WIDTH - 130,
        height=alt.Step(38),
    )
    intervals = "; ".join(f"{name} {signed_interval(*lift)}" for name, lift in lifts.items())
    return svg(chart, f"Lifts with 95 % intervals: {intervals}.")


def _lift_axis(field: str) -> alt.X:
    axis = alt.Axis(labelExpr=AXIS, tickCount=5, grid=False, labelFlush=False, labelOverlap=True)
    return alt.X(field, title="relative lift", scale=alt.Scale(zero=True), axis=axis)


def _zero() -> alt.Chart:
    line = alt.Chart(pl.DataFrame({"lift": [0.0]})).mark_rule(color="currentColor", strokeDash=[4, 3], opacity=0.6)
    chart: alt.Chart = line.encode(x="lift:Q")
    return chart
