"""What `merit bench` shows: tables on the terminal, one HTML page, one Markdown document and one figure.

html = page.render(bench_page(read_all(Path("results"), ["complete-journey"])))
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, get_args

import altair as alt
import polars as pl

from merit.bench.config import BenchConfig, chosen, chosen_datasets
from merit.bench.grid import BenchOutcome, bench
from merit.bench.results import BenchResults, Verdict, claims, duels, read_all, sentences, verdicts
from merit.bench.tables import NEEDED, TABLES, parts, table_named
from merit.core import console, files
from merit.evaluation import report, tables
from merit.evaluation.classification import MetricKey
from merit.evaluation.report import DRAWN
from merit.report import charts, page
from merit.report.charts import Svg
from merit.report.page import Chart, Page, Section, Table, Tile, count

PAGE = "index.html"
MODE = 0o644
TITLE = "Benchmark"
SUBTITLE = "Every method on the same users, labels, time and evaluator; in points of a hundred, with 95 % intervals."
EXPLAINED = {
    "classification": "A predicted label is right when its meaning is close to a gold label (the title says how), "
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
    "reads": "What a method is given of a user, for training and for its lists; the rest is taken out of its world.",
}
SHOWN = MetricKey("recall", "exact", 10)
OVERVIEW = "Recall of the first 10 labels, exact match, with 95 % intervals over users"
WIDTH, ROW = 190, 15
VERDICTS_TITLE = (
    "MERIT against the best other method by every figure, in points, and the difference with its 95 % interval:"
)
BEGIN, END = "<!-- merit bench: begin -->", "<!-- merit bench: end -->"


def compare(
    config: BenchConfig,
    only: Sequence[str],
    datasets: Sequence[str],
    shown: Sequence[str],
    markdown: Path | None,
    figure: Path | None,
    from_results: bool,
) -> BenchOutcome:
    """Make what is missing, or with `from_results` nothing; write the page, and what else is asked for."""
    names, methods = chosen_datasets(config, datasets), _needed(config, only, shown)
    outcome = BenchOutcome(read_all(config.results, names)) if from_results else bench(config, names, methods)
    if outcome.results:
        files.write(config.out / PAGE, page.render(bench_page(outcome.results)), MODE)
        if markdown:
            old = markdown.read_text(encoding="utf-8") if markdown.exists() else ""
            files.write(markdown, inserted(document(outcome.results), old), MODE)
        if figure:
            files.write(figure, charts.on_white(overview(outcome.results)), MODE)
        console.tell(f"Open {(config.out / PAGE).resolve().as_uri()} in a browser.")
    return outcome


def show(outcome: BenchOutcome, shown: Sequence[str]) -> None:
    """The verdict and the tables on the terminal."""
    for sentence in sentences(outcome.results) if outcome.results else []:
        console.stdout.print(sentence, markup=False)
    for results in outcome.results:
        for name in shown or TABLES:
            for part in parts(name, results):
                tables.show(f"{results.dataset}: {part.title}", part.frame, part.bold)
                console.stdout.print(part.note, markup=False)
    for cell, message in outcome.failures.items():
        console.stdout.print(f"Failed: {cell}. {message}", markup=False)


def _needed(config: BenchConfig, only: Sequence[str], shown: Sequence[str]) -> list[str]:
    """The methods to run: those asked for, or those that the tables asked for need; empty for all."""
    if only:
        return chosen(config, only)
    wanted = [NEEDED.get(table_named(name), ()) for name in shown]
    if not wanted or not all(wanted):
        return []
    begins = {word for prefixes in wanted for word in prefixes}
    return [name for name in config.seeds_of() if any(name.startswith(word) for word in begins)]


def bench_page(all_results: Sequence[BenchResults]) -> Page:
    """The report of all data sets."""
    sections = [_first_screen(all_results)]
    for results in all_results:
        sections += _sections(results)
    last = all_results[-1]
    source = {"Artifact": f"merit bench, commit {last.commit}", "Settings": last.config, "Seed": "none"}
    source |= {"merit": last.version, "Made": last.date}
    return Page(TITLE, SUBTITLE, sections, _tiles(all_results), source)


def _tiles(all_results: Sequence[BenchResults]) -> tuple[Tile, ...]:
    outcomes = [duel.verdict for results in all_results for duel in duels(results)]
    methods = {row[0] for results in all_results for row in results.figures}
    return (
        Tile("Data sets", count(len(all_results))),
        Tile("Methods", count(len(methods)), "with every way of reading them"),
        Tile("Training budget", f"{all_results[0].seconds:g} s", "of every network"),
        *(Tile(f"MERIT {name}", f"{outcomes.count(name)} of {len(outcomes)}", "figures") for name in get_args(Verdict)),
    )


def _first_screen(all_results: Sequence[BenchResults]) -> Section:
    claimed = [claims(results).insert_column(0, pl.lit(results.dataset).alias("data set")) for results in all_results]
    return Section(
        "Is MERIT first?",
        sentences(all_results),
        charts=(Chart(OVERVIEW, overview(all_results)),),
        tables=(
            Table(VERDICTS_TITLE.removesuffix(":"), verdicts(all_results), wide=True),
            Table("What the paper claims, and what was found here", pl.concat(claimed), wide=True),
        ),
    )


def _sections(results: BenchResults) -> list[Section]:
    made = [
        Section(TABLES[name], (EXPLAINED[name],), charts=_charts(name, results), tables=shown)
        for name in TABLES
        if (shown := [report.table(part.title, part.frame, part.note) for part in parts(name, results)])
    ]
    if results.reliability:
        made.append(replace(report.reliability_section(results.bins()), tables=()))
    if results.pictures:
        made.append(report.picture_section([pl.DataFrame(rows) for rows in results.pictures]))
    return [replace(section, title=f"{results.dataset}: {section.title}") for section in made]


def _charts(name: str, results: BenchResults) -> list[Chart]:
    if name == "cost":
        return [Chart("Training time and recall of the first 10 labels, exact match", scatter(results))]
    return report.budget_charts(foremost(results)) if name == "budgets" else []


def foremost(results: BenchResults) -> pl.DataFrame:
    """The figures of our method and of the best others by recall at 10: as many lines as there are colours."""
    frame = results.frame()
    best = tables.pick(frame, MetricKey("recall", "exact", 10)).sort("value", "method", descending=[True, False])
    others = best.filter((pl.col("method") != results.ours) & ~results.varied())["method"].head(DRAWN - 1).to_list()
    return frame.filter(pl.col("method").is_in([results.ours, *others]))


def scatter(results: BenchResults) -> Svg:
    """A dot for each method: training seconds, to the right, and recall at 10."""
    recall = tables.pick(results.frame(), MetricKey("recall", "exact", 10)).select("method", "value")
    known = [(cost.method, cost.train_seconds) for cost in results.costs if cost.train_seconds is not None]
    costs = pl.DataFrame(known, schema={"method": pl.String, "seconds": pl.Float64}, orient="row")
    points = (
        costs.with_columns(pl.col("seconds").clip(0.01)).join(recall, on="method").drop_nulls().remove(results.varied())
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
    dots = base.mark_point(size=60).encode(color=_colour(results))
    names = base.mark_text(align="left", dx=6, fontSize=10).encode(text="method:N")
    summary = "; ".join(f"{name} {seconds:.0f} s, {100 * value:.1f}" for name, seconds, value in points.rows())
    return charts.svg((dots + names).properties(height=320), f"Seconds of training and recall: {summary or 'nothing'}.")


def _colour(results: BenchResults) -> Any:
    """Our method in a colour of its own."""
    ours, others = alt.value(charts.PALETTE[1]), alt.value(charts.PALETTE[0])
    return alt.condition(f"datum.method == {results.ours!r}", ours, others)


def overview(all_results: Sequence[BenchResults]) -> Svg:
    """A row for each method, the best on the mean over data sets first; a panel for each data set."""
    rows = [  # methods of the grid, one way of reading each
        tables.pick(results.frame(), SHOWN)
        .filter(pl.col("method").is_in(list(results.seeds)), ~results.varied())
        .drop_nulls("value")
        .sort("value", "method", descending=[True, False])
        for results in all_results
    ]
    means = pl.concat(rows).group_by("method").agg(pl.col("value").mean())
    order = means.sort("value", "method", descending=[True, False])["method"].to_list()
    panels = [
        _panel(frame, results, order, names=number == 0)
        for number, (frame, results) in enumerate(zip(rows, all_results, strict=True))
    ]
    summary = "; ".join(
        f"{results.dataset}: "
        + ", ".join(f"{method} {100 * value:.1f}" for method, value in frame["method", "value"].rows())
        for frame, results in zip(rows, all_results, strict=True)
    )
    room = {"left": 40, "top": 5, "right": 5, "bottom": 5}  # names are wider in a browser than where they are measured
    return charts.svg(alt.hconcat(*panels, spacing=14, padding=room), f"{OVERVIEW}. {summary}.")


def _panel(frame: pl.DataFrame, results: BenchResults, order: Sequence[str], names: bool) -> alt.LayerChart:
    axis = alt.Axis(labels=names, ticks=False, domain=False, labelLimit=220)
    y = alt.Y("method:N", sort=list(order), title=None, axis=axis, scale=alt.Scale(domain=list(order)))
    scale, form = alt.Scale(zero=False, nice=True), alt.Axis(format=".0%", tickCount=5)
    base = alt.Chart(frame["method", "value", "low", "high"])
    spans = base.mark_rule(strokeWidth=1.6).encode(
        x=alt.X("low:Q", title=f"{results.dataset}, {results.users:,} users", scale=scale, axis=form),
        x2="high:Q",
        y=y,
        color=_colour(results),
    )
    dots = base.mark_point(size=36, opacity=1).encode(
        x=alt.X("value:Q", scale=scale, axis=form), y=y, color=_colour(results)
    )
    panel: alt.LayerChart = (spans + dots).properties(width=WIDTH, height=ROW * len(order))
    return panel


def document(all_results: Sequence[BenchResults]) -> str:
    """Everything: the verdict, the claims, and all tables of every data set."""
    lines = ["# Results", "", "Written by `merit bench CONFIG --markdown FILE` from the JSON files of the results.", ""]
    lines += [f"- {sentence}" for sentence in sentences(all_results)]
    lines += ["", VERDICTS_TITLE, "", tables.markdown(verdicts(all_results))]
    for results in all_results:
        lines += ["", f"## {results.dataset}", "", _source(results), "", tables.markdown(claims(results))]
        for name in TABLES:
            shown = parts(name, results)
            if shown:
                lines += [f"### {TABLES[name]}: {results.dataset}", "", EXPLAINED[name], ""]
                lines += [part.markdown() for part in shown]
    return "\n".join(lines).rstrip() + "\n"


def inserted(document: str, old: str) -> str:
    """The document in place of what stands between the marks of an old one; alone where there are no marks."""
    before, begin, rest = old.partition(BEGIN)
    _, end, after = rest.partition(END)
    if not begin or not end:
        return document
    return f"{before}{BEGIN}\n{document}{END}{after}"


def _source(results: BenchResults) -> str:
    seeds = max(map(len, results.seeds.values()), default=0)
    machine = ", ".join(f"{name} {value}" for name, value in results.machine.items())
    return (
        f"Commit {results.commit}, settings {results.config}, merit {results.version}, {results.date}; up to {seeds} "
        f"seeds; {results.seconds:g} s of training for every network; {machine}."
    )
