"""One picture of a benchmark: recall of every method at an equal budget, data set beside data set."""

from __future__ import annotations

from collections.abc import Sequence

import altair as alt
import polars as pl

from merit.bench.results import BenchResults
from merit.evaluation import tables
from merit.evaluation.classification import MetricKey
from merit.report import charts
from merit.report.charts import Svg

SHOWN = MetricKey("recall", "exact", 10)
TITLE = "Recall of the first 10 labels, exact match, with 95 % intervals over users"
WIDTH, ROW = 190, 15


def overview(found: Sequence[BenchResults]) -> Svg:
    """A row for each method, the best on the mean over data sets first; a panel for each data set."""
    rows = [_rows(each) for each in found]
    order = _order(rows)
    panels = [
        _panel(frame, each, order, names=number == 0)
        for number, (frame, each) in enumerate(zip(rows, found, strict=True))
    ]
    told = "; ".join(f"{each.dataset}: {_told(frame)}" for frame, each in zip(rows, found, strict=True))
    room = {"left": 40, "top": 5, "right": 5, "bottom": 5}  # names are wider in a browser than where they are measured
    return charts.svg(alt.hconcat(*panels, spacing=14, padding=room), f"{TITLE}. {told}.")


def _rows(each: BenchResults) -> pl.DataFrame:
    """Methods of the grid, one way of reading each."""
    rows = tables.pick(each.frame(), SHOWN).filter(pl.col("method").is_in(list(each.seeds)), ~each.varied())
    return rows.select("method", "value", "low", "high").drop_nulls("value")


def _order(rows: Sequence[pl.DataFrame]) -> list[str]:
    means = pl.concat(rows).group_by("method").agg(pl.col("value").mean())
    return means.sort("value", "method", descending=[True, False])["method"].to_list()


def _panel(frame: pl.DataFrame, each: BenchResults, order: Sequence[str], names: bool) -> alt.LayerChart:
    axis = alt.Axis(labels=names, ticks=False, domain=False, labelLimit=220)
    y = alt.Y("method:N", sort=list(order), title=None, axis=axis, scale=alt.Scale(domain=list(order)))
    scale, form = alt.Scale(zero=False, nice=True), alt.Axis(format=".0%", tickCount=5)
    base = alt.Chart(frame)
    ours = alt.condition(f"datum.method == {each.ours!r}", alt.value(charts.PALETTE[1]), alt.value(charts.PALETTE[0]))
    spans = base.mark_rule(strokeWidth=1.6).encode(
        x=alt.X("low:Q", title=f"{each.dataset}, {each.users:,} users", scale=scale, axis=form),
        x2="high:Q",
        y=y,
        color=ours,
    )
    dots = base.mark_point(size=36, opacity=1).encode(x=alt.X("value:Q", scale=scale, axis=form), y=y, color=ours)
    panel: alt.LayerChart = (spans + dots).properties(width=WIDTH, height=ROW * len(order))
    return panel


def _told(frame: pl.DataFrame) -> str:
    best = frame.sort("value", "method", descending=[True, False])
    return ", ".join(f"{method} {100 * value:.1f}" for method, value in best.select("method", "value").rows())
