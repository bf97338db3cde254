"""The paper's ablation of context: N recent tokens, 2N recent tokens, the full history patched into 2N positions.

    python -m benchmarks.patching [--data FOLDER] [--tags brand] [--tokens 96] [--seeds 1 2 3] [--steps 1200]

FOLDER holds interactions.parquet and items.parquet; without it, the Complete Journey data is used. The cells differ in
nothing but the context: same users, same mined labels, same steps. Every cell is an artifact: a run that was stopped
goes on where it was. Costs are measured apart, in turns with 2N recent tokens. `--quick` is a planted shop, one seed
and few steps, to see that it works.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Literal, NamedTuple

import numpy as np
import polars as pl
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

from benchmarks import harness
from benchmarks.objectives import kept, settings
from merit import console
from merit.artifacts import Artifact
from merit.baselines.generative import COLLATE, corpus_of
from merit.data import planted
from merit.data.patches import windows_of
from merit.data.prompt import PatchingConfig
from merit.data.ragged import Ragged
from merit.evaluation import tables
from merit.evaluation.classification import EvaluationConfig, Key, measure
from merit.evaluation.predictions import Predictions
from merit.generator.corpus import TextConfig, write_patched, write_prompts
from merit.generator.decode import DecodeConfig, decode
from merit.generator.loop import loss_of
from merit.labels import space
from merit.objective.collate import Corpus, collate
from merit.stages.evaluate import read_predictions, truth_of_test_users
from merit.stages.generator import Generator, GeneratorConfig, load_generator, read_labelled, train_generator
from merit.stages.labels import load_vectors
from merit.stages.mine import mine
from merit.stages.predict import PredictConfig, predict
from merit.stages.run import RunConfig, run

BUDGETS = (5, 10, 20)
LIKELY = ", by likelihood"
BATCH = 64  # examples timed together


class Context(NamedTuple):
    times: int  # of N positions
    schedule: Literal["curriculum", "from-the-start"] | None  # of patching


PLAIN, PATCHED = "2N recent", "2N patched"
CELLS = {
    "N recent": Context(1, None),
    PLAIN: Context(2, None),
    PATCHED: Context(2, "curriculum"),
    "2N patched from the start": Context(2, "from-the-start"),
}


def text_of(context: Context, base: TextConfig, tokens: int) -> TextConfig:
    prompt = base.prompt.model_copy(update={"budget": tokens * context.times})
    patching = None
    if context.schedule:
        patching = (base.patching or PatchingConfig()).model_copy(update={"schedule": context.schedule})
    return base.model_copy(update={"prompt": prompt, "patching": patching})


def train_cells(run_config: RunConfig, tokens: int, seed: int, shop: tuple[Artifact, Artifact]) -> dict[str, Artifact]:
    """A generator for every context, all with the mistakes of one that was taught by force; what is there is kept."""
    folder = run_config.out / f"seed-{seed}"

    def trained(name: str, how: GeneratorConfig, mined: Artifact | None) -> Artifact:
        return kept(folder / name, "generator") or train_generator(*shop, mined, folder / name, how, seed)

    def settings_of(context: Context, train: Any) -> GeneratorConfig:
        return run_config.generator(train).model_copy(update={"text": text_of(context, run_config.text, tokens)})

    first = trained("teacher-forcing", settings_of(CELLS[PLAIN], run_config.stage_1), None)
    mined = kept(folder / "mined", "mined") or mine(first, *shop, folder / "mined", run_config.mining, seed)
    return {
        name: trained(name.replace(" ", "-"), settings_of(context, run_config.stage_2), mined)
        for name, context in CELLS.items()
    }


def say(generators: Mapping[str, Artifact], seed: int, shop: tuple[Artifact, Artifact]) -> list[Predictions]:
    """What every cell says of the test users, decoded and by likelihood, under the cell's name."""
    found = []
    how = PredictConfig(union=False, exposure=False)
    for name, generator in generators.items():
        place = generator.path.with_name(f"{generator.path.name}-predictions")
        said = kept(place, "predictions") or predict(generator, *shop, place, how, seed)
        found += [replace(each, method=name + LIKELY * each.method.endswith(LIKELY)) for each in read_predictions(said)]
    return found


