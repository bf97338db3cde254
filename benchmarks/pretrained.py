"""A pretrained backbone against one from scratch: SmolLM2 with LoRA and `tiny`, trained for as long as each other.

    merit weights install smollm2
    python -m benchmarks.pretrained [--data FOLDER] [--tags brand] [--seconds 300] [--users 300]

FOLDER holds interactions.parquet and items.parquet; without it, the Complete Journey data is used. Each backbone has
--seconds on the clock: half for teacher forcing, half for self-correction from its own mistakes. Those are mined from
as many examples as a training of that pace reads. All read prompts of as many tokens (--tokens), and are judged on the
same --users test users. Each works in a process of its own, and everything is an artifact: a run that was stopped goes
on where it was. `--quick` is a planted shop, where a tiny generator is the pretrained backbone, to see that it works.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, NamedTuple

import numpy as np
import polars as pl
from pydantic import BaseModel, Field

from benchmarks import harness
from benchmarks.objectives import settings
from merit.bench.chain import step_seconds
from merit.core import artifacts, console, timings, weights
from merit.core.artifacts import Artifact
from merit.core.config import Frozen
from merit.core.errors import ConfigError
from merit.core.pipeline import run
from merit.core.seeds import stream
from merit.core.settings import RunConfig
from merit.core.stage import make_unless_current
from merit.core.types import Split
from merit.data import planted
from merit.data.corpus import build_corpus
from merit.data.prepare import PrepareRun, shards
from merit.evaluation import tables
from merit.evaluation.classification import EvaluationConfig, MetricKey, measure
from merit.evaluation.evaluate import read_predictions, training_popularity, truth_of_test_users
from merit.evaluation.predictions import Predictions
from merit.evaluation.trivial import BASELINES
from merit.generator.backbone import TINY, BackboneConfig
from merit.generator.mining import mine
from merit.generator.model import ObjectiveConfig
from merit.generator.predict import PredictConfig, predict
from merit.generator.train import train_generator
from merit.generator.worker import DecodeJob
from merit.labels import space
from merit.labels.build import load_vectors
from merit.plan.config import PlanConfig
from merit.plan.count import shape_of
from merit.propensity.linear import train_factors
from merit.propensity.states import write_states
from merit.propensity.train import train_propensity
from merit.retrieval.ranking import rank

PROBE = 8  # steps that tell how many fit into the time
STAGES = ("stage-1", "stage-2")
SAID, RANKED = "predictions", "ranking"
WAYS = ("as decoded", "likelihood ranking", "by propensity")
BUDGETS = (5, 10, 20)
COLUMNS: tables.Columns = {f"recall@{budget}": MetricKey("recall", "exact", budget) for budget in BUDGETS}
GIB = 2**30


class Shop(NamedTuple):
    examples: Artifact
    labels: Artifact


class Encoded(NamedTuple):
    """A shop in the words of a backbone."""

    corpus: Artifact
    labels: Artifact


class Lot(Frozen):
    """Fewer examples of one split, drawn by lot."""

    split: Split
    most: int = Field(ge=1)


class Fitted(NamedTuple):
    """How a pretrained backbone is trained."""

    rank: int
    batch_size: int
    learning_rate: float


def pretrained(base: RunConfig, name: str, out: Path, how: Fitted) -> RunConfig:
    """The same run on another backbone. Few steps fit into the time, so a checkpoint is never far back."""
    changed = {"batch_size": how.batch_size, "learning_rate": how.learning_rate, "checkpoint_every": 20}
    return base.model_copy(
        update={
            "out": out,
            "backbone": BackboneConfig(name=name, lora_rank=how.rank),
            "stage_1": base.stage_1.model_copy(update=changed),
            "stage_2": base.stage_2.model_copy(update=changed),
            "decode_batch": 32,  # with twenty beams each, the cache of more would be gigabytes
        }
    )


def thinned(examples: Artifact, out: Path, lot: Lot, seed: int) -> Artifact:
    """The same data with fewer examples of a split; its users and their events stay."""
    parts = list(shards(examples))
    table = pl.concat([part.examples.with_columns(shard=pl.lit(part.number)) for part in parts])
    keep = (table["split"] != lot.split).to_numpy().copy()
    own = np.flatnonzero(~keep)
    keep[stream(seed, "lot", lot.split).permutation(own)[: lot.most]] = True
    chosen, told = table.filter(keep), examples.manifest.summary
    as_before, parents = PrepareRun.model_validate(examples.manifest.config), {"examples": examples}
    with artifacts.writing(
        out, "examples", config=as_before, seed=seed, parents=parents, inputs={"lot": lot.model_dump()}
    ) as draft:
        for name in examples.manifest.files:
            shutil.copyfile(examples.file(name), draft.path / name)
        for part in parts:
            left = chosen.filter(pl.col("shard") == part.number).drop("shard")
            left.write_parquet(draft.path / f"examples-{part.number:05}.parquet")
        draft.summary |= told | {lot.split: min(lot.most, len(own)), "examples": len(chosen)}
    return artifacts.load(out, "examples")


def drawn(examples: Artifact, out: Path, split: Split, most: int, seed: int) -> Artifact:
    """At most so many examples of a split; all of them are the artifact itself."""
    if examples.manifest.summary[split] <= most:
        return examples
    lot = Lot(split=split, most=most)
    make = partial(thinned, examples, lot=lot, seed=seed)
    as_before, inputs = PrepareRun.model_validate(examples.manifest.config), {"lot": lot.model_dump()}
    return make_unless_current(out, out.name, "examples", as_before, seed, {"examples": examples}, make, inputs)


def made(
    config: RunConfig,
    name: str,
    kind: str,
    settled: BaseModel,
    parents: Mapping[str, Artifact],
    make: Callable[[Path], Artifact],
) -> Artifact:
    """Kept, or made with a note of what it took."""
    return make_unless_current(config.out / name, name, kind, settled, config.seed, parents, make)


def encoded(config: RunConfig, name: str, shop: Shop) -> Encoded:
    make = partial(build_corpus, *shop, config=config.tokens, seed=config.seed)
    return Encoded(made(config, name, "corpus", config.tokens, shop._asdict(), make), shop.labels)


def trained(
    config: RunConfig, name: str, how: ObjectiveConfig, shop: Encoded, mined: Artifact | None, seconds: float
) -> Artifact:
    """As many steps as fit into the time, by the pace of a short training before."""
    parents = shop._asdict() | ({"mined": mined} if mined else {})

    def of(steps: int, title: str) -> Artifact:
        settled = config.generator(how.model_copy(update={"steps": steps}))
        make = partial(train_generator, *shop, config=settled, seed=config.seed, mined=mined)
        return made(config, title, "generator", settled, parents, make)

    return of(max(2, int(seconds / step_seconds(of(PROBE, f"probe-{name}")))), name)


def chain(config: RunConfig, shop: Shop, seconds: float) -> None:
    """All stages of one backbone, from what it reads to what its propensity model says of the test users.

    States are those of the examples that its generators read: a backbone that reads fewer knows fewer.
    """
    console.set_up_logging()
    config.out.mkdir(parents=True, exist_ok=True)
    seed, batch = config.seed, config.decode_batch
    every = encoded(config, "corpus", shop)
    first = trained(config, "stage-1", config.stage_1, every, None, seconds / 2)
    reads = int(first.manifest.summary["steps"]) * config.stage_1.batch_size
    fewer = drawn(shop.examples, config.out / "examples", "train", reads, seed)
    few = every if fewer is shop.examples else encoded(config, "corpus-read", shop._replace(examples=fewer))

    def mistakes(generator: Artifact, name: str) -> Artifact:
        parents = {"generator": generator} | few._asdict()
        make = partial(mine, DecodeJob(generator, *few, config.mining, seed, batch))
        return made(config, name, "mined", config.mining, parents, make)

    second = trained(config, "stage-2", config.stage_2, few, mistakes(first, "mined"), seconds / 2)
    on_second, how = {"generator": second} | few._asdict(), PredictConfig(union=False, exposure=False)
    say = partial(predict, DecodeJob(second, *every, how, seed, batch))
    made(config, SAID, SAID, how, {"generator": second} | every._asdict(), say)
    look = partial(write_states, DecodeJob(second, *few, config.states, seed, batch))
    states = made(config, "states", "states", config.states, on_second, look)
    fit = partial(train_factors, *few, config=config.factors, seed=seed)
    factors = made(config, "factors", "factors", config.factors, few._asdict(), fit)
    own = {
        "corpus": few.corpus,
        "factors": factors,
        "states": states,
        "mined": mistakes(second, "mined-2"),
        "labels": few.labels,
    }
    learn = partial(train_propensity, **own, config=config.propensity, seed=seed)
    scorer = made(config, "propensity", "propensity", config.propensity, own, learn)
    order = partial(rank, scorer, states, second, *few, config=config.ranking, seed=seed)
    made(config, RANKED, SAID, config.ranking, on_second | {"propensity": scorer, "states": states}, order)


def costs(config: RunConfig) -> dict[str, float | None]:
    """What a backbone is, and what its training and decoding took; what was not noted is unknown."""
    trainings = [artifacts.load(config.out / name, "generator") for name in STAGES]
    mined = artifacts.load(config.out / "mined", "mined")
    seconds = sum(step_seconds(each) * each.manifest.summary["steps"] for each in trainings)
    shape = shape_of(config.backbone, PlanConfig(), trainings[-1].manifest.summary["vocabulary"])
    took = timings.read(config.out)
    peaks = [took[name].peak / GIB for name in STAGES if name in took]
    said = took.get(SAID)
    return {
        "parameters": shape.parameters,
        "trained parameters": shape.trained,
        "seconds of training": round(seconds, 3),
        "steps": sum(each.manifest.summary["steps"] for each in trainings),
        "tokens per second": round(sum(each.manifest.summary["tokens"] for each in trainings) / seconds, 1),
        "training, peak GiB": round(max(peaks), 2) if len(peaks) == len(STAGES) else None,
        "examples mined": mined.manifest.summary["examples"],
        "mining, s": round(took["mined"].seconds, 3) if "mined" in took else None,
        "decoding, s": round(said.seconds, 3) if said else None,
        "decoding, peak GiB": round(said.peak / GIB, 2) if said else None,
        "examples with states": artifacts.load(config.out / "states", "states").manifest.summary["train"],
        "states, s": round(took["states"].seconds, 3) if "states" in took else None,
        "propensity, s": round(took["propensity"].seconds, 3) if "propensity" in took else None,
    }


def told(runs: Mapping[str, RunConfig]) -> dict[str, list[Predictions]]:
    """By way of ranking: what each backbone said, under its name."""
    found: dict[str, list[Predictions]] = {way: [] for way in WAYS}
    decoded, likely, propensity = WAYS
    for name, config in runs.items():
        for folder in (SAID, RANKED):
            for each in read_predictions(artifacts.load(config.out / folder, SAID)):
                way = propensity if folder == RANKED else likely if each.method.endswith(likely) else decoded
                found[way].append(replace(each, method=f"{name}, {way}"))
    return found


def judge(said: Mapping[str, list[Predictions]], shop: Encoded, config: EvaluationConfig) -> pl.DataFrame:
    """Figures of all, and of what needs no training; gains are over `tiny` read the same way, on the same users."""
    corpus, labels = shop
    known = space.load(labels.path)
    truth = truth_of_test_users(corpus, known, load_vectors(labels))
    free = [make(truth, training_popularity(known)) for make in BASELINES.values()]
    parts: list[pl.DataFrame] = []
    for way, own in said.items():
        judged = [(each, measure(each, truth, config)) for each in [*own, *free]]
        found = tables.compare(judged, truth.users, 7, f"{TINY}, {way}", config.resamples)
        parts.append(found.filter(pl.col("method").is_in([each.method for each in own])) if parts else found)
    return pl.concat(parts)


def recalls(figures: pl.DataFrame) -> dict[str, list[float]]:
    """Exact recall in points with its interval, and how far a backbone is ahead of `tiny`."""
    shown: dict[str, list[float]] = {}
    for name, key in COLUMNS.items():
        for row in tables.pick(figures, key).iter_rows(named=True):
            values = {column: round(100 * row[column], 2) for column in ("value", "low", "high")}
            shown[f"{row['method']}, {name}"] = [*values.values()]
            if row["method"].endswith(WAYS) and not row["method"].startswith(f"{TINY}, "):
                gain = [round(100 * row[column], 2) for column in ("gain", "gain_low", "gain_high")]
                shown[f"{row['method']}, {name} minus {TINY}"] = gain
    return shown


def compared(runs: Mapping[str, RunConfig], shop: Shop, seconds: float) -> dict[str, Any]:
    """Both tables, of backbones that have said all."""
    tiny = Encoded(artifacts.load(runs[TINY].out / "corpus", "corpus"), shop.labels)
    figures = judge(told(runs), tiny, runs[TINY].evaluation)
    wide = tables.headline(figures, COLUMNS, [*COLUMNS]).drop("commit", "command")
    print(f"\n## Exact recall in points, Δ to {TINY} read the same way\n\n{tables.markdown(wide)}")
    paid = {name: costs(config) for name, config in runs.items()}
    rows = [[name, *("–" if value is None else f"{value:,}" for value in own.values())] for name, own in paid.items()]
    took = pl.DataFrame(rows, schema=["backbone", *paid[TINY]], orient="row")
    print(f"## What it took\n\n{tables.markdown(took)}")
    flat = {f"{name}, {each}": value for name, own in paid.items() for each, value in own.items()}
    return flat | recalls(figures) | {"users": int(figures["users"][0]), "seconds": seconds}


def few_users(config: RunConfig, users: int) -> Shop:
    """The shop with so many test users, always the same ones."""
    both = run(config, until="labels")
    fewer = drawn(both["examples"], config.out / f"examples-{users}", "test", users, config.seed)
    return Shop(fewer, both["labels"])


QUICK = [
    *("labels.encoder=hashed", "backbone.width=64", "backbone.layers=2", "backbone.vocabulary=1600"),
    *("mining.samples=1", "stage_1.batch_size=16", "stage_2.batch_size=16", "evaluation.resamples=200"),
    "prepare.per_train_user=2",
]


def quick(folder: Path, seed: int) -> dict[str, Any]:
    """The pretrained backbone is the generator that tiny's own first training made."""
    planted.write(planted.shop(planted.PlantedConfig(users=100), seed), folder)
    config = settings(folder, [], 1, folder / "run", [*QUICK, "text.prompt.budget=48", f"cache={folder / 'cache'}"])
    shop, own = few_users(config, 20), config.model_copy(update={"seed": seed})
    tiny = own.model_copy(update={"out": config.out / TINY})
    again = pretrained(own, str(tiny.out / "stage-1"), config.out / "again", Fitted(4, 8, 1e-3))
    runs = {TINY: tiny, "tiny again, with LoRA": again}
    for each in runs.values():
        harness.in_child(chain, each, shop, 1.0)
    return compared(runs, shop, 1.0)


