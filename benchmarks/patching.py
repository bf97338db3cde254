"""The paper's ablation of context: N recent tokens, 2N recent tokens, the full history patched into 2N positions.

    python -m benchmarks.patching [--data FOLDER] [--tags brand] [--tokens 96] [--seeds 1 2 3] [--steps 1200]

FOLDER holds interactions.parquet and items.parquet; without it, the Complete Journey data is used. The cells differ in
nothing but the context: same users, same mined labels, same steps. Every cell is an artifact: a run that was stopped
goes on where it was. Costs are measured apart, in turns with 2N recent tokens. Figures in brackets are a value and its
95 % interval: over test users, and for times over rounds. `--quick` is a planted shop, one seed and few steps, to see
that it works.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Literal, NamedTuple

import numpy as np
import polars as pl
from numpy.typing import NDArray

from benchmarks import harness
from benchmarks.objectives import kept, settings
from merit.baselines.generative import COLLATE, corpus_of
from merit.core import console, tracking
from merit.core.artifacts import Artifact
from merit.core.pipeline import run
from merit.core.ragged import Ragged, column_lists
from merit.core.seeds import stream
from merit.core.settings import RunConfig
from merit.core.types import Ints
from merit.data import planted
from merit.data.corpus import CorpusConfig, build_corpus, read_inputs, read_table
from merit.data.patches import Patched, windows_of
from merit.data.prompt import PatchingConfig
from merit.data.texts import TextConfig
from merit.evaluation import tables
from merit.evaluation.classification import EvaluationConfig, MetricKey, Metrics, measure
from merit.evaluation.evaluate import read_predictions, truth_of_test_users
from merit.evaluation.predictions import Predictions
from merit.generator.decoding import DecodeConfig, decode
from merit.generator.mining import mine
from merit.generator.model import Generator, GeneratorConfig, load_generator, settings_of
from merit.generator.predict import PredictConfig, predict
from merit.generator.train import train_generator
from merit.generator.training import loss_of
from merit.generator.worker import DecodeJob
from merit.labels import space
from merit.labels.build import load_vectors
from merit.objective.collate import Corpus, collate

BUDGETS = (5, 10, 20)
LIKELY = ", likelihood ranking"
BATCH = 64  # examples timed together
RESAMPLES = 2000  # of the rounds of a timing


Judged = list[tuple[Predictions, Metrics]]


class Context(NamedTuple):
    times: int  # of N positions
    schedule: Literal["curriculum", "from-the-start"] | None  # of patching


PLAIN, PATCHED, STARTED = "2N recent", "2N patched", "2N patched from the start"
CELLS = {
    "N recent": Context(1, None),
    PLAIN: Context(2, None),
    PATCHED: Context(2, "curriculum"),
    STARTED: Context(2, "from-the-start"),
}


def text_of(context: Context, base: TextConfig, tokens: int) -> TextConfig:
    prompt = base.prompt.model_copy(update={"budget": tokens * context.times})
    patching = None
    if context.schedule:
        patching = (base.patching or PatchingConfig()).model_copy(update={"schedule": context.schedule})
    return base.model_copy(update={"prompt": prompt, "patching": patching})


class Shop(NamedTuple):
    """The same examples as every cell reads them, and their labels."""

    corpora: dict[str, Artifact]
    labels: Artifact


def write_corpora(run_config: RunConfig, tokens: int, examples: Artifact, labels: Artifact) -> Shop:
    """A corpus for every context: the rows are the same, and the prompts are not. What is there is kept."""
    base = run_config.tokens.model_copy(update={"corpus": CorpusConfig(title_words=0, purchases_per_user=0)})
    corpora = {}
    for name, context in CELLS.items():
        place = run_config.out / f"corpus-{name.replace(' ', '-')}"
        how = base.model_copy(update={"text": text_of(context, run_config.text, tokens)})
        corpora[name] = kept(place, "corpus") or build_corpus(examples, labels, place, how, run_config.seed)
    return Shop(corpora, labels)


def train_cells(run_config: RunConfig, tokens: int, seed: int, shop: Shop) -> dict[str, Artifact]:
    """A generator for every context, all with the mistakes of one that was taught by force; what is there is kept."""
    folder = run_config.out / f"seed-{seed}"

    def trained(name: str, cell: str, train: Any, mined: Artifact | None) -> Artifact:
        text = text_of(CELLS[cell], run_config.text, tokens)
        how: GeneratorConfig = run_config.generator(train).model_copy(update={"text": text})
        return kept(folder / name, "generator") or train_generator(
            shop.corpora[cell], shop.labels, folder / name, how, seed, mined=mined
        )

    first = trained("teacher-forcing", PLAIN, run_config.stage_1, None)
    mined = kept(folder / "mined", "mined") or mine(
        DecodeJob(first, shop.corpora[PLAIN], shop.labels, run_config.mining, seed), folder / "mined"
    )
    return {cell: trained(cell.replace(" ", "-"), cell, run_config.stage_2, mined) for cell in CELLS}


def say(generators: Mapping[str, Artifact], seed: int, shop: Shop) -> list[Predictions]:
    """What every cell says of the test users, decoded and by likelihood, under the cell's name."""
    found = []
    how = PredictConfig(union=False, exposure=False)
    for name, generator in generators.items():
        place = generator.path.with_name(f"{generator.path.name}-predictions")
        said = kept(place, "predictions") or predict(
            DecodeJob(generator, shop.corpora[name], shop.labels, how, seed), place
        )
        found += [replace(each, method=name + LIKELY * each.method.endswith(LIKELY)) for each in read_predictions(said)]
    return found


