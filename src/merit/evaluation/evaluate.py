"""evaluate: predictions of several methods → figures with intervals, tables, and a page to look at.

It reads lists of labels and never imports a model. What needs no model (repeat the history, recommend what everybody
buys) is computed here, so that no table comes without it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import polars as pl

from merit.core import artifacts, console
from merit.core.artifacts import Artifact
from merit.core.provenance import command, commit
from merit.core.ragged import head
from merit.core.types import Floats, Ints
from merit.data.corpus import UNKNOWN, item_verticals, read_examples, vertical_names
from merit.evaluation import exposure_bias, predictions, report, tables
from merit.evaluation.classification import EvaluationConfig, MetricKey, Metrics, measure, named
from merit.evaluation.predictions import Predictions, Truth
from merit.evaluation.trivial import BASELINES
from merit.evaluation.uncertainty import Metric
from merit.labels import space
from merit.labels.build import load_vectors
from merit.labels.space import LabelSpace
from merit.report import page
from merit.report.page import Section

CONTROLLED = "teacher-forcing"
CORRECTED = "self-correction"
HISTORY_SHARE = "history frequency"
AUDIENCES = "audiences.parquet"


def evaluate(
    corpus: Artifact, labels: Artifact, out: Path, config: EvaluationConfig, seed: int, **predicted: Artifact
) -> Artifact:
    """Judge all predictions, given by name, against the test examples."""
    known = space.load(labels.path)
    truth = truth_of_test_users(corpus, known, load_vectors(labels))
    popularity = training_popularity(known)
    runs = [*(make(truth, popularity) for make in BASELINES.values())]
    runs += [run for artifact in predicted.values() for run in read_predictions(artifact)]
    runs += length_matched(runs)
    runs = [replace(run, command=run.command or command(), commit=run.commit or commit()) for run in runs]
    parents = dict(predicted) | {"corpus": corpus, "labels": labels}
    with artifacts.writing(out, "results", config=config, seed=seed, parents=parents) as draft:
        with console.spinner(f"judging {len(runs)} methods on {truth.users:,} users"):
            lost: dict[tuple[str, int], Metric] = {}
            for artifact in predicted.values():
                lost |= exposure_bias.read_recall_lost(artifact.path, truth, config.thresholds[0])
            judged = [(run, measured(run, truth, lost, config)) for run in runs]
            figures = tables.compare(judged, truth.users, seed, resamples=config.resamples)
        stored = figures.drop(tables.ORIGIN)
        stored.write_parquet(draft.path / "figures.parquet")
        drawn = pictures(runs, truth, known, seed)
        origin = page.provenance(corpus.manifest)
        html = page.render(report.results_page(figures, drawn, origin, more=_more(predicted)))
        (draft.path / "index.html").write_text(html, encoding="utf-8")
        parts = [
            f"## {title}\n\n{tables.markdown(tables.headline(stored, columns, ()), tables.leaders(stored, columns))}"
            for title, columns in TABLES.items()
        ]
        (draft.path / "results.md").write_text("\n\n".join(parts) + "\n", encoding="utf-8")
        draft.summary |= {"users": truth.users, "methods": figures["method"].n_unique()}
        draft.summary |= {"command": command(), "commit": commit()}
    return artifacts.load(out, "results")


def measured(
    run: Predictions, truth: Truth, lost: Mapping[tuple[str, int], Metric], config: EvaluationConfig
) -> Metrics:
    """All figures of one run; recall lost is among them only where `lost` knows its method and seed."""
    metrics = measure(run, truth, config) | exposure_bias.exposure(run, truth, config)
    recall_lost = lost.get((run.method, run.seed))
    key = exposure_bias.LOST._replace(match=named(config.thresholds[0]))
    return metrics | ({key: recall_lost} if recall_lost else {})


def _more(predicted: Mapping[str, Artifact]) -> list[Section]:
    """What a ranking of users adds to the page."""
    sections = []
    for artifact in predicted.values():
        if AUDIENCES in artifact.manifest.files:
            sections.append(report.audience_section(pl.read_parquet(artifact.file(AUDIENCES)), HISTORY_SHARE))
            sections.append(report.reliability_section(pl.read_parquet(artifact.file("reliability.parquet"))))
    return sections


def show_results(artifact: Artifact) -> None:
    """One table on the terminal, without intervals: those are in results.md and on the page, with all other figures."""
    figures = pl.read_parquet(artifact.file("figures.parquet"))
    cells = tables.headline(figures, SHORT, ()).drop("users", "seeds")
    short = cells.with_columns(pl.exclude("method").str.replace(r" \[.*", ""))
    tables.show("Exact match, in points", short, tables.leaders(figures, SHORT))


SHORT: tables.Columns = {
    "R": MetricKey("recall", "exact"),
    "P": MetricKey("precision", "exact"),
    "R@5": MetricKey("recall", "exact", 5),
    "R@10": MetricKey("recall", "exact", 10),
    "R@20": MetricKey("recall", "exact", 20),
    "new@20": MetricKey("recall", "exact", 20, "novel"),
    "labels": MetricKey("predictions"),
}
TABLES: dict[str, tables.Columns] = {
    "Exact match, in points": tables.EXACT,
    "Soft match, in points": tables.HEADLINE,
    "Labels the user never had, in points": tables.NOVEL,
    "Exposure bias": tables.EXPOSURE,
}


def read_predictions(artifact: Artifact) -> list[Predictions]:
    """One for each way of reading the method, in the order of the files' names."""
    files = sorted(name for name in artifact.manifest.files if name.startswith("predictions-"))
    return [predictions.read(artifact.file(name)) for name in files]


