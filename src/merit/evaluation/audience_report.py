"""Sections of the results report: are the right users found for an interest, and do probabilities keep their word?"""

from __future__ import annotations

import altair as alt
import polars as pl

from merit.evaluation import calibration, tables
from merit.evaluation.ranking import MEAN, SHARES, hit_key
from merit.report import charts
from merit.report.charts import Svg
from merit.report.page import SMALLEST_CELL, Chart, Section, Table, Tile, percent, suppress

COLUMNS: dict[str, tables.Columns] = {
    "Hit@k, mean over verticals": {f"{share:.0%} of users": hit_key(share, MEAN) for share in SHARES},
    "Recall over pairs of user and label": {f"{share:.0%} of users": hit_key(share) for share in SHARES},
}


def audience_section(figures: pl.DataFrame, against: str) -> Section:
    """`figures` of `evaluation.ranking.measure_audiences`, compared by `tables.compare`."""
    safe = figures.filter(pl.col("users") >= SMALLEST_CELL)
    first = f"{SHARES[0]:.0%} of users"
    shown = [
        Table(title, _points(safe, columns, (first,)), {}, wide=True)
        for title, columns in COLUMNS.items()
        if len(tables.pick(safe, next(iter(columns.values()))))
    ]
    return Section(
        "Users for an interest",
        (
            "All test users are ranked for an interest. Hit@k is the share of those who then bought it that stand "
            "among the first k, where k is a share of all users; by chance it is that share. A user's score for a "
            "vertical is the sum over its labels. In points, with a 95 % interval over users.",
            f"Δ is the difference to {against} on the same users.",
        ),
        tables=(*shown, _by_vertical(figures)),
    )


def reliability_section(table: pl.DataFrame) -> Section:
    """`table` of `evaluation.reliability.Bins`: test users, a curve fitted on others."""
    found, bins = calibration.summary(table), calibration.by_bin(table)
    shown = bins.filter(pl.col("pairs") >= SMALLEST_CELL).select(
        promised=pl.col("promised") / pl.col("pairs"), true=pl.col("true") / pl.col("pairs")
    )
    verticals = (
        calibration.by_vertical(table)
        .sort("pairs", descending=True)
        .select(
            "vertical",
            pl.col("ece").alias("error"),
            pl.col("ece_likely").alias("1 % and more"),
            pl.col("prevalence").alias("come true"),
        )
    )
    return Section(
        "Do probabilities keep their word?",
        (
            "Pairs of test user and label by the probability they were given, and how many came true. The curve that "
            "makes probabilities of scores was fitted on other users. Expected calibration error is the mean distance "
            "of the two, over pairs; interests are rare, so it is also given for pairs of 1 % and more alone.",
        ),
        tiles=(
            Tile("Expected calibration error", f"{found.ece:.5f}"),
            Tile("among pairs of 1 % and more", f"{found.ece_likely:.4f}"),
            Tile("Brier score", f"{found.brier:.5f}", f"{percent(found.prevalence)} of pairs come true"),
        ),
        charts=(Chart("Promised and true, both axes logarithmic", _diagram(shown)),),
        tables=(
            Table(
                "By vertical of the label",
                verticals,
                {"error": "number", "1 % and more": "number", "come true": "percent"},
            ),
        ),
    )


def _points(figures: pl.DataFrame, columns: tables.Columns, gains: tuple[str, ...]) -> pl.DataFrame:
    frame = tables.headline(figures, columns, gains).drop("seeds", "commit", "command")
    return suppress(frame, keep=("method",))


def _by_vertical(figures: pl.DataFrame) -> Table:
    share = SHARES[2]
    rows = figures.filter(
        pl.col("metric") == "hit", pl.col("match") == f"{share:.0%}", ~pl.col("vertical").is_in(["", MEAN])
    )
    users = rows.group_by("vertical").agg(pl.col("users").max())
    wide = rows.pivot("method", index="vertical", values="value").join(users, on="vertical")
    methods = [name for name in wide.columns if name not in ("vertical", "users")]
    shown = wide.filter(pl.col("users") >= SMALLEST_CELL).sort("users", "vertical", descending=[True, False])
    note = "Users: those who bought something of it."
    if hidden := len(wide) - len(shown):
        note += f" {hidden} verticals with fewer than {SMALLEST_CELL} of them are left out."
    return Table(
        f"Hit@k by vertical, k = {share:.0%} of users",
        shown.select("vertical", "users", *methods),
        dict.fromkeys(methods, "percent"),
        note,
        wide=True,
    )


def _diagram(points: pl.DataFrame) -> Svg:
    """Dots on the diagonal are promises kept."""
    drawn = points.filter((pl.col("promised") > 0) & (pl.col("true") > 0))
    scale = alt.Scale(type="log")
    axis = alt.Axis(values=[10.0**power for power in range(-6, 1)], labelExpr="format(datum.value, '~%')")
    x = alt.X("promised:Q", title="promised", scale=scale, axis=axis)
    dots = (
        alt.Chart(drawn).mark_point(size=60).encode(x=x, y=alt.Y("true:Q", title="came true", scale=scale, axis=axis))
    )
    line = alt.Chart(drawn).mark_line(strokeDash=[4, 4], opacity=0.5, color="currentColor")
    told = "; ".join(f"{percent(a)} promised, {percent(b)} true" for a, b in drawn.tail(3).rows())
    return charts.svg(line.encode(x=x, y="promised:Q") + dots, f"Reliability: {told or 'no pairs'}.")
