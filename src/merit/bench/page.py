"""The page of a benchmark: first whether our method is first, then every table, and pictures of what is behind them.

html = page.render(bench_page(read_all(Path("results"), ["complete-journey"])))
"""

from __future__ import annotations

from collections.abc import Sequence

import altair as alt
import polars as pl

from merit.bench import figure, words
from merit.bench.results import BenchResults
from merit.bench.tables import TABLES, Part, parts
from merit.evaluation import report, tables
from merit.evaluation.audience_report import reliability_section
from merit.evaluation.classification import MetricKey
from merit.evaluation.report import DRAWN, Picture
from merit.report import charts
from merit.report.charts import Svg
from merit.report.page import Chart, Format, Page, Provenance, Section, Table, Tile, count

TITLE = "Benchmark"
SUBTITLE = "Every method on the same users, labels, time and evaluator; in points of a hundred, with 95 % intervals."
TITLES = {
    "classification": "Lists of their own length",
    "verticals": "Verticals",
    "thresholds": "How strict a match",
    "budgets": "Equal budgets",
    "novel": "Labels new to the user",
    "objectives": "Training objectives",
    "exposure": "Exposure bias",
    "hits": "Users for an interest",
    "variants": "Variants of MERIT",
    "cost": "Cost",
}
EXPLAINED = {
    "classification": "A predicted label is right when its meaning is close to a gold label (cosine at least 0.7), "
    "each at most once. A method that says more finds more: read recall beside precision and labels per user.",
    "verticals": "The same by part of the shop, those with the most users.",
    "thresholds": "Recall when a match must be closer, down to word for word. “any” is the paper's rule.",
    "budgets": "Recall of the first 5, 10 and 20 labels: here nobody gains by saying more.",
    "novel": "Gold labels that are not in the user's history, where repeating it finds nothing. A list that is best "
    "over all labels is full of repeats, so the second table leaves those out (methods that score every label).",
    "objectives": "The same generator, trained to say labels in four ways. Near-correlates and recall lost: lower is "
    "better.",
    "exposure": "Does one wrong label drag its relatives behind it? Near-correlates and recall lost: lower is better.",
    "hits": "All test users are ranked for an interest. Hit@k is the share of those who then bought it among the "
    "first k; by chance it is k.",
    "variants": "MERIT with one thing changed: states of how many labels make a user (k_g, otherwise 5), and whose "
    "states they are. Dual encoders stand beside it, as in the paper's own sweep.",
    "cost": "What a method takes to train and to ask.",
}


def bench_page(found: Sequence[BenchResults]) -> Page:
    """The report of all data sets."""
    sections = [_first_screen(found)]
    for each in found:
        sections += _sections(each)
    last = found[-1]
    source = Provenance(f"merit bench, commit {last.commit}", last.config, last.version, None, last.date)
    return Page(TITLE, SUBTITLE, sections, _tiles(found), source)


def _tiles(found: Sequence[BenchResults]) -> tuple[Tile, ...]:
    verdicts = [duel.verdict for each in found for duel in words.duels(each)]
    methods = {row[0] for each in found for row in each.figures}
    return (
        Tile("Data sets", count(len(found))),
        Tile("Methods", count(len(methods)), "with every way of reading them"),
        Tile("Training budget", f"{found[0].seconds:g} s", "of every network"),
        *(Tile(f"MERIT {name}", f"{verdicts.count(name)} of {len(verdicts)}", "figures") for name in VERDICTS),
    )


VERDICTS: tuple[words.Verdict, ...] = ("ahead", "level", "behind")


