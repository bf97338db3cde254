"""The tables of a benchmark: which figures stand in them, for which methods, beside which of the paper.

    for part in parts("budgets", results):
        print(part.markdown())

One name is one command: `merit bench CONFIG --table budgets`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import polars as pl

from merit.bench.results import BenchResults, paper
from merit.core.errors import ConfigError
from merit.evaluation import tables
from merit.evaluation.classification import SOFT_MATCH, MetricKey
from merit.evaluation.exposure_bias import LOST
from merit.evaluation.ranking import BUDGETS, MEAN, SHARES, hit_key, new_labels_key
from merit.report.page import number

OBJECTIVES = ("teacher-forcing", "permutation-invariance", "cross-entropy-invariance", "self-correction")
DUAL = ("DEXML-DS", "DEXML-STk")
VARIED = ("MERIT", *DUAL)
SHOWN_VERTICALS = 6  # those with the most users: more columns cannot be read


@dataclass(frozen=True)
class Part:
    """One table, ready to print."""

    title: str
    note: str
    frame: pl.DataFrame
    bold: Mapping[str, str] = field(default_factory=dict)
    """Column → the method that leads it."""

    def markdown(self) -> str:
        """The title, the table with the leaders in bold, and the note below it."""
        return f"**{self.title}**\n\n{tables.markdown(self.frame, self.bold)}\n{self.note}\n"


@dataclass(frozen=True)
class _Sheet:
    """What a table shows: columns, those also given as differences, and the paper's section and columns beside them."""

    title: str
    columns: tables.Columns
    gains: Sequence[str] = ()
    paper: str = ""
    beside: Mapping[str, str] = field(default_factory=dict)
    only: Sequence[str] = ()
    """Methods whose names begin so; all where it is empty."""


CLASSIFICATION: tables.Columns = {
    "recall": MetricKey("recall", SOFT_MATCH),
    "precision": MetricKey("precision", SOFT_MATCH),
    "F1": MetricKey("f1", SOFT_MATCH),
    "labels per user": MetricKey("predictions"),
}
MATCHES = {"exact": "exact", "soft": SOFT_MATCH}
THREE = {"recall": "recall", "precision": "precision", "F1": "f1"}
SWEEP: tables.Columns = {
    **{f"recall {match}": MetricKey("recall", match) for match in ("0.7", "0.8", "0.9", "exact")},
    "τ-AUC 0.7–0.9": MetricKey("tau_auc", "0.7–0.9"),
    "recall 0.7, any": MetricKey("recall", "0.7", rule="any"),
    "precision exact": MetricKey("precision", "exact"),
    "F1 exact": MetricKey("f1", "exact"),
}
SWEPT = {f"recall {match}": match for match in ("0.7", "0.8", "0.9", "exact")} | {"τ-AUC 0.7–0.9": "auc"}
ABLATION: tables.Columns = {
    **CLASSIFICATION,
    **{f"recall@{k}": MetricKey("recall", SOFT_MATCH, k) for k in BUDGETS},
    "near-correlates @10": MetricKey("near_correlates", SOFT_MATCH, 10),
    "recall lost": LOST,
}


def largest_verticals(rows: pl.DataFrame) -> list[str]:
    """The names of those with the most users."""
    named = rows.filter(~pl.col("vertical").is_in(["", MEAN]))
    sizes = named.group_by("vertical").agg(pl.col("users").max()).sort("users", "vertical", descending=[True, False])
    return sizes["vertical"].head(SHOWN_VERTICALS).to_list()


