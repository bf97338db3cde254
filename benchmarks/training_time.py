"""Recall by training time: MERIT and the peers that train, each given more and more of it.

    python -m benchmarks.training_time --data FOLDER [--tags brand] [--seconds 15 60 240] [--plot FILE.svg]

FOLDER holds interactions.parquet and items.parquet; without it, the Complete Journey data is used. Every budget is a
grid of its own (`merit bench`): --seconds is for every network. MERIT trains three of them, mines and writes states;
its place on the axis is the time of all that. Every cell is an artifact: a stopped run goes on where it was.
"""

from __future__ import annotations

import json
import math
from pathlib import Path

import altair as alt
import polars as pl

from benchmarks import harness
from benchmarks.objectives import settings
from merit.bench.config import MERIT, BenchConfig
from merit.bench.grid import bench
from merit.bench.results import BenchResults
from merit.core import config, console, provenance
from merit.evaluation import tables
from merit.evaluation.classification import MetricKey
from merit.report import charts

METHODS = (MERIT, "linear", "SASRec", "DEXML-DS", "ALS", "history frequency", "trivial")
HEIGHT = 480  # the best are within a point of each other, and their names beside each other
NAME = 14  # pixels between two names
SHOWN = {f"@{k}": MetricKey("recall", "exact", k) for k in (5, 10, 20)}
TOY = [
    *("labels.encoder=hashed", "backbone.width=32", "backbone.layers=1", "states.labels=3", "propensity.fit.epochs=2"),
    *("propensity.model.labels=2", "propensity.model.width=32", "propensity.model.layers=1"),
    *("mining.samples=1", "mining.max_labels=3", "evaluation.resamples=100", "datasets.shop.prepare.per_train_user=1"),
]


def grid(
    data: Path | None, tags: list[str], seconds: float, seeds: list[int], out: Path, overrides: list[str]
) -> BenchResults:
    """All methods with one budget."""
    values = {
        "seconds": seconds,
        "out": out / f"{seconds:g}",
        "results": out / f"{seconds:g}",
        "groups": [{"methods": METHODS, "seeds": seeds}],
        "datasets": {"shop": {"source": settings(data, tags, 1, out, []).source.model_dump(mode="json")}},
        "predict": {"exposure": False, "union": False, "likelihood": False},
    }
    outcome = bench(config.build(BenchConfig, values, overrides), ["shop"])
    for cell, told in outcome.failures.items():
        console.warn(f"{cell}: {told}")
    return outcome.results[0]


def points(results: BenchResults) -> pl.DataFrame:
    """A row for each method: what it took, what it found, and how far ours was ahead."""
    took = {each.method: each.train_seconds for each in results.costs}
    rows = []
    for method in METHODS:
        row: dict[str, object] = {"budget": results.seconds, "method": method, "seconds": took[method]}
        for name, key in SHOWN.items():
            found = tables.pick(results.frame(), key).filter(pl.col("method") == method).row(0, named=True)
            row[name] = found["value"]
            row[f"lead {name}"] = None if method == MERIT else _points(found)
        rows.append(row)
    return pl.DataFrame(rows, infer_schema_length=None)


def in_points(found: pl.DataFrame) -> pl.DataFrame:
    """Recall in points of a hundred, and seconds, to one digit."""
    return found.with_columns((pl.col(list(SHOWN)) * 100).round(1), pl.col("seconds").round(1))


def _points(found: dict[str, float]) -> str:
    return f"{100 * found['lead']:+.1f} [{100 * found['lead_low']:+.1f}, {100 * found['lead_high']:+.1f}]"


def main() -> None:
    parser = harness.parser(__doc__)
    parser.add_argument("--tags", nargs="*", default=[])
    parser.add_argument("--seconds", nargs="+", type=float, default=[15, 60, 240])
    parser.add_argument("--seeds", nargs="+", type=int, default=[1])
    parser.add_argument("--set", action="append", default=[], help="override a setting of the grid")
    parser.add_argument("--out", type=Path, default=Path("runs/training-time"))
    parser.add_argument("--plot", type=Path, help="draw recall of 10 labels by seconds into this file")
    asked = parser.parse_args()
    console.set_up_logging(quiet=True)
    budgets, overrides = ([1.0], [*TOY, *asked.set]) if asked.quick else (asked.seconds, asked.set)
    found = pl.concat(
        [points(grid(asked.data, asked.tags, each, asked.seeds, asked.out, overrides)) for each in budgets],
        how="vertical_relaxed",
    )
    shown = in_points(found)
    print(tables.markdown(shown.with_columns(pl.exclude("method").cast(pl.String))))
    if asked.plot:
        asked.plot.write_text(charts.on_white(drawn(found)), encoding="utf-8")
    print(json.dumps({"rows": shown.to_dicts(), "commit": provenance.commit(), "seeds": asked.seeds}))


def drawn(found: pl.DataFrame) -> charts.Svg:
    """Lines for what trains longer with more time; all are drawn on to the right, where their names are."""
    last = found["seconds"].max()
    kept = found.filter(pl.col("method") != "trivial")  # the same as history frequency, at ten labels
    kept = kept.select("method", pl.col("seconds").clip(1.0), pl.col("@10").alias("recall"))
    ends = kept.group_by("method", maintain_order=True).last().with_columns(seconds=pl.lit(last, dtype=pl.Float64))
    places = apart(ends["recall"].to_list(), NAME / HEIGHT * (kept["recall"].max() - kept["recall"].min()))  # type: ignore[operator]
    told = "; ".join(f"{method} {100 * recall:.1f} at {seconds:.0f} s" for method, seconds, recall in kept.rows())
    color = alt.condition(f"datum.method == {MERIT!r}", alt.value(charts.PALETTE[1]), alt.value(charts.PALETTE[0]))
    axis = alt.Axis(format="~s", values=[1, 10, 100, 1_000])
    x = alt.X("seconds:Q", title="seconds of training, all included", scale=alt.Scale(type="log"), axis=axis)
    y = alt.Y("recall:Q", title="recall of 10 labels", scale=alt.Scale(zero=False), axis=alt.Axis(format=".0%"))
    lines = alt.Chart(pl.concat([kept, ends])).mark_line().encode(x=x, y=y, detail="method:N", color=color)
    dots = alt.Chart(kept).mark_point(size=36, opacity=1).encode(x=x, y=y, color=color)
    named = alt.Chart(ends.with_columns(recall=pl.Series(places)))
    names = named.mark_text(align="left", dx=6).encode(x=x, y=y, text="method:N", color=color)
    room = {"left": 5, "top": 5, "right": 40, "bottom": 5}  # names are wider in a browser than where they are measured
    whole = (lines + dots + names).properties(width=charts.WIDTH, height=HEIGHT, padding=room)
    return charts.svg(whole, f"Recall of 10 labels by training time: {told}.")


def apart(heights: list[float], least: float) -> list[float]:
    """Where names stand: at their heights, or as little below as keeps each so far from the one above it."""
    places = list(heights)
    above = math.inf
    for row in sorted(range(len(heights)), key=lambda row: -heights[row]):
        places[row] = above = min(heights[row], above - least)
    return places


if __name__ == "__main__":
    harness.run(main)
