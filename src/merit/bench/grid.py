"""The grid: every cell is made or kept, a cell that fails is told and the rest goes on, and all are judged together."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field

from merit.bench import results as results_file
from merit.bench.cells import make_cell
from merit.bench.chain import Chain, PreparedDataset
from merit.bench.config import MERIT, BenchConfig, cells
from merit.bench.judge import FILE, BenchOrigin, ResultsConfig, write_results
from merit.bench.judge import KIND as RESULTS
from merit.bench.results import BenchResults
from merit.core import console, doctor, provenance
from merit.core.artifacts import Artifact
from merit.core.config import digest
from merit.core.errors import MeritError
from merit.core.pipeline import run
from merit.core.stage import make_unless_current

MACHINE = ("cores", "memory", "python", "torch", "system")


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
    made = run(config.run_config(name), until="labels")
    text = config.datasets[name].text
    data = PreparedDataset(made["examples"], made["labels"], config.backbone, text, config.seconds)
    found: dict[str, Artifact] = {}
    chains: dict[int, Chain] = {}
    for cell in cells(config, name, only):
        chain = chains.setdefault(cell.seed, Chain(config, data, config.out / name / f"seed-{cell.seed}", cell.seed))
        with _failing(cell.name, failures):
            found[f"{cell.method}, seed {cell.seed}"] = make_cell(chain, cell)
        done(cell.name)
    results = results_file.read(_judged(config, name, data, found, failures, bool(only)).file(FILE))
    if not only:
        results_file.write(results, config.results / f"{name}.json")
    return results


def _judged(
    config: BenchConfig,
    name: str,
    data: PreparedDataset,
    made: dict[str, Artifact],
    failures: dict[str, str],
    part: bool,
) -> Artifact:
    settings = ResultsConfig(
        dataset=name,
        reference=config.reference,
        ranking_reference=config.ranking_reference,
        ours=MERIT,
        generator=config.stage_2.name,
        seconds=config.seconds,
        missing={cell: told for cell, told in failures.items() if cell.startswith(f"{name}/")},
        evaluation=config.evaluation,
    )
    return make_unless_current(
        config.out / name / ("results-part" if part else "results"),
        f"{name}, results",
        RESULTS,
        settings,
        config.seed,
        made | data.parents,
        lambda out: write_results(made, data, out, settings, config.seed, origin(config)),
    )


def origin(config: BenchConfig) -> BenchOrigin:
    """The commit, the settings and the machine that figures come from."""
    found = {finding.what: finding.value for finding in doctor.examine()}
    return BenchOrigin(provenance.commit(), digest(config), {name: found[name] for name in MACHINE})


@contextmanager
def _failing(name: str, failures: dict[str, str], section: str = "") -> Iterator[None]:
    """One cell that fails must not sink the others: what went wrong is told and remembered.

    Remedies speak of a run's settings; those of a data set are in a `section` here.
    """
    try:
        yield
    except Exception as error:
        told = str(error) if isinstance(error, MeritError) else f"{type(error).__name__}: {error}"
        failures[name] = told = told.replace("--set source.", f"--set {section}source.")
        console.warn(f"{name} failed, the rest goes on. {told}", cell=name)
        console.log.debug("the failure in full", exc_info=error)