def _sheets(results: BenchResults) -> dict[str, list[_Sheet]]:
    """What each table shows for a data set, in the order of `TABLES`."""
    soft = tables.soft_of(results.frame())
    verticals = largest_verticals(results.frame().filter(pl.col("metric") == "recall"))
    hit_verticals = largest_verticals(results.frame().filter(pl.col("metric") == "hit"))
    novel = {name: MetricKey("recall", match, 20, "novel") for name, match in MATCHES.items()}
    recalls = {match: {f"recall@{k}": MetricKey("recall", match, k) for k in BUDGETS} for match in MATCHES.values()}
    means = {f"{share:.0%}": hit_key(share, MEAN) for share in SHARES}
    in_paper = {name: name for name in means if name in paper()["hits"]}
    variants = "Variants of MERIT"
    return {
        "classification": [_Sheet(f"Soft match at {soft}, free length", CLASSIFICATION, tuple(THREE), "main", THREE)],
        "verticals": [
            _Sheet(
                f"{name[:1].upper()}{name[1:]} by vertical, soft match at {soft}, free length",
                {vertical: MetricKey(metric, SOFT_MATCH, vertical=vertical) for vertical in verticals},
            )
            for name, metric in THREE.items()
            if verticals
        ],
        "thresholds": [_Sheet("Threshold sweep, free length", SWEEP, tuple(SWEPT), "thresholds", SWEPT)],
        "budgets": [
            _Sheet("Recall at equal budgets, exact match", recalls["exact"], tuple(recalls["exact"])),
            _Sheet(f"Recall at equal budgets, soft match at {soft}", recalls[SOFT_MATCH], tuple(recalls[SOFT_MATCH])),
        ],
        "novel": [
            _Sheet("Labels the user never had, recall of the first 20", novel, tuple(novel)),
            _Sheet(
                "Only labels the user never had are allowed, exact match",
                {f"recall@{k}": new_labels_key(k) for k in BUDGETS},
            ),
        ],
        "objectives": [_Sheet("Training objectives", ABLATION, tuple(THREE), "main", THREE, OBJECTIVES)],
        "exposure": [_Sheet("Exposure-bias meter", tables.EXPOSURE)],
        "hits": [
            _Sheet("Hit@k, mean over verticals, k in share of users", means, tuple(means), "hits", in_paper),
            _Sheet("Recall over pairs of user and label", {f"{share:.0%}": hit_key(share) for share in SHARES}),
            *(
                _Sheet(
                    f"Hit@k by vertical, k = {share:.0%} of users",
                    {vertical: hit_key(share, vertical) for vertical in hit_verticals},
                )
                for share in SHARES
                if hit_verticals
            ),
        ],
        "variants": [
            _Sheet(f"{variants}: Hit@k, mean over verticals, k in share of users", means, tuple(means), only=VARIED),
            _Sheet(f"{variants}: recall at equal budgets, exact match", recalls["exact"], only=("MERIT",)),
        ],
    }


TABLES = {
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
    "reads": "What each method reads",
}
"""Their titles by name, in the order of the page."""
NEEDED: dict[str, Sequence[str]] = {"objectives": OBJECTIVES, "variants": VARIED}
"""Tables that need only methods whose names begin so."""


def table_named(name: str) -> str:
    """The name itself, or an error that lists all tables."""
    if name not in TABLES:
        raise ConfigError(f"There is no table '{name}'. Tables: {', '.join(TABLES)}.")
    return name


def parts(name: str, results: BenchResults) -> list[Part]:
    """A table of the benchmark on one data set. Parts that nobody has figures for are left out."""
    if name == "cost":
        return [_costs(results)]
    if name == "reads":
        read = pl.DataFrame(
            [(method, ", ".join(names)) for method, names in results.reads.items()], ["method", "reads"], orient="row"
        )
        note = f"{results.dataset}. Budget: {results.seconds:g} s of training for every network."
        return [Part(TABLES[name], note, read)] if results.reads else []
    made = [_part(sheet, results) for sheet in _sheets(results)[table_named(name)]]
    if name == "variants":
        made.append(_won(results))
    return [part for part in made if len(part.frame)]


