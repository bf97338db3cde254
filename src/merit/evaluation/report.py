"""The results report: methods on equal terms, with intervals, and what would flatter them taken apart.

figures = tables.compare(runs, users=truth.users, seed=7)
drawn = pictures(teacher_forcing, self_correction, truth, texts, label_users, seed=7)
html = page.render(results_page(figures, drawn, page.provenance(manifest)))
"""

from __future__ import annotations

from collections.abc import Sequence

import altair as alt
import polars as pl

from merit.evaluation import calibration, tables
from merit.evaluation.classification import CURVE, SOFT_MATCH, MetricKey, named
from merit.evaluation.exposure_bias import SINGLE
from merit.evaluation.ranking import MEAN, SHARES, hit_key
from merit.report import charts
from merit.report.charts import Svg
from merit.report.page import (
    SMALLEST_CELL,
    Chart,
    Page,
    Provenance,
    Section,
    Table,
    Tile,
    count,
    percent,
    suppress,
    too_few,
)

DRAWN = 5  # methods in one chart: as many as there are colours
AUDIENCE_TABLES: dict[str, tables.Columns] = {
    "Hit@k, mean over verticals": {f"{share:.0%} of users": hit_key(share, MEAN) for share in SHARES},
    "Recall over pairs of user and label": {f"{share:.0%} of users": hit_key(share) for share in SHARES},
}
FIGURES = ("value", "low", "high", "spread", "gain", "gain_low", "gain_high")


def results_page(
    figures: pl.DataFrame,
    drawn: Sequence[pl.DataFrame] = (),
    provenance: Provenance | None = None,
    against: str = "trivial",
    more: Sequence[Section] = (),
) -> Page:
    """`figures` as `evaluation.tables.compare` gives them; `against` is the method that gains are counted from.

    `more` sections stand behind those about lists of labels.
    """
    title, subtitle = "Results", "What each method finds, how sure that is, and what its length has to do with it."
    users = int(figures["users"].max() or 0)  # type: ignore[arg-type]
    if users < SMALLEST_CELL:
        return too_few(title, subtitle, "This evaluation is about", provenance)
    safe = figures.with_columns(pl.when(pl.col("users") >= SMALLEST_CELL).then(pl.col(FIGURES)))
    sections = (
        *_list_sections(safe, against),
        *([picture_section(drawn)] if drawn else []),
        *more,
        _source_section(safe),
    )
    return Page(title, subtitle, sections, _tiles(safe, users), provenance)


def _tiles(figures: pl.DataFrame, users: int) -> tuple[Tile, ...]:
    best = (
        tables.pick(figures, MetricKey("recall", SOFT_MATCH, 10))
        .drop_nulls("value")
        .sort("value", descending=True)
        .head(1)
    )
    leader = [Tile("Best recall@10", percent(value), method) for method, value in best.select("method", "value").rows()]
    return (Tile("Test users", count(users)), Tile("Methods", count(figures["method"].n_unique())), *leader)


def _list_sections(figures: pl.DataFrame, against: str) -> list[Section]:
    """What lists of labels find, one heading after the other."""
    points = pl.concat(
        tables.pick(figures, MetricKey("recall", named(tau))).with_columns(tau=pl.lit(tau, dtype=pl.Float64))
        for tau in CURVE
    )
    by_threshold = _bands(_best(points), "tau", "Recall by threshold", "τ: cosine from which two labels match")
    lengths = tables.pick(figures, MetricKey("predictions")).drop_nulls("value").sort("value", descending=True)
    spans = [f"{method}: {value:.1f}" for method, value in lengths.select("method", "value").rows()]
    description = f"Predictions per user: {'; '.join(spans)}."
    soft = tables.soft_of(figures)
    by_vertical, methods = _pivoted(figures.filter(pl.col("vertical") != "", pl.col("metric") == "recall"))
    return [
        Section(
            "Methods on equal terms",
            (
                "Soft match: a predicted label counts as right when its meaning is close enough to a gold label "
                f"(cosine at least {soft}), each label at most once. Golds and predictions are pooled over all users. "
                "In points of a hundred, with a 95 % interval over users in brackets.",
                f"Δ is the difference to {against} on the same users.",
            ),
            tables=(
                _headline(f"Soft match at τ = {soft}", figures, tables.HEADLINE, ("recall", "precision", "F1")),
                _headline("Exact match", figures, tables.EXACT, ("recall",)),
            ),
        ),
        Section(
            "Equal budgets",
            (
                "Recall of the first k labels. Here no method gains by running longer. Bands are 95 % intervals over "
                "users.",
            ),
            charts=budget_charts(figures),
        ),
        Section(
            "Labels new to the user",
            (
                "Recall over gold labels that never occur in the user's history: the acquisition case. Repeating the "
                "history finds none of them by exact match; by soft match it may still find a relative.",
            ),
            tables=(_headline("Novel labels", figures, tables.NOVEL, ("exact @10",)),),
        ),
        Section(
            "How strict a match",
            (
                "τ-AUC is the mean recall over thresholds by the trapezoid rule, over [0.5, 1] and over the paper's "
                "[0.7, 0.9]. The columns with “any” are the paper's rule: a prediction is right if any gold is within "
                "τ, which rewards saying one thing in many ways.",
            ),
            charts=(Chart("Recall at free length by threshold", by_threshold),),
            tables=(_headline("Thresholds and rules", figures, tables.THRESHOLDS, ("recall 0.7, any",)),),
        ),
        Section(
            "Length is a confound",
            (
                "A method that says more finds more. At free length methods differ in how much they say, so a higher "
                "recall there may be length alone: read it beside the precision, and trust the equal budgets.",
            ),
            charts=(
                Chart(
                    "Predictions per user at free length",
                    charts.bars(lengths, "method", "value", description=description, form="number"),
                ),
            ),
        ),
        Section(
            "Verticals",
            tables=(
                Table(
                    "Recall by vertical",
                    suppress(by_vertical, keep=("vertical",)),
                    dict.fromkeys(methods, "percent"),
                    f"Recall at τ = {soft} and free length over the gold labels of the vertical. Users: those with "
                    "such a label.",
                ),
            ),
        ),
        Section(
            "Exposure-bias meter",
            (
                "Near-correlates: of the wrong predictions, the share that is close (cosine above `evaluation.near`) "
                "to an earlier wrong prediction of the same list, in points of a hundred; lower is better. Clusters: "
                "different regions of the label space a list covers. Both grow with length, hence also at 10 labels. "
                "Recall lost: what a prefix of plausible wrong labels costs against one of gold labels.",
            ),
            tables=(_headline("Cascades", figures, tables.EXPOSURE, ()),),
        ),
    ]


