"""Labels alone against clusters before labels: recall, and what training and decoding cost.

    python -m benchmarks.clusters [--data FOLDER] [--set source.events.rating=purchase] [--seeds 1 2 3] [--steps 240]

FOLDER holds interactions.parquet and items.parquet; without it, the Complete Journey data is used. The forms differ in
nothing but the paths of labels: same users, same label space. A form is trained for the same steps as labels alone
(teacher forcing, its mistakes, self-correction), and for the same seconds: as many steps as its share of the cost
allows. Costs are seconds of the processor, measured in turns with labels alone. Every cell is an artifact: a run that
was stopped goes on where it was. Figures in brackets are a value and its 95 % interval, over test users or rounds.
`--quick` is a planted shop, one seed and few steps, to see that it works.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, NamedTuple, get_args

import numpy as np
import torch
from numpy.typing import NDArray

from benchmarks import harness
from benchmarks.objectives import kept, settings
from benchmarks.patching import QUICK, usual
from merit.baselines.generative import COLLATE, corpus_of
from merit.core import console
from merit.core.artifacts import Artifact
from merit.core.pipeline import run
from merit.core.ragged import Ragged, column_lists
from merit.core.settings import RunConfig
from merit.data import planted
from merit.data.corpus import CorpusConfig, build_corpus, read_inputs, read_table
from merit.evaluation import tables
from merit.evaluation.classification import MetricKey, Metrics, measure
from merit.evaluation.evaluate import read_predictions, training_popularity, truth_of_test_users
from merit.evaluation.predictions import Predictions
from merit.evaluation.trivial import BASELINES
from merit.generator.decoding import DecodeConfig
from merit.generator.mining import mine, read_mined
from merit.generator.model import load_generator
from merit.generator.predict import PredictConfig, predict
from merit.generator.train import train_generator
from merit.generator.training import loss_of
from merit.generator.worker import DecodeJob
from merit.labels import space
from merit.labels.build import load_vectors
from merit.labels.token_paths import ClusterForm
from merit.objective.collate import collate

FORMS = get_args(ClusterForm)
PLAIN, SECONDS, LIKELY = "none", ", same seconds", ", likelihood ranking"
BUDGETS = (5, 10, 20)
COLUMNS = {f"recall@{budget}": MetricKey("recall", "exact", budget) for budget in BUDGETS}
BATCH = 64  # examples timed together

Judged = list[tuple[Predictions, Metrics]]


class Shop(NamedTuple):
    """The same examples in every form, and their labels."""

    corpora: dict[str, Artifact]
    labels: Artifact


class Cell(NamedTuple):
    """A form trained for so many steps in each stage."""

    name: str
    form: str
    steps: int


def write_corpora(run_config: RunConfig, made: Mapping[str, Artifact]) -> Shop:
    """A corpus in every form; what is there is kept."""
    base = run_config.tokens.model_copy(update={"corpus": CorpusConfig(title_words=0, purchases_per_user=0)})
    corpora = {}
    for form in FORMS:
        place = run_config.out / f"corpus-{form}"
        how = base.model_copy(update={"text": base.text.model_copy(update={"cluster_form": form})})
        corpora[form] = kept(place, "corpus") or build_corpus(
            made["examples"], made["labels"], place, how, run_config.seed
        )
    return Shop(corpora, made["labels"])


def place_of(run_config: RunConfig, cell: Cell, seed: int) -> Path:
    return run_config.out / f"seed-{seed}" / f"{cell.form}-{cell.steps}"


def train_cell(run_config: RunConfig, cell: Cell, seed: int, shop: Shop) -> tuple[Artifact, Artifact]:
    """The trained generator and the mistakes it learnt from; what is there is kept."""
    place, corpus = place_of(run_config, cell, seed), shop.corpora[cell.form]
    text = run_config.text.model_copy(update={"cluster_form": cell.form})

    def trained(name: str, train: Any, mined: Artifact | None) -> Artifact:
        how = run_config.generator(train.model_copy(update={"steps": cell.steps})).model_copy(update={"text": text})
        return kept(place / name, "generator") or train_generator(
            corpus, shop.labels, place / name, how, seed, mined=mined
        )

    first = trained("stage-1", run_config.stage_1, None)
    sampled = run_config.mining.of(cell.steps * run_config.stage_2.batch_size)
    mined = kept(place / "mined", "mined") or mine(
        DecodeJob(first, corpus, shop.labels, sampled, seed), place / "mined"
    )
    return trained("stage-2", run_config.stage_2, mined), mined


def lists_of(run_config: RunConfig, cell: Cell, seed: int, shop: Shop) -> Iterator[Predictions]:
    """The lists of a cell, as decoded and by likelihood, under its name."""
    place, how = place_of(run_config, cell, seed) / "predictions", PredictConfig(union=False, exposure=False)
    generator, _ = train_cell(run_config, cell, seed, shop)
    made = kept(place, "predictions") or predict(
        DecodeJob(generator, shop.corpora[cell.form], shop.labels, how, seed), place
    )
    for lists in read_predictions(made):
        yield replace(lists, method=cell.name + LIKELY * lists.method.endswith(LIKELY))


class Timed(NamedTuple):
    """A form ready to be timed: a step of training and the decoding of a batch."""

    step: Callable[[], object]
    decode: Callable[[], object]


def timed(run_config: RunConfig, cell: Cell, seed: int, shop: Shop) -> Timed:
    """The same examples and users in every form."""
    (artifact, mined), corpus = train_cell(run_config, cell, seed, shop), shop.corpora[cell.form]
    generator, table = load_generator(artifact, corpus, shop.labels), read_table(corpus, "train", "prompt", "gold")
    paths, objective = generator.shop.paths, run_config.stage_2.resolved()
    wrong = read_mined(mined, len(table))
    lists = (column_lists(table[name]) for name in ("prompt", "gold"))
    text = replace(
        corpus_of(*lists, Ragged(paths.offsets, paths.tokens), generator.shop.vocabulary),
        mined=column_lists(wrong["labels"]),
        mined_counts=column_lists(wrong["counts"]).values,
    )
    optimizer = torch.optim.AdamW(generator.model.parameters(), lr=0.0)  # costs the same, and changes nothing
    rows = np.flatnonzero(wrong["sampled"].to_numpy())[:BATCH].tolist()
    prompts = read_inputs(corpus, "test")
    some = prompts.gather(np.arange(min(BATCH, len(prompts))))

    def step() -> None:
        batch = collate(text, rows, 0, objective, COLLATE, seed)
        loss_of(generator.model, batch, objective.beta)[0].backward()
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)

    return Timed(step, lambda: generator.decode(some, DecodeConfig(max_labels=20, fixed_budget=True), seed))


def turns(works: Mapping[str, Callable[[], object]], rounds: int) -> dict[str, NDArray[np.float64]]:
    """Seconds of the processor for each of them, taken in turns; what else the machine does takes none of them."""
    seconds: dict[str, list[float]] = {name: [] for name in works}
    for number in range(rounds + 1):
        for name, work in works.items():
            begin = time.process_time()
            work()
            if number:  # the first call pays for caches
                seconds[name].append(time.process_time() - begin)
    return {name: np.array(values) for name, values in seconds.items()}


def costs(run_config: RunConfig, cells: list[Cell], seed: int, shop: Shop, rounds: int) -> dict[str, list[float]]:
    """Of every form: examples trained on and prompts decoded in a second, and the cost of both to labels alone."""
    ready, figures = {cell.form: timed(run_config, cell, seed, shop) for cell in cells}, {}
    torch.set_flush_denormal(True)  # as training does
    training = turns({form: work.step for form, work in ready.items()}, rounds)
    torch.set_flush_denormal(False)
    decoding = turns({form: work.decode for form, work in ready.items()}, rounds)
    for name, seconds in (("training", training), ("decoding", decoding)):
        for form in ready:
            figures[f"{form}, {name} per second"] = usual(BATCH / seconds[form], 1)
            if form != PLAIN:
                figures[f"{form}, {name} cost to {PLAIN}"] = usual(seconds[form] / seconds[PLAIN], 3)
    return figures


def recalls(lists: list[Predictions], shop: Shop, run_config: RunConfig) -> dict[str, list[float]]:
    """Exact recall in points with its interval, and the same of the gain over labels alone read the same way."""
    label_space = space.load(shop.labels.path)
    truth = truth_of_test_users(shop.corpora[PLAIN], label_space, load_vectors(shop.labels))
    simple = [make(truth, training_popularity(label_space)) for make in BASELINES.values()]
    judged = [(each, measure(each, truth, run_config.evaluation)) for each in (*lists, *simple)]
    figures: dict[str, list[float]] = {}
    for end in ("", LIKELY):
        own = [(each, found) for each, found in judged if each.method.endswith(LIKELY) == bool(end)]
        compared = tables.compare(own, truth.users, 7, PLAIN + end, run_config.evaluation.resamples)
        tables.show(f"Exact match, in points; Δ to {PLAIN}{end}", tables.headline(compared, COLUMNS, [*COLUMNS]))
        for budget, key in zip(BUDGETS, COLUMNS.values(), strict=True):
            for row in tables.pick(compared, key).iter_rows(named=True):
                figures[f"{row['method']} @{budget}"] = points(row, "value", "low", "high")
                if row["method"] != PLAIN + end:
                    figures[f"{row['method']} @{budget}, gain"] = points(row, "gain", "gain_low", "gain_high")
    return figures


def points(row: Mapping[str, float], *names: str) -> list[float]:
    return [round(100 * row[name], 2) for name in names]


def variety(lists: list[Predictions]) -> dict[str, list[int]]:
    """Different sets of ten labels, by cell and seed."""
    counted: dict[str, list[int]] = {}
    for each in lists:
        tens = each.at(10)
        counted.setdefault(f"{each.method}, lists", []).append(
            len({frozenset(tens[row].tolist()) for row in range(len(tens))})
        )
    return counted


def measured(run_config: RunConfig, seeds: list[int], rounds: int) -> dict[str, Any]:
    shop, steps = write_corpora(run_config, run(run_config, until="labels")), run_config.stage_2.steps
    cells = [Cell(form, form, steps) for form in FORMS]
    cost = costs(run_config, cells, seeds[0], shop, rounds)
    for form in FORMS[1:]:
        affordable = max(1, round(steps / cost[f"{form}, training cost to {PLAIN}"][0]))
        cells.append(Cell(form + SECONDS, form, affordable))
    lists = []
    for seed in seeds:
        for cell in cells:
            lists += lists_of(run_config, cell, seed, shop)
            console.tell(f"{cell.name}, seed {seed}: done")
    sizes = {f"{cell.name}, steps": cell.steps for cell in cells}
    live = int(space.load(shop.labels.path).live_mask().sum())
    return {"live labels": live, **sizes, **cost, **recalls(lists, shop, run_config), **variety(lists)}


def quick(folder: Path, seed: int) -> dict[str, Any]:
    planted.write(planted.shop(planted.PlantedConfig(users=150, events=60), seed), folder)
    run_config = settings(folder, [], 8, folder / "run", [*QUICK, f"cache={folder / 'cache'}"])
    return measured(run_config, [1], rounds=3)


def main() -> None:
    parser = harness.parser(__doc__)
    parser.add_argument("--tags", nargs="*", default=[])
    parser.add_argument("--seeds", nargs="*", type=int, default=[1, 2, 3])
    parser.add_argument("--steps", type=int, default=240)
    parser.add_argument("--out", type=Path, default=Path("runs/clusters"))
    parser.add_argument("--set", action="append", default=[], help="override a setting")
    arguments = parser.parse_args()
    console.set_up_logging()
    if arguments.quick:
        with TemporaryDirectory() as folder:
            figures = quick(Path(folder), arguments.seed)
    else:
        out = arguments.out if not arguments.data else arguments.out / arguments.data.name
        run_config = settings(arguments.data, arguments.tags, arguments.steps, out, arguments.set)
        figures = measured(run_config, arguments.seeds, rounds=15)
    harness.finish("clusters", figures, arguments.seed)


if __name__ == "__main__":
    harness.run(main)