def judge(said: list[Predictions], shop: Shop, config: EvaluationConfig) -> tuple[Judged, int]:
    """What every cell of every seed found, and of how many users."""
    labels = shop.labels
    truth = truth_of_test_users(shop.corpora[PLAIN], space.load(labels.path), load_vectors(labels))
    return [(each, measure(each, truth, config)) for each in said], truth.users


def against(cell: str, judged: Judged, users: int, resamples: int) -> pl.DataFrame:
    """Figures of all cells; gains are over one of them read the same way, on the same users."""
    parts = []
    for end in ("", LIKELY):
        own = [(said, found) for said, found in judged if said.method.endswith(LIKELY) == bool(end)]
        parts.append(tables.compare(own, users, 7, cell + end, resamples))
    return pl.concat(parts)


def recalls(figures: pl.DataFrame) -> dict[str, list[float]]:
    """Exact recall in points with its interval, and the same of the gain over 2N recent tokens."""
    told = {}
    for row in _rows(figures):
        told[f"{row['method']} @{row['budget']}"] = _points(row, "value", "low", "high")
        if not row["method"].startswith(PLAIN):
            told[f"{row['method']} @{row['budget']}, gain"] = _points(row, "gain", "gain_low", "gain_high")
    return told


def worth_of_curriculum(figures: pl.DataFrame) -> dict[str, list[float]]:
    """Patching by the curriculum minus patching from the start, same steps, in points."""
    names = {PATCHED + end: f"curriculum minus from the start{end}" for end in ("", LIKELY)}
    rows = [row for row in _rows(figures) if row["method"] in names]
    return {f"{names[row['method']]} @{row['budget']}": _points(row, "gain", "gain_low", "gain_high") for row in rows}


def _rows(figures: pl.DataFrame) -> list[dict[str, Any]]:
    keys = [MetricKey("recall", "exact", budget) for budget in BUDGETS]
    return [row for key in keys for row in tables.pick(figures, key).iter_rows(named=True)]


def _points(row: Mapping[str, float], *names: str) -> list[float]:
    return [round(100 * row[name], 2) for name in names]