def budget_charts(figures: pl.DataFrame) -> list[Chart]:
    """Recall of the five best methods over the budgets that there are."""
    budgets = figures.filter(pl.col("metric") == "recall")["budget"].drop_nulls().unique().sort().to_list()
    made = []
    for title, match, part in (
        ("Recall by budget, soft match", SOFT_MATCH, "all"),
        ("Recall by budget, exact match", "exact", "all"),
        ("Recall of novel labels by budget, exact match", "exact", "novel"),
    ):
        rows = [tables.pick(figures, MetricKey("recall", match, budget, part)) for budget in budgets]
        points = _best(pl.concat(rows) if rows else figures.clear())
        made.append(Chart(title, _bands(points, "budget", title, "labels per user")))
    return made


def _pivoted(rows: pl.DataFrame) -> tuple[pl.DataFrame, list[str]]:
    """A row per vertical, the one with the most users first, a column per method; and the methods."""
    users = rows.group_by("vertical").agg(pl.col("users").max())
    wide = rows.pivot("method", index="vertical", values="value").join(users, on="vertical")
    methods = [name for name in wide.columns if name not in ("vertical", "users")]
    ordered = wide.sort("users", "vertical", descending=[True, False])
    return ordered.select("vertical", "users", *methods), methods


def _source_section(figures: pl.DataFrame) -> Section:
    rows = figures.select("method", "seeds", "commit", "command").unique("method", maintain_order=True)
    recall = tables.pick(figures, MetricKey("recall", SOFT_MATCH)).select(
        "method", (pl.col("spread") * 100).alias("spread")
    )
    note = f"Spread: standard deviation of recall at τ = {tables.soft_of(figures)} over seeds, in points."
    return Section(
        "Where the figures come from",
        tables=(Table("Runs", rows.join(recall.fill_nan(None), on="method", how="left"), note=note),),
    )


def _headline(title: str, figures: pl.DataFrame, columns: tables.Columns, gains: Sequence[str]) -> Table:
    """Methods and metrics of enough users; the runs are listed at the end of the page."""
    frame = suppress(tables.headline(figures, columns, gains).drop("seeds", "commit", "command"), keep=("method",))
    return table(title, frame.drop(name for name in frame.columns if frame[name].is_null().all()))


def table(title: str, frame: pl.DataFrame, note: str = "") -> Table:
    """Cells with intervals are texts, but stand as numbers do."""
    cells = [name for name in frame.columns if name not in ("method", "users", "seeds")]
    return Table(title, frame, dict.fromkeys(cells, "count"), note, wide=True)


def _best(points: pl.DataFrame) -> pl.DataFrame:
    """The points of the methods with the highest mean; more lines than colours cannot be told apart."""
    points = points.drop_nulls("value").drop_nans("value")
    ranking = points.group_by("method").agg(pl.col("value").mean()).sort("value", "method", descending=[True, False])
    return ranking.head(DRAWN).select("method").join(points, on="method", maintain_order="left")