def _part(sheet: _Sheet, results: BenchResults) -> Part:
    figures = results.frame()
    if sheet.only:
        begins = [pl.col("method").str.starts_with(name) for name in sheet.only]
        figures = figures.filter(pl.any_horizontal(begins))
    frame = tables.headline(figures, sheet.columns, sheet.gains).drop("commit", "command", "users")
    hits = next(iter(sheet.columns.values())).metric == "hit"
    note = (
        f"{results.dataset}: {results.users:,} test users, {results.labels:,} labels. In points, with 95 % intervals "
        f"over users. Budget: {results.seconds:g} s of training for every network."
    )
    if sheet.gains:
        note += f" Δ: difference to {results.ranking_reference if hits else results.reference} on the same users."
    if sheet.paper:
        frame = _beside(frame, sheet)
        note += f" Paper: its {paper()[sheet.paper]['table']} ({paper()[sheet.paper]['measure']}), on data of its own."
    empty = [name for name in frame.columns if frame[name].is_null().all()]
    return Part(sheet.title, note, frame.drop(empty), tables.leaders(figures, sheet.columns))


def _beside(frame: pl.DataFrame, sheet: _Sheet) -> pl.DataFrame:
    """The paper's differences behind ours."""
    rows, section = paper()["rows"], paper()[sheet.paper]
    for name, column in sheet.beside.items():
        differences = [section[column].get(rows.get(method)) for method in frame["method"]]
        cells = pl.Series(
            f"paper Δ {name}", [None if one is None else f"{one:+.1f}" for one in differences], dtype=pl.String
        )
        frame = frame.insert_column(frame.columns.index(f"Δ {name}") + 1, cells)
    return frame


def _won(results: BenchResults) -> Part:
    """In how many verticals each variant of MERIT ranks users better than both dual encoders."""
    rows = results.frame().filter((pl.col("metric") == "hit") & ~pl.col("vertical").is_in(["", MEAN]))
    cell = ["vertical", "match"]
    bar = rows.filter(pl.col("method").is_in(DUAL)).group_by(cell).agg(bar=pl.col("value").max())
    ours = rows.filter(pl.col("method").str.starts_with("MERIT")).join(bar, on=cell)
    counted = [
        {"method": method}
        | {f"{share:.0%}": _of(of.filter(pl.col("match") == hit_key(share).match)) for share in SHARES}
        | {"all": _of(of), "share": f"{of.select((pl.col('value') > pl.col('bar')).mean()).item():.0%}"}
        for (method,), of in ours.group_by("method", maintain_order=True)
    ]
    table, measure = (paper()["states"][name] for name in ("table", "measure"))
    note = (
        f"{results.dataset}: verticals in which a variant finds more than both of {' and '.join(DUAL)}, of those with "
        f"50 users or more, by share of users looked at. Paper: its {table} ({measure}), on other data."
    )
    return Part("Variants of MERIT against dual encoders, by vertical", note, pl.DataFrame(counted))


def _of(cells: pl.DataFrame) -> str:
    return f"{cells.filter(pl.col('value') > pl.col('bar')).height}/{cells.height}"


def _costs(results: BenchResults) -> Part:
    rows = [
        {
            "method": cost.method,
            "training, s": None if cost.train_seconds is None else f"{cost.train_seconds:,.1f}",
            "inference, s per 1,000 users": number(cost.predict_seconds),
            "parameters": f"{cost.parameters:,.0f}",
            "peak memory, GiB": None if cost.peak_gib is None else f"{cost.peak_gib:.2f}",
            "seeds": cost.seeds,
        }
        for cost in sorted(results.costs, key=lambda cost: cost.train_seconds or 0)
    ]
    machine = ", ".join(f"{name} {value}" for name, value in results.machine.items())
    note = (
        f"{results.dataset}: means over seeds. Training includes all that a method builds on (mining, states, the "
        f"generators before). Memory is that of the whole process. Budget: {results.seconds:g} s of training for every "
        f"network. Machine: {machine}."
    )
    return Part("Cost", note, pl.DataFrame(rows))
