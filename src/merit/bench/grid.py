"""The grid: every cell is made or kept, a failure is reported and the rest goes on; all cells are compared together.

The artifact of a data set: results.json (merit.bench.results) and figures.parquet, with every metric.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path

import polars as pl

from merit import __version__
from merit.bench import results as results_file
from merit.bench.cells import HITS, RELIABILITY, make_cell, read_hits
from merit.bench.chain import Chain, PreparedDataset
from merit.bench.config import MERIT, BenchConfig, cells
from merit.bench.results import BINS, LEAD, BenchResults, Cost
from merit.bench.withheld import withhold
from merit.core import artifacts, console, doctor, provenance
from merit.core.artifacts import Artifact
from merit.core.config import Frozen, digest
from merit.core.errors import MeritError
from merit.core.pipeline import run
from merit.core.stage import make_unless_current
from merit.evaluation import calibration, evaluate, exposure_bias, tables
from merit.evaluation.classification import EvaluationConfig, MetricKey, Metrics
from merit.evaluation.evaluate import length_matched, read_predictions
from merit.evaluation.predictions import Predictions, Truth
from merit.evaluation.ranking import BUDGETS
from merit.evaluation.uncertainty import Metric
from merit.labels import space
from merit.report.page import SMALLEST_CELL

MACHINE = ("cores", "memory", "python", "system")
RESULTS = "bench-results"
FILE = "results.json"
NAMES = ["method", *MetricKey._fields]
UNION_OF = ", union of "  # samples of a generator: its lists are compared with those of a generator
EXPOSURE = ("near_correlates", "clusters", "recall_lost")
Judged = list[tuple[Predictions, Metrics]]


@dataclass
class BenchOutcome:
    """What a benchmark found, and what it could not make."""

    results: list[BenchResults] = field(default_factory=list)
    failures: dict[str, str] = field(default_factory=dict)
    """Cell or data set → what went wrong."""


def bench(config: BenchConfig, datasets: Sequence[str], only: Sequence[str] = ()) -> BenchOutcome:
    """Make the cells of these data sets (of some methods only), and judge them.

    Results of all methods are kept in `config.results`; those of some methods are only given back.
    """
    outcome = BenchOutcome()
    total = sum(1 for name in datasets for _ in cells(config, name, only))
    with console.steps("cells", total) as done:
        for name in datasets:
            with _failing(name, outcome.failures, f"datasets.{name}."):
                outcome.results.append(_dataset(config, name, only, outcome.failures, done))
    return outcome


def _dataset(
    config: BenchConfig, name: str, only: Sequence[str], failures: dict[str, str], done: Callable[[str], None]
) -> BenchResults:
    made = run(config.run_config(name), until="corpus")
    corpus, labels, given = made["corpus"], made["labels"], config.datasets[name]
    if given.withheld:
        corpus = withhold(corpus, labels, config.out / name / "corpus-withheld", given.withheld, config.seed)
    data = PreparedDataset(corpus, labels, config.backbone, given.text, config.seconds)
    made_cells: dict[str, Artifact] = {}
    chains: dict[int, Chain] = {}
    for cell in cells(config, name, only):
        chain = chains.setdefault(cell.seed, Chain(config, data, config.out / name / f"seed-{cell.seed}", cell.seed))
        with _failing(cell.name, failures):
            made_cells[f"{cell.method}, seed {cell.seed}"] = make_cell(chain, cell)
        done(cell.name)
    settings = ResultsConfig(
        dataset=name,
        reference=config.reference,
        ranking_reference=config.ranking_reference,
        ours=MERIT,
        generator=config.generator,
        seconds=config.seconds,
        missing={cell: message for cell, message in failures.items() if cell.startswith(f"{name}/")},
        evaluation=config.evaluation,
    )
    judged = make_unless_current(
        config.out / name / ("results-part" if only else "results"),
        f"{name}, results",
        RESULTS,
        settings,
        config.seed,
        made_cells | data.parents,
        lambda out: write_results(made_cells, data, out, settings, config),
    )
    results = results_file.read(judged.file(FILE))
    if not only:
        results_file.write(results, config.results / f"{name}.json")
    return results


@contextmanager
def _failing(name: str, failures: dict[str, str], section: str = "") -> Iterator[None]:
    """One cell that fails must not sink the others: the error is reported and remembered.

    Remedies speak of a run's settings; those of a data set are in a `section` here.
    """
    try:
        yield
    except Exception as error:
        message = str(error) if isinstance(error, MeritError) else f"{type(error).__name__}: {error}"
        failures[name] = message = message.replace("--set source.", f"--set {section}source.")
        console.warn(f"{name} failed, the rest goes on. {message}", cell=name)
        console.log.debug("the failure in full", exc_info=error)


# --- all cells on the same users -------------------------------------------------------------------------------------


class ResultsConfig(Frozen):
    """What decides the figures, besides the cells."""

    dataset: str
    reference: str
    ranking_reference: str
    ours: str
    generator: str
    """The method whose exposure-bias meter is compared with the others'."""
    seconds: float
    missing: dict[str, str] = {}
    """Cells that failed, and why."""
    evaluation: EvaluationConfig = EvaluationConfig()