class Timed(NamedTuple):
    """A cell ready to be timed: its model, its examples, and which of them."""

    generator: Generator
    corpus: Corpus
    asked: Ragged  # prompts of all test users, as the cell reads them
    rows: list[int]
    patched: bool
    objective: Any
    beta: float

    def step(self) -> None:
        """One reading of the batch and the way back, collating included."""
        flags = np.full(len(self.rows), self.patched)
        batch = collate(self.corpus, self.rows, 0, self.objective, COLLATE, 7, flags)
        loss_of(self.generator.model, batch, self.beta)[0].backward()
        self.generator.model.zero_grad(set_to_none=True)

    def write(self) -> None:
        prompts: Ragged = self.corpus.patched if self.patched and self.corpus.patched else self.corpus.prompts
        words, how = self.generator.shop.vocabulary, DecodeConfig(max_labels=5, fixed_budget=True)
        asked = [prompts[row] for row in self.rows]
        decode(self.generator.model, asked, self.generator.trie, words.sep, words.end, how, windows=windows_of(prompts))


def timed(generators: Mapping[str, Artifact], shop: Shop) -> dict[str, Timed]:
    """All cells over the same users: those with an older history."""
    patched = read_inputs(shop.corpora[PATCHED], "train")
    assert isinstance(patched, Patched)
    rows = np.flatnonzero(patched.some())[:BATCH].tolist()
    found = {}
    for name, artifact in generators.items():
        corpus, own = shop.corpora[name], settings_of(artifact)
        generator, train = load_generator(artifact, corpus, shop.labels), read_table(corpus, "train", "prompt", "gold")
        prompts, gold = (column_lists(train[column]) for column in ("prompt", "gold"))
        paths, words = generator.shop.paths, generator.shop.vocabulary
        text = replace(corpus_of(prompts, gold, Ragged(paths.offsets, paths.tokens), words), patched=patched)
        objective, asked = own.train.resolved().model_copy(update={"mined": False}), read_inputs(corpus, "test")
        found[name] = Timed(generator, text, asked, rows, own.text.patching is not None, objective, objective.beta)
    return found


def turns(ours: Callable[[], object], other: Callable[[], object], rounds: int) -> NDArray[np.float64]:
    """(rounds, 2): seconds of both, taken in turns, so that a busy machine slows both alike."""
    ours(), other()  # the first call pays for caches
    return np.array([[harness.timed(each)[1] for each in (ours, other)] for _ in range(rounds)])


def usual(values: NDArray[np.float64], digits: int) -> list[float]:
    """The median over rounds and its interval, by resampling them."""
    lots = stream(7, "rounds").integers(len(values), size=(RESAMPLES, len(values)))
    low, high = np.quantile(np.median(values[lots], axis=1), [0.025, 0.975])
    return [round(float(each), digits) for each in (np.median(values), low, high)]


def costs(cells: Mapping[str, Timed], rounds: int) -> dict[str, Any]:
    """Against 2N recent tokens: a step of training (the figure that counts) and of decoding five labels."""
    told: dict[str, Any] = {}
    for name in ("N recent", PATCHED):
        one, base, size = cells[name], cells[PLAIN], len(cells[name].rows)
        works = {"training": (one.step, base.step), "decoding": (one.write, base.write)}
        for work, (ours, other) in works.items():
            seconds = turns(ours, other, rounds)
            for each, column in ((name, 0), (PLAIN, 1)):
                told[f"{each}, {work} ms per example"] = usual(1000 * seconds[:, column] / size, 2)
            told[f"{name}, {work} cost to {PLAIN}"] = usual(seconds[:, 0] / seconds[:, 1], 3)
    ratio, *interval = told[f"{PATCHED}, training cost to {PLAIN}"]
    return told | {"cost_ratio_at_budget": ratio, "cost_ratio_at_budget, interval": interval}