def main() -> None:
    parser = harness.parser(__doc__)
    parser.add_argument("--tags", nargs="*", default=[])
    parser.add_argument("--seconds", type=float, default=300.0, help="of training, for each backbone")
    parser.add_argument("--users", type=int, default=300, help="test users")
    parser.add_argument("--tokens", type=int, default=48, help="of a prompt")
    parser.add_argument("--backbone", default="smollm2", help="or the folder of another causal LM")
    parser.add_argument("--rank", type=int, default=16, help="of LoRA; 0 trains all weights")
    parser.add_argument("--batch", type=int, default=4, help="examples of a step of the pretrained backbone")
    parser.add_argument("--rate", type=float, default=5e-4, help="learning rate of the pretrained backbone")
    parser.add_argument("--out", type=Path, default=Path("runs/pretrained"))
    parser.add_argument("--set", action="append", default=[], help="override a setting of both")
    asked = parser.parse_args()
    console.set_up_logging()
    if asked.quick:
        with TemporaryDirectory() as folder:
            figures = quick(Path(folder), asked.seed)
    else:
        figures = full(asked)
    harness.finish("pretrained", figures, asked.seed)


def full(asked: Any) -> dict[str, Any]:
    if asked.backbone == TINY:
        raise ConfigError("--backbone is what tiny is compared with: smollm2, or the folder of a causal LM.")
    weights.backbone_folder(asked.backbone)  # weights that are not installed are told before tiny has trained
    out = asked.out / (asked.data.name if asked.data else "complete-journey")
    overrides = [f"text.prompt.budget={asked.tokens}", "mining.samples=2", *asked.set]
    config = settings(asked.data, asked.tags, 1, out, overrides)
    how, name = Fitted(asked.rank, asked.batch, asked.rate), Path(asked.backbone).name
    shop, own = few_users(config, asked.users), config.model_copy(update={"seed": asked.seed})
    runs = {
        TINY: own.model_copy(update={"out": out / TINY}),
        name: pretrained(own, asked.backbone, out / name, how),
    }
    for each in runs.values():
        harness.in_child(chain, each, shop, asked.seconds)
    return compared(runs, shop, asked.seconds)


if __name__ == "__main__":
    harness.run(main)
