"""Rows that can be trusted: a figure with its interval, its gain over a baseline, its seeds, command and commit.

    figures = compare([(predictions, measure(predictions, truth)), …], users=truth.users, seed=7)
    table = headline(figures)
    print(markdown(table)); show("Results", table)

`figures` is long (one row per method and figure, shares as numbers); tables are wide and ready to read (points).
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict
from typing import Any

import polars as pl
from rich.markup import escape

from merit.core import console
from merit.core.errors import DataError
from merit.evaluation.classification import SOFT_MATCH, MetricKey, Metrics, named
from merit.evaluation.exposure_bias import LOST
from merit.evaluation.matching import SOFT
from merit.evaluation.predictions import Predictions
from merit.evaluation.uncertainty import RESAMPLES, BootstrapSample, interval, minus, pool, sample, weights

Columns = Mapping[str, MetricKey]
COUNTED = {"predictions", "clusters"}  # amounts, not shares
SCHEMA = pl.Schema(
    {
        **dict.fromkeys(("method", "metric", "match"), pl.String()),
        "budget": pl.Int64(),
        **dict.fromkeys(("part", "vertical", "rule", "average"), pl.String()),
        **dict.fromkeys(("value", "low", "high", "spread"), pl.Float64()),
        **dict.fromkeys(("users", "seeds"), pl.Int64()),
        **dict.fromkeys(("gain", "gain_low", "gain_high"), pl.Float64()),  # over the method compared with
        **dict.fromkeys(("command", "commit"), pl.String()),
    }
)
ORIGIN = ("commit", "command")  # not in the figures that an artifact stores: equal work has equal bytes
FACTS = ("users", "seeds", *ORIGIN)
HEADLINE: Columns = {
    "recall": MetricKey("recall", SOFT_MATCH),
    "precision": MetricKey("precision", SOFT_MATCH),
    "F1": MetricKey("f1", SOFT_MATCH),
    "recall@5": MetricKey("recall", SOFT_MATCH, 5),
    "recall@10": MetricKey("recall", SOFT_MATCH, 10),
    "recall@20": MetricKey("recall", SOFT_MATCH, 20),
    "predictions per user": MetricKey("predictions"),
}
EXACT: Columns = {name: key._replace(match="exact") if key.match else key for name, key in HEADLINE.items()}
NOVEL: Columns = {
    f"{match} @{budget}": MetricKey("recall", named, budget, "novel")
    for match, named in (("soft", SOFT_MATCH), ("exact", "exact"))
    for budget in (5, 10, 20)
}
THRESHOLDS: Columns = {
    **{f"recall {match}": MetricKey("recall", match) for match in ("0.7", "0.8", "0.9", "exact")},
    "recall, τ-AUC 0.5–1": MetricKey("tau_auc", "0.5–1"),
    "recall, τ-AUC 0.7–0.9": MetricKey("tau_auc", "0.7–0.9"),
    "recall 0.7, any": MetricKey("recall", "0.7", rule="any"),
    "precision 0.7, any": MetricKey("precision", "0.7", rule="any"),
    "F1 0.7, any": MetricKey("f1", "0.7", rule="any"),
}
EXPOSURE: Columns = {
    "near-correlates": MetricKey("near_correlates", SOFT_MATCH),
    "near-correlates @10": MetricKey("near_correlates", SOFT_MATCH, 10),
    "clusters per user": MetricKey("clusters"),
    "clusters per user @10": MetricKey("clusters", budget=10),
    "recall lost": LOST,
}


def compare(
    runs: Iterable[tuple[Predictions, Metrics]],
    users: int,
    seed: int,
    against: str = "trivial",
    resamples: int = RESAMPLES,
) -> pl.DataFrame:
    """All figures of all methods; runs of one name are seeds of one method. See SCHEMA."""
    methods: dict[str, list[tuple[Predictions, Metrics]]] = {}
    for run in runs:
        methods.setdefault(run[0].method, []).append(run)
    if against not in methods:
        raise DataError(f"There is no method {against!r} to compare with, only {', '.join(methods)}.")
    user_weights = weights(users, seed, resamples)
    drawn = {name: _pooled([sample(metrics, user_weights) for _, metrics in of]) for name, of in methods.items()}
    rows = [
        row
        for name, of in methods.items()
        for row in _rows(name, drawn[name], drawn[against], [predictions for predictions, _ in of])
    ]
    return pl.DataFrame(rows, schema=SCHEMA)


def _pooled(seeds: Sequence[Mapping[MetricKey, BootstrapSample]]) -> dict[MetricKey, BootstrapSample]:
    """Only what every seed has: a mean over some of the seeds would be another figure."""
    return {key: pool([seed[key] for seed in seeds]) for key in seeds[0] if all(key in seed for seed in seeds)}


def _rows(
    method: str,
    drawn: Mapping[MetricKey, BootstrapSample],
    base: Mapping[MetricKey, BootstrapSample],
    seeds: Sequence[Predictions],
) -> Iterable[dict[str, Any]]:
    facts = {name: ", ".join(sorted({getattr(seed, name) for seed in seeds})) for name in ("command", "commit")}
    for key, figure in drawn.items():
        row = {"method": method} | key._asdict() | asdict(interval(figure)) | facts
        if key in base:
            gain = interval(minus(figure, base[key]))
            row |= {"gain": gain.value, "gain_low": gain.low, "gain_high": gain.high}
        yield row


def pick(figures: pl.DataFrame, key: MetricKey) -> pl.DataFrame:
    """The rows of one figure, a row per method; "soft" is the headline threshold of these figures."""
    if key.match == SOFT_MATCH:
        key = key._replace(match=soft_of(figures))
    return figures.filter(pl.all_horizontal(pl.col(name).eq_missing(value) for name, value in key._asdict().items()))


def soft_of(figures: pl.DataFrame) -> str:
    """The headline threshold that figures were computed at: the one with budgets, or the default."""
    budgets = figures.filter(pl.col("metric") == "recall", pl.col("budget").is_not_null(), pl.col("match") != "exact")
    return str(budgets["match"][0]) if len(budgets) else named(SOFT)


def headline(figures: pl.DataFrame, columns: Columns = HEADLINE, gains: Sequence[str] = ("recall",)) -> pl.DataFrame:
    """A row per method, best first by the first column, each cell with its interval; then where it came from.

    A method for which the first column is undefined is last. `gains` names the columns that are also given as
    difference to the method compared with.
    """
    best = pick(figures, next(iter(columns.values()))).sort(
        pl.col("value").fill_nan(None), "method", descending=[True, False], nulls_last=True
    )
    table = best.select("method")
    for name, key in columns.items():
        cells = pick(figures, key).select("method", **_cells(name, key, name in gains))
        table = table.join(cells, on="method", how="left", maintain_order="left")
    facts = [name for name in FACTS if name in best.columns]
    return table.join(best.select("method", *facts), on="method", how="left", maintain_order="left")


def _cells(name: str, key: MetricKey, gain: bool) -> dict[str, pl.Expr]:
    unit = 1 if key.metric in COUNTED else 100
    cells = {name: _text("value", "low", "high", unit, "")}
    return cells | ({f"Δ {name}": _text("gain", "gain_low", "gain_high", unit, "+")} if gain else {})


def _text(value: str, low: str, high: str, unit: int, sign: str) -> pl.Expr:
    """29.1 [27.9, 30.3]: shares in points of a hundred."""

    def write(row: Mapping[str, float | None]) -> str | None:
        figures = [row[name] for name in (value, low, high)]
        if any(figure is None or math.isnan(figure) for figure in figures):
            return None
        middle, left, right = (f"{unit * figure:{sign}.1f}" for figure in figures if figure is not None)
        return f"{middle} [{left}, {right}]"

    return pl.struct(value, low, high).map_elements(write, return_dtype=pl.String)


def leaders(figures: pl.DataFrame, columns: Columns) -> dict[str, str]:
    """The method with the highest figure in each column of shares; in a tie, the first by name."""
    first = {}
    for name, key in columns.items():
        best = pick(figures, key).drop_nans("value").sort("value", "method", descending=[True, False])
        if key.metric not in COUNTED and len(best):
            first[name] = str(best["method"][0])
    return first


def markdown(table: pl.DataFrame, bold: Mapping[str, str] | None = None) -> str:
    """A table for a README; `bold` maps a column to the method whose cell stands out."""
    lines = [table.columns, ["---"] * table.width]
    for row in table.iter_rows(named=True):
        cells = {name: "–" if cell is None else str(cell).replace("|", "\\|") for name, cell in row.items()}
        strong = {name: f"**{cells[name]}**" for name, method in (bold or {}).items() if row["method"] == method}
        lines.append(list((cells | strong).values()))
    return "\n".join(f"| {' | '.join(line)} |" for line in lines) + "\n"


def show(title: str, table: pl.DataFrame, bold: Mapping[str, str] | None = None) -> None:
    """The table on the terminal."""
    rows = []
    for row in table.iter_rows(named=True):
        strong = {name for name, method in (bold or {}).items() if row["method"] == method}
        rows.append([_marked(cell, name in strong) for name, cell in row.items()])
    console.show_table(title, table.columns, rows)


def _marked(cell: Any, strong: bool) -> str:
    text = escape("–" if cell is None else f"{cell:,}" if isinstance(cell, int) else str(cell))
    return f"[bold]{text}[/bold]" if strong else text