def behind(prompts: Ragged) -> Ints:
    """Tokens that every prompt stands for."""
    sizes = np.ones(len(prompts.values), np.int64)
    if isinstance(prompts, Patched):
        patches = prompts.values < 0
        sizes[patches] = prompts.windows.tokens.lengths()[~prompts.values[patches]]
    ends = np.concatenate([[0], np.cumsum(sizes)])
    return np.diff(ends[prompts.offsets])


def mean(values: Ints) -> list[float]:
    """The mean over users and its interval."""
    middle, off = float(values.mean()), 1.96 * float(values.std()) / len(values) ** 0.5
    return [round(each, 1) for each in (middle, middle - off, middle + off)]


def reading(generators: Mapping[str, Artifact], cells: Mapping[str, Timed]) -> dict[str, Any]:
    """Of every cell: positions that a test user's prompt pays for, tokens behind them, and the padding in training."""
    told: dict[str, Any] = {}
    for name, generator in generators.items():
        told[f"{name}, positions"] = mean(cells[name].asked.lengths())
        told[f"{name}, tokens"] = mean(behind(cells[name].asked))
        log = tracking.read(generator.path, "train/padding")
        told[f"{name}, padding share"] = round(float(np.mean([figure.value for figure in log])), 3)
    return told


def measured(run_config: RunConfig, tokens: int, seeds: list[int], rounds: int) -> dict[str, Any]:
    made = run(run_config, until="labels")
    shop = write_corpora(run_config, tokens, made["examples"], made["labels"])
    generators = {seed: train_cells(run_config, tokens, seed, shop) for seed in seeds}
    said = [each for seed, own in generators.items() for each in say(own, seed, shop)]
    judged, users = judge(said, shop, run_config.evaluation)
    figures, other = (against(cell, judged, users, run_config.evaluation.resamples) for cell in (PLAIN, STARTED))
    columns = {f"recall@{budget}": MetricKey("recall", "exact", budget) for budget in BUDGETS}
    tables.show("Exact match, in points; Δ to 2N recent", tables.headline(figures, columns, [*columns]))
    first = generators[seeds[0]]
    cells = timed(first, shop)
    return costs(cells, rounds) | reading(first, cells) | recalls(figures) | worth_of_curriculum(other)


QUICK = [
    "labels.encoder=hashed",
    "backbone.width=64",
    "backbone.layers=2",
    "backbone.vocabulary=1600",
    "mining.samples=1",
    "stage_1.batch_size=16",
    "stage_2.batch_size=16",
    "evaluation.resamples=200",
    "prepare.per_train_user=2",
]


def quick(folder: Path, tokens: int, seed: int) -> dict[str, Any]:
    planted.write(planted.shop(planted.PlantedConfig(users=150, events=150), seed), folder)
    run_config = settings(folder, [], 8, folder / "run", [*QUICK, f"cache={folder / 'cache'}"])
    return measured(run_config, tokens, [1], rounds=7)


def main() -> None:
    parser = harness.parser(__doc__)
    parser.add_argument("--tags", nargs="*", default=[])
    parser.add_argument("--tokens", type=int, default=96, help="N")
    parser.add_argument("--seeds", nargs="*", type=int, default=[1, 2, 3])
    parser.add_argument("--steps", type=int, default=1200)
    parser.add_argument("--out", type=Path, default=Path("runs/patching"))
    parser.add_argument("--set", action="append", default=[], help="override a setting")
    arguments = parser.parse_args()
    console.set_up_logging()
    if arguments.quick:
        with TemporaryDirectory() as folder:
            figures = quick(Path(folder), arguments.tokens // 2, arguments.seed)
    else:
        out = arguments.out if not arguments.data else arguments.out / arguments.data.name
        run_config = settings(arguments.data, arguments.tags, arguments.steps, out, arguments.set)
        figures = measured(run_config, arguments.tokens, arguments.seeds, rounds=15)
    harness.finish("patching", figures, arguments.seed)


if __name__ == "__main__":
    harness.run(main)
