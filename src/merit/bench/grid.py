"""The grid: every cell is made or kept, a cell that fails is told and the rest goes on, and all are judged together."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from pydantic import BaseModel

from merit.baselines.methods import METHODS
from merit.bench import results as results_file
from merit.bench.cells import (
    KIND,
    MERIT,
    GeneratorCellConfig,
    MeritCellConfig,
    PreparedDataset,
    write_answer,
    write_generator,
    write_merit,
)
from merit.bench.chain import Chain
from merit.bench.config import BenchCell, BenchConfig, cells, slug
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
    ground = PreparedDataset(made["examples"], made["labels"], config.backbone, text, config.seconds)
    found: dict[str, Artifact] = {}
    chains: dict[int, Chain] = {}
    for cell in cells(config, name, only):
        chain = chains.setdefault(cell.seed, Chain(config, ground, config.out / name / f"seed-{cell.seed}", cell.seed))
        with _failing(cell.name, failures):
            found[f"{cell.method}, seed {cell.seed}"] = make_cell(chain, cell)
        done(cell.name)
    results = results_file.read(_judged(config, name, ground, found, failures, bool(only)).file(FILE))
    if not only:
        results_file.write(results, config.results / f"{name}.json")
    return results


def make_cell(chain: Chain, cell: BenchCell) -> Artifact:
    """One method with one seed on one data set; kept where nothing it depends on has changed."""
    if cell.method in chain.config.variants:
        return _merit(chain.varied(cell.method), cell)
    if cell.method == MERIT:
        return _merit(chain, cell)
    return _answer(chain, cell) if cell.method in METHODS else _generator(chain, cell)


def _answer(chain: Chain, cell: BenchCell) -> Artifact:
    asked = chain.ground.answer_config(cell.method)
    return _unless_current(
        chain, cell, asked, chain.ground.shop, lambda out: write_answer(chain.ground, out, asked, cell.seed)
    )


def _generator(chain: Chain, cell: BenchCell) -> Artifact:
    settings = GeneratorCellConfig(method=cell.method, budget=chain.config.predict.budget)
    generator = chain.generator(cell.method)
    said = chain.predictions(generator)
    built_on = chain.before(generator)
    return _unless_current(
        chain,
        cell,
        settings,
        {"generator": generator, "predictions": said} | chain.ground.shop,
        lambda out: write_generator(
            chain.ground,
            generator,
            said,
            out,
            settings,
            cell.seed,
            chain.spent(*built_on),
            chain.peak(*built_on),
        ),
    )


def _merit(chain: Chain, cell: BenchCell) -> Artifact:
    settings = MeritCellConfig(method=cell.method, budget=chain.config.predict.budget, length=chain.config.length)
    generator, states, propensity = chain.corrected(), chain.states(), chain.propensity()
    built_on = [*chain.before(generator), chain.mined(generator), states, propensity]
    return _unless_current(
        chain,
        cell,
        settings,
        {"propensity": propensity, "states": states, "generator": generator} | chain.ground.shop,
        lambda out: write_merit(
            chain.ground,
            propensity,
            states,
            generator,
            out,
            settings,
            cell.seed,
            chain.spent(*built_on),
            chain.peak(*built_on),
        ),
    )


def _unless_current(
    chain: Chain,
    cell: BenchCell,
    settings: BaseModel,
    parents: Mapping[str, Artifact],
    make: Callable[[Path], Artifact],
) -> Artifact:
    folder = chain.folder / f"cell-{slug(cell.method)}"
    return make_unless_current(folder, cell.name, KIND, settings, cell.seed, parents, make)


def _judged(
    config: BenchConfig,
    name: str,
    ground: PreparedDataset,
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
        made | ground.shop,
        lambda out: write_results(made, ground, out, settings, config.seed, origin(config)),
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