def truth_of_test_users(corpus: Artifact, known: LabelSpace, vectors: Floats) -> Truth:
    """The test examples over a label space."""
    examples, verticals = read_examples(corpus, "test"), pl.Series(vertical_names(corpus, known), dtype=pl.String)
    of_label, of_item = (
        verticals.search_sorted(names).to_numpy().astype(np.int64)
        for names in (known.table["vertical"].fill_null(UNKNOWN), item_verticals(corpus))
    )
    ids = pl.Series(examples.user_ids)
    users = ids.unique().sort()
    return Truth(
        gold=examples.gold,
        bought=examples.target_items.mapped(of_item),
        history=examples.history,
        counts=examples.counts,
        purchases=examples.purchases,
        user=users.search_sorted(ids).to_numpy().astype(np.int64),
        vertical=of_label,
        verticals=verticals.to_list(),
        vectors=vectors,
        cluster=known.table["cluster"].to_numpy().astype(np.int64),
        user_ids=users.to_list(),
    )


def training_popularity(known: LabelSpace) -> Ints:
    """Events of training users by label; zero for labels that may not be said."""
    return np.where(known.live_mask(), known.table["count"].to_numpy(), 0).astype(np.int64)


def length_matched(runs: Sequence[Predictions]) -> list[Predictions]:
    """Teacher forcing made as long as self-correction: END suppressed, cut at the other's mean length."""
    lengths = [run.free.lengths().mean() for run in runs if _trained_by(run, CORRECTED)]
    if not lengths:
        return []
    size = max(1, round(float(np.mean(lengths))))
    forced = [run for run in runs if _trained_by(run, CONTROLLED) and run.ranked is not None]
    return [
        replace(run, method=f"{CONTROLLED}, {size} label{'s' * (size > 1)}", free=head(run.ranked, size))
        for run in forced
        if run.ranked
    ]


def _trained_by(run: Predictions, objective: str) -> bool:
    """Whether these are the lists a generator of that objective itself wrote, whatever its temper."""
    return run.method.split(" (")[0] == objective and "," not in run.method


def pictures(runs: Sequence[Predictions], truth: Truth, known: LabelSpace, seed: int) -> list[pl.DataFrame]:
    """Lists of both kinds of training side by side, where both are there."""
    both = [next((run for run in runs if _trained_by(run, objective)), None) for objective in (CONTROLLED, CORRECTED)]
    if both[0] is None or both[1] is None:
        return []
    had = np.bincount(truth.history.values, minlength=truth.labels)
    return exposure_bias.pictures(both[0], both[1], truth, known.texts, had, seed)