def judge(said: list[Predictions], shop: tuple[Artifact, Artifact], config: EvaluationConfig) -> pl.DataFrame:
    """Figures of all cells; gains are over 2N recent tokens read the same way, on the same users."""
    examples, labels = shop
    truth = truth_of_test_users(examples, space.load(labels.path), load_vectors(labels))
    parts = []
    for end in ("", LIKELY):
        own = [each for each in said if each.method.endswith(LIKELY) == bool(end)]
        judged = [(each, measure(each, truth, config)) for each in own]
        parts.append(tables.compare(judged, truth.users, 7, PLAIN + end, config.resamples))
    return pl.concat(parts)


def recalls(figures: pl.DataFrame) -> dict[str, Any]:
    """Exact recall in points, and the gain over 2N recent tokens with its interval."""
    told: dict[str, Any] = {}
    for budget in BUDGETS:
        for row in tables.pick(figures, Key("recall", "exact", budget)).iter_rows(named=True):
            points = [round(100 * row[name], 2) for name in ("value", "gain", "gain_low", "gain_high")]
            told[f"{row['method']} @{budget}"] = points[0]
            if not row["method"].startswith(PLAIN):
                told[f"{row['method']} @{budget}, gain"] = points[1:]
    return told


class Timed(NamedTuple):
    """A cell ready to be timed: its model, its examples, and which of them."""

    generator: Generator
    corpus: Corpus
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


def timed(generators: Mapping[str, Artifact], shop: tuple[Artifact, Artifact]) -> dict[str, Timed]:
    """All cells over the same users: those with an older history."""
    loaded = {name: load_generator(generator, *shop) for name, generator in generators.items()}
    first, how = loaded[PATCHED]
    train = read_labelled(shop[0], "train", first.shop)
    patching = how.text.patching or PatchingConfig()
    patched = write_patched(train.items, first.shop, how.text.prompt, patching)
    rows = np.flatnonzero(patched.some())[:BATCH].tolist()
    paths, found = first.shop.paths, {}
    for name, (generator, own) in loaded.items():
        prompts = write_prompts(train.items, generator.shop, own.text)
        corpus = corpus_of(prompts, train.gold, Ragged(paths.offsets, paths.tokens), generator.shop.vocabulary)
        objective = own.train.resolved().model_copy(update={"mined": False})
        corpus = replace(corpus, patched=patched)
        found[name] = Timed(generator, corpus, rows, own.text.patching is not None, objective, objective.beta)
    return found


def costs(cells: Mapping[str, Timed], rounds: int) -> dict[str, float]:
    """Against 2N recent tokens: a step of training (the figure that counts) and of decoding five labels."""
    told: dict[str, float] = {}
    for name in ("N recent", PATCHED):
        one, base, size = cells[name], cells[PLAIN], len(cells[name].rows)
        works = {"training": (one.step, base.step), "decoding": (one.write, base.write)}
        for work, (ours, other) in works.items():
            ratio = harness.alternate(ours, other, rounds)
            told[f"{name}, {work} ms per example"] = round(1000 * ratio.ours / size, 2)
            told[f"{name}, {work} cost to {PLAIN}"] = round(1 / ratio.speedup, 3)
    return told | {"cost_ratio_at_budget": told[f"{PATCHED}, training cost to {PLAIN}"]}


def reading(generators: Mapping[str, Artifact]) -> dict[str, float]:
    """Of every cell: positions paid for by a prompt, tokens behind them, and the padding of its training."""
    told: dict[str, float] = {}
    for name, generator in generators.items():
        summary = generator.manifest.summary
        told[f"{name}, positions"] = summary.get("patched_positions", summary["prompt_tokens"])
        told[f"{name}, tokens"] = summary.get("patched_tokens", summary["prompt_tokens"])
        log = EventAccumulator(str(generator.file("log"))).Reload().Scalars("train/padding")
        told[f"{name}, padding share"] = round(float(np.mean([each.value for each in log])), 3)
    return told


def measured(run_config: RunConfig, tokens: int, seeds: list[int], rounds: int) -> dict[str, Any]:
    made = run(run_config, until="labels")
    shop = (made["examples"], made["labels"])
    generators = {seed: train_cells(run_config, tokens, seed, shop) for seed in seeds}
    said = [each for seed, own in generators.items() for each in say(own, seed, shop)]
    figures = judge(said, shop, run_config.evaluation)
    columns = {f"recall@{budget}": Key("recall", "exact", budget) for budget in BUDGETS}
    tables.show("Exact match, in points; Δ to 2N recent", tables.headline(figures, columns, [*columns]))
    first = generators[seeds[0]]
    return costs(timed(first, shop), rounds) | reading(first) | recalls(figures)


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