def write_results(
    cells: Mapping[str, Artifact], data: PreparedDataset, out: Path, config: ResultsConfig, grid: BenchConfig
) -> Artifact:
    """Judge all cells on the same users."""
    truth, parents = data.truth, dict(cells) | data.parents
    machine = {finding.what: finding.value for finding in doctor.examine() if finding.what in MACHINE}
    with artifacts.writing(out, RESULTS, config=config, seed=grid.seed, parents=parents) as draft:
        lists, ranked = _measured(cells.values(), truth, config.evaluation)
        with console.spinner(f"comparing {len(lists)} lists and {len(ranked)} rankings of {truth.users:,} users"):
            figures = _compared(lists, ranked, truth.users, config, grid.seed)
        figures.write_parquet(draft.path / "figures.parquet")
        runs, known = [run for run, _ in lists], space.load(data.labels.path)
        drawn = evaluate.pictures(runs, truth, known, grid.seed) if truth.users >= SMALLEST_CELL else []
        results = BenchResults(
            **config.model_dump(exclude={"evaluation", "ranking_reference"}),
            commit=provenance.commit(),
            config=digest(grid),
            version=__version__,
            date=f"{datetime.now(UTC):%Y-%m-%d}",
            machine={name: machine[name] for name in MACHINE} | {"torch": version("torch")},
            users=truth.users,
            labels=truth.labels,
            ranking_reference=_against(ranked, config),
            seeds=_by_method(cells.values(), lambda cell: cell.manifest.seed),
            reads={cell.manifest.config["method"]: list(cell.manifest.config["reads"]) for cell in cells.values()},
            steps=_by_method(cells.values(), lambda cell: cell.manifest.summary.get("steps")),
            figures=results_file.figure_rows(figures.filter(pl.col("average") == "pooled").filter(_kept())),
            costs=costs(cells.values(), len(truth)),
            reliability=_bins(cells.values(), config.ours),
            pictures=[rows.to_dicts() for rows in drawn],
        )
        results_file.write(results, draft.path / FILE)
        draft.summary |= {"users": truth.users, "methods": figures["method"].n_unique(), "missing": len(config.missing)}
    return artifacts.load(out, RESULTS)


def _measured(cells: Iterable[Artifact], truth: Truth, config: EvaluationConfig) -> tuple[Judged, Judged]:
    """Lists with their figures, and rankings of users with theirs."""
    runs: list[Predictions] = []
    ranked: Judged = []
    lost: dict[tuple[str, int], Metric] = {}
    for cell in cells:
        predictions = read_predictions(cell)
        runs += predictions
        lost |= exposure_bias.read_recall_lost(cell.path, truth, config.thresholds[0])
        if HITS in cell.manifest.files:
            ranked.append((predictions[0], read_hits(cell.file(HITS))))
    runs += length_matched(runs)
    judging = console.track(runs, "judging lists", total=len(runs))
    return [(run, evaluate.measured(run, truth, lost, config)) for run in judging], ranked