def _first_screen(found: Sequence[BenchResults]) -> Section:
    rows = [
        {
            "data set": duel.dataset,
            "figure": duel.what,
            "MERIT": f"{100 * duel.ours:.1f}",
            "best other": f"{duel.other} {100 * duel.theirs:.1f}",
            "difference": duel.points(),
            "verdict": duel.verdict,
        }
        for each in found
        for duel in words.duels(each)
    ]
    claimed = [words.claims(each).insert_column(0, pl.lit(each.dataset).alias("data set")) for each in found]
    duels = [Table("MERIT and the best other method, figure by figure", pl.DataFrame(rows), wide=True)] if rows else []
    return Section(
        "Is MERIT first?",
        words.sentences(found),
        charts=(Chart(figure.TITLE, figure.overview(found)),),
        tables=(*duels, Table("What the paper claims, and what was found here", pl.concat(claimed), wide=True)),
    )


def _sections(each: BenchResults) -> list[Section]:
    made = [
        Section(f"{each.dataset}: {TITLES[name]}", (EXPLAINED[name],), charts=_charts(name, each), tables=shown)
        for name in TABLES
        if (shown := [_table(part) for part in parts(name, each)])
    ]
    if each.reliability:
        section = reliability_section(each.bins())
        made.append(Section(f"{each.dataset}: {section.title}", section.text, section.tiles, section.charts))
    if each.pictures:
        section = report.picture_section([Picture(pl.DataFrame(rows)) for rows in each.pictures])
        made.append(Section(f"{each.dataset}: {section.title}", section.text, charts=section.charts))
    return made


def _table(part: Part) -> Table:
    figures: dict[str, Format] = {name: "count" for name in part.frame.columns if name not in ("method", "seeds")}
    return Table(part.title, part.frame, figures, part.note, wide=True)


def _charts(name: str, each: BenchResults) -> list[Chart]:
    if name == "cost":
        return [Chart("Training time and recall of the first 10 labels, exact match", scatter(each))]
    if name != "budgets":
        return []
    few = foremost(each)
    return [
        Chart(f"{title} by budget", report.budget_chart(few, match, part, title))
        for title, match, part in (
            ("Recall, exact match", "exact", "all"),
            ("Recall, soft match", "0.7", "all"),
            ("Recall of new labels, exact match", "exact", "novel"),
        )
    ]


def foremost(each: BenchResults) -> pl.DataFrame:
    """The figures of our method and of the best others by recall at 10: as many lines as there are colours."""
    frame = each.frame()
    best = tables.pick(frame, MetricKey("recall", "exact", 10)).sort("value", "method", descending=[True, False])
    others = best.filter((pl.col("method") != each.ours) & ~each.varied())["method"].head(DRAWN - 1).to_list()
    return frame.filter(pl.col("method").is_in([each.ours, *others]))


def scatter(each: BenchResults) -> Svg:
    """A dot for each method: training seconds, to the right, and recall at 10."""
    recall = tables.pick(each.frame(), MetricKey("recall", "exact", 10)).select("method", "value")
    known = [(cost.method, cost.train_seconds) for cost in each.costs if cost.train_seconds is not None]
    costs = pl.DataFrame(known, schema={"method": pl.String, "seconds": pl.Float64}, orient="row")
    points = (
        costs.with_columns(pl.col("seconds").clip(0.01)).join(recall, on="method").drop_nulls().remove(each.varied())
    )
    base = alt.Chart(points.sort("method")).encode(
        x=alt.X(
            "seconds:Q",
            title="seconds of training",
            scale=alt.Scale(type="log"),
            axis=alt.Axis(values=[10.0**power for power in range(-2, 6)], labelExpr="format(datum.value, '~g')"),
        ),
        y=alt.Y("value:Q", title="recall", scale=alt.Scale(zero=False), axis=alt.Axis(format=".0%", tickCount=5)),
    )
    ours = alt.condition(f"datum.method == {each.ours!r}", alt.value(charts.PALETTE[1]), alt.value(charts.PALETTE[0]))
    dots = base.mark_point(size=60).encode(color=ours)
    names = base.mark_text(align="left", dx=6, fontSize=10).encode(text="method:N")
    told = "; ".join(f"{name} {seconds:.0f} s, {100 * value:.1f}" for name, seconds, value in points.rows())
    return charts.svg((dots + names).properties(height=320), f"Seconds of training and recall: {told or 'nothing'}.")