def _bands(points: pl.DataFrame, x: str, title: str, x_title: str) -> Svg:
    """Lines with their intervals as bands."""
    base = alt.Chart(points.select("method", x, "value", "low", "high")).encode(
        x=alt.X(f"{x}:Q", title=x_title, scale=alt.Scale(zero=False), axis=alt.Axis(tickCount=5, format="~g")),
        color=alt.Color(
            "method:N", title=None, sort=None, legend=alt.Legend(columns=2, labelLimit=170, symbolOpacity=1)
        ),
    )
    y = alt.Y("value:Q", title="recall", axis=alt.Axis(format=".0%", tickCount=5))
    band = base.mark_area(opacity=0.18).encode(y=alt.Y("low:Q", title="recall"), y2="high:Q")
    last = points.sort(x).group_by("method", maintain_order=True).last()
    ends = "; ".join(f"{method} {percent(value)}" for method, value in last.select("method", "value").rows())
    return charts.svg(band + base.mark_line(point=True).encode(y=y), f"{title}. At the right end: {ends or 'nothing'}.")


# --- users for an interest, and probabilities -------------------------------------------------------------------------


def audience_section(figures: pl.DataFrame, against: str) -> Section:
    """`figures` of `evaluation.ranking.measure_audiences`, compared by `tables.compare`."""
    safe = figures.filter(pl.col("users") >= SMALLEST_CELL)
    first = f"{SHARES[0]:.0%} of users"
    shown = [
        _headline(title, safe, columns, (first,))
        for title, columns in AUDIENCE_TABLES.items()
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
    """`table` of `evaluation.calibration.Bins`: test users, a curve fitted on others."""
    overall, bins = calibration.summary(table), calibration.by_bin(table)
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
            Tile("Expected calibration error", f"{overall.ece:.5f}"),
            Tile("among pairs of 1 % and more", f"{overall.ece_likely:.4f}"),
            Tile("Brier score", f"{overall.brier:.5f}", f"{percent(overall.prevalence)} of pairs come true"),
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


def _by_vertical(figures: pl.DataFrame) -> Table:
    share = SHARES[2]
    verticals = ~pl.col("vertical").is_in(["", MEAN])
    rows = figures.filter(pl.col("metric") == "hit", pl.col("match") == f"{share:.0%}", verticals)
    wide, methods = _pivoted(rows)
    shown = wide.filter(pl.col("users") >= SMALLEST_CELL)
    note = "Users: those who bought something of it."
    if hidden := len(wide) - len(shown):
        note += f" {hidden} verticals with fewer than {SMALLEST_CELL} of them are left out."
    title = f"Hit@k by vertical, k = {share:.0%} of users"
    return Table(title, shown, dict.fromkeys(methods, "percent"), note, wide=True)


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
    points_text = "; ".join(f"{percent(a)} promised, {percent(b)} true" for a, b in drawn.tail(3).rows())
    return charts.svg(line.encode(x=x, y="promised:Q") + dots, f"Reliability: {points_text or 'no pairs'}.")


# --- cascade pictures ------------------------------------------------------------------------------------------------


def picture_section(drawn: Sequence[pl.DataFrame]) -> Section:
    """One chart for each example, with the lists of both methods side by side."""
    return Section(
        "Cascades in pictures",
        (
            "Lists of two methods for the same examples, chosen by lot, without who they are about. Labels of one "
            "cluster share a letter and a colour; a list of one colour went round in circles. ✓ is a soft match.",
        ),
        charts=tuple(Chart(f"Example {place}", _picture(rows)) for place, rows in enumerate(drawn, 1)),
    )


def _picture(rows: pl.DataFrame) -> Svg:
    cut = pl.when(pl.col("text").str.len_chars() > 26).then(pl.col("text").str.head(25) + "…").otherwise("text")
    tick = pl.when("right").then(pl.lit(" ✓")).otherwise(pl.lit(""))
    rows = rows.with_columns(line=pl.col("mark") + "  " + cut + tick)
    marks = sorted(set(rows["mark"]) - {SINGLE})
    colours = [charts.PALETTE[place % (len(charts.PALETTE) - 1)] for place in range(len(marks))]
    base = alt.Chart(rows).encode(
        x=alt.X(
            "method:N", sort=None, title=None, axis=alt.Axis(orient="top", labelAngle=0, ticks=False, domain=False)
        ),
        y=alt.Y("rank:O", title=None, axis=alt.Axis(ticks=False, domain=False)),
    )
    scale = alt.Scale(domain=[*marks, SINGLE], range=[*colours, charts.PALETTE[-1]])
    cells = base.mark_rect(opacity=0.4, stroke="currentColor", strokeOpacity=0.15).encode(
        color=alt.Color("mark:N", scale=scale, legend=None)
    )
    words = base.mark_text(align="left", dx=-92, fontSize=11).encode(text="line:N")
    lists = [
        f"{method}: " + ", ".join(rows.filter(pl.col("method") == method)["line"])
        for method in rows["method"].unique(maintain_order=True)
    ]
    return charts.svg((cells + words).properties(width=alt.Step(200), height=alt.Step(22)), "; ".join(lists) + ".")