def _compared(lists: Judged, ranked: Judged, users: int, config: ResultsConfig, seed: int) -> pl.DataFrame:
    """All figures with gains over the references, leads of our method, and of its generator where it is about these."""
    often = config.evaluation.resamples
    meters = [(run, {key: metrics[key] for key in metrics if key.metric in EXPOSURE}) for run, metrics in lists]
    others = [(run, {key: metrics[key] for key in metrics if key.metric not in EXPOSURE}) for run, metrics in lists]
    unions = [pair for pair in others if UNION_OF in pair[0].method or pair[0].method == config.generator]
    others = [pair for pair in others if UNION_OF not in pair[0].method]
    figures = [tables.compare(lists, users, seed, config.reference, often)]
    leads = [
        _leads(others, users, seed, config.ours, often),
        _leads(meters, users, seed, config.generator, often),
        _leads(unions, users, seed, config.generator, often),
    ]
    if ranked:
        figures.append(tables.compare(ranked, users, seed, _against(ranked, config), often))
        leads.append(_leads(ranked, users, seed, config.ours, often))
    return pl.concat(figures).join(
        pl.concat(leads), on=NAMES, how="left", nulls_equal=True, maintain_order="left", validate="1:1"
    )


def _against(ranked: Judged, config: ResultsConfig) -> str:
    """What rankings are compared with: the method asked for, where it ranks users, or the first that does."""
    known = [run.method for run, _ in ranked]
    return config.ranking_reference if config.ranking_reference in known else next(iter(known), "")


def _leads(judged: Judged, users: int, seed: int, ours: str, resamples: int) -> pl.DataFrame:
    """How far `ours` is ahead of every other method: the gains of the others over it, turned round."""
    if ours not in {run.method for run, _ in judged}:
        return pl.DataFrame(schema={name: tables.SCHEMA[name] for name in NAMES} | LEAD)
    gains = tables.compare(judged, users, seed, ours, resamples).filter(pl.col("method") != ours)
    return gains.select(*NAMES, lead=-pl.col("gain"), lead_low=-pl.col("gain_high"), lead_high=-pl.col("gain_low"))


def _kept() -> pl.Expr:
    """Figures that a table shows: not the whole curve over thresholds."""
    curve = pl.col("metric").is_in(["recall", "precision", "f1"]) & ~pl.col("match").is_in(
        ["0.7", "0.8", "0.9", "exact"]
    )
    other_rule = (pl.col("rule") == "any") & (pl.col("match") != "0.7")
    other_budget = pl.col("budget").is_not_null() & ~pl.col("budget").is_in(BUDGETS)
    return ~curve & ~other_rule & ~other_budget


def costs(cells: Iterable[Artifact], examples: int) -> list[Cost]:
    """Means over the seeds of every method; what is not known of a seed is left out of them."""
    names = ("train_seconds", "predict_seconds", "parameters", "peak_gib")
    rows = [(cell.manifest.config["method"], *(cell.manifest.summary[name] for name in names)) for cell in cells]
    summaries = pl.DataFrame(rows, {"method": pl.String} | dict.fromkeys(names, pl.Float64), orient="row")
    means = summaries.group_by("method", maintain_order=True).agg(
        pl.len().alias("seeds"),
        pl.col("train_seconds").mean().round(2),
        (pl.col("predict_seconds").mean() * 1000 / examples).round(4),
        pl.col("parameters").mean(),
        pl.col("peak_gib").mean().round(3),
    )
    return [Cost(**row) for row in means.iter_rows(named=True)]


def _by_method(cells: Iterable[Artifact], value: Callable[[Artifact], int | None]) -> dict[str, list[int]]:
    values: dict[str, list[int]] = {}
    for cell in cells:
        if (number := value(cell)) is not None:
            values.setdefault(cell.manifest.config["method"], []).append(number)
    return values


def _bins(cells: Iterable[Artifact], ours: str) -> list[list[float]]:
    """What was promised and what came true, over all seeds of ours."""
    bins = [pl.read_parquet(cell.file(RELIABILITY)) for cell in cells if cell.manifest.config["method"] == ours]
    return [list(row) for row in calibration.by_bin(pl.concat(bins)).select(BINS).rows()] if bins else []
