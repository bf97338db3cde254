"""Cells of a benchmark: the predictions of one method with one seed for the test users, and what they cost.

    write_baseline    a method of merit.baselines.methods, within its time
    write_generator   a generator of our own, with the lists that `predict` made of it
    write_merit       the ranking of the propensity model, on the states of a generator

The artifact: predictions-N.parquet, one for every way of reading the method; hits.safetensors, where it has
scores (what every user adds to Hit@k and to recall of new labels); costs in the manifest's summary.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
from safetensors.numpy import load_file, save_file

from merit.baselines.fitting import TimeBudget
from merit.baselines.methods import METHODS, READS, method
from merit.bench.chain import Chain, PreparedDataset, peak_gib
from merit.bench.config import MERIT, BenchCell, slug
from merit.core import artifacts, console, timings
from merit.core.artifacts import Artifact, Draft
from merit.core.config import Frozen
from merit.core.stage import make_unless_current
from merit.data.corpus import read_table
from merit.data.texts import TextConfig
from merit.evaluation import predictions, ranking
from merit.evaluation.classification import MetricKey, Metrics
from merit.evaluation.predictions import BUDGET, Predictions
from merit.evaluation.ranking import MEAN, SHARES, Scores, hit_key
from merit.evaluation.uncertainty import Metric
from merit.generator.backbone import BackboneConfig
from merit.generator.decoding import DecodeConfig
from merit.generator.model import columns_of, load_generator, reads_items
from merit.propensity.lengths import LengthConfig
from merit.propensity.states import read_features
from merit.propensity.train import load_scorer
from merit.retrieval.ranking import propensity_scores, top_labels

KIND = "cell"
HITS = "hits.safetensors"
RELIABILITY = "reliability.parquet"


class BaselineCellConfig(Frozen):
    """Everything that determines the predictions of a method of merit.baselines.methods."""

    method: str
    reads: tuple[str, ...] = ()
    """What the method is given of a user."""
    seconds: float
    """For training, on this machine."""
    backbone: BackboneConfig = BackboneConfig()
    text: TextConfig = TextConfig()


class GeneratorCellConfig(Frozen):
    """A generator of our own: the rest is determined by the artifacts it reads."""

    method: str
    reads: tuple[str, ...] = ("prompt",)
    budget: int = BUDGET


class MeritCellConfig(GeneratorCellConfig):
    """The same, with the rule by which lists at free length end."""

    length: LengthConfig = LengthConfig()


@dataclass(frozen=True)
class Costs:
    """What a cell took. Training includes every artifact it builds on, whichever cell made it first."""

    train_seconds: float | None
    """None where a part was made elsewhere, without a clock."""
    predict_seconds: float
    """For all test users."""
    parameters: float
    peak_gib: float | None = None
    """Of the whole process during that time; None where a part was made elsewhere."""


def make_cell(chain: Chain, cell: BenchCell) -> Artifact:
    """The cell of one method, data set and seed; kept where nothing it depends on has changed."""
    if cell.method in chain.config.variants:
        chain = chain.varied(cell.method)
    data, budget = chain.dataset, chain.config.predict.budget
    parents: dict[str, Artifact] = {}
    config: Frozen
    write: Callable[[Draft], Costs]
    if cell.method == MERIT or cell.method in chain.config.variants:
        generator_reads = ("items", "days") if chain.config.reads == "items" else ("prompt",)
        reads = (*generator_reads, *(READS["linear"] if chain.config.propensity.model.factors else ()))
        merit = MeritCellConfig(method=cell.method, reads=reads, budget=budget, length=chain.config.length)
        parents = {"propensity": chain.propensity(), "states": chain.states(), "generator": chain.corrected()}
        config, write = merit, lambda draft: write_merit(chain, draft, merit, **parents)
    elif cell.method in METHODS:
        reads, settings = READS.get(cell.method, ()), {"seconds": data.seconds, "text": data.text}
        baseline = BaselineCellConfig(method=cell.method, reads=reads, backbone=data.backbone, **settings)
        config, write = baseline, lambda draft: write_baseline(chain, draft, baseline)
    else:
        generator = chain.generator(cell.method)
        given = ("items", "days", *READS["linear"]) if reads_items(generator) else ("prompt",)
        ours = GeneratorCellConfig(method=cell.method, reads=given, budget=budget)
        parents = {"generator": generator, "predictions": chain.predictions(generator)}
        config, write = ours, lambda draft: write_generator(chain, draft, ours, **parents)
    every = parents | data.parents

    def make(out: Path) -> Artifact:
        with artifacts.writing(out, KIND, config=config, seed=cell.seed, parents=every) as draft:
            draft.summary |= vars(write(draft))
        return artifacts.load(out, KIND)

    folder = chain.folder / f"cell-{slug(cell.method)}"
    return make_unless_current(folder, cell.name, KIND, config, cell.seed, every, make)


def write_baseline(chain: Chain, draft: Draft, config: BaselineCellConfig) -> Costs:
    """Train a method for the time it has and write its lists for the test users."""
    world = chain.dataset.world.offered(config.reads)
    timings.reset_peak()
    with console.spinner(f"{config.method}: training for at most {config.seconds:g} s"):
        answer = method(config.method)(world, chain.seed)
    lists = [answer.predictions(config.method, chain.seed)]
    longest = int(answer.ranked.lengths().max(initial=0))
    if longest > BUDGET:  # the paper shows dual encoders at top 100, too
        lists.append(replace(lists[0], method=f"{config.method}, top {longest}", free=answer.ranked))
    _write_lists(draft, lists)
    if answer.scores:
        write_hits(draft.path / HITS, score_metrics(chain.dataset, answer.scores))
    summary = answer.summary
    draft.summary["training"] = summary
    return Costs(summary["train_seconds"], summary["predict_seconds"], summary["parameters"], timings.peak() / 2**30)


def write_generator(
    chain: Chain, draft: Draft, config: GeneratorCellConfig, generator: Artifact, predictions: Artifact
) -> Costs:
    """Copy the predictions of a generator, and time its decoding."""
    built_on = chain.before(generator)
    with console.spinner(f"timing {config.method}"):
        seconds = _decoding_time(chain, generator, DecodeConfig(max_labels=config.budget))
    for name in predictions.manifest.files:
        shutil.copyfile(predictions.file(name), draft.path / name)
    summary = generator.manifest.summary
    draft.summary["steps"] = summary["steps"]
    return Costs(chain.spent(*built_on), seconds, float(summary["parameters"]), peak_gib(*built_on))


def write_merit(
    chain: Chain, draft: Draft, config: MeritCellConfig, propensity: Artifact, states: Artifact, generator: Artifact
) -> Costs:
    """The ranking of the propensity model; its probabilities decide how long a free list is."""
    scorer = load_scorer(propensity, chain.dataset.labels)
    _, features = read_features(chain.dataset.corpus, states, "test")
    with console.spinner(f"ranking {len(features):,} users"):
        steps = scorer.labels if scorer.model.reads_states else 1
        seconds = _decoding_time(chain, generator, DecodeConfig(max_labels=steps, fixed_budget=True))
        clock = TimeBudget(chain.dataset.seconds)
        free, ranked = top_labels(scorer, features, config.budget, config.length)
        seconds += clock.used()
        _write_lists(draft, [Predictions(config.method, chain.seed, free, ranked)])
        write_hits(draft.path / HITS, score_metrics(chain.dataset, propensity_scores(scorer, features)))
    shutil.copyfile(propensity.file(RELIABILITY), draft.path / RELIABILITY)
    parameters = float(generator.manifest.summary["parameters"] + propensity.manifest.summary["parameters"])
    mined = [chain.mined(generator)] if scorer.model.reads_states else []
    built_on = [*chain.before(generator), *mined, states, propensity]
    return Costs(chain.spent(*built_on), seconds, parameters, peak_gib(*built_on))


def _decoding_time(chain: Chain, generator: Artifact, config: DecodeConfig) -> float:
    """Seconds to decode all test users, without loading."""
    data = chain.dataset
    trained = load_generator(generator, data.corpus, data.labels)
    inputs = trained.inputs(read_table(data.corpus, "test", *columns_of(generator, data.corpus)))
    clock = TimeBudget(data.seconds)
    trained.decode(inputs, config, chain.seed)
    return clock.used()


def _write_lists(draft: Draft, lists: list[Predictions]) -> None:
    for number, one in enumerate(lists):
        predictions.write(draft.path / f"predictions-{number}.parquet", one)


# --- metrics of scores, as what every user adds to them ---------------------------------------------------------------


def score_metrics(data: PreparedDataset, score: Scores) -> Metrics:
    """Hit@k of users for an interest, and recall of labels new to a user."""
    return ranking.measure_audiences(score, data.truth, data.shares) | ranking.measure_new_labels(score, data.truth)


def write_hits(file: Path, metrics: Metrics) -> None:
    """Write counts by user, under the key of their metric. The mean over verticals is computed again when read."""
    kept = {key: metric for key, metric in metrics.items() if key.vertical != MEAN}
    save_file({json.dumps(key): metric.columns.astype(np.uint32) for key, metric in kept.items()}, file)


def read_hits(file: Path) -> Metrics:
    """The metrics that `write_hits` kept, and the mean over verticals."""
    metrics: Metrics = {
        MetricKey(*json.loads(name)): Metric(counts.astype(np.float64)) for name, counts in load_file(file).items()
    }
    for share in SHARES:
        verticals = [metrics[key] for key in sorted(metrics) if key == hit_key(share, key.vertical) and key.vertical]
        if verticals:
            metrics[hit_key(share, MEAN)] = ranking.mean_of(verticals)
    return metrics
