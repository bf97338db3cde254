"""cells of a benchmark: what one method with one seed says of the test users, and what that cost.

    write_answer      a method of merit.baselines.methods, under the clock
    write_generator   a generator of our own, with the lists that `predict` made of it
    write_merit       the propensity model's order, on the states of a generator

The artifact: predictions-N.parquet, one for every way of reading the method; hits.safetensors, where it has
scores (what every user adds to Hit@k and to recall of new labels); costs in the manifest's summary.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path

import numpy as np
from safetensors.numpy import load_file, save_file

from merit.baselines.fitting import TimeBudget
from merit.baselines.methods import method
from merit.baselines.world import World, make_world
from merit.core import artifacts, console
from merit.core.artifacts import Artifact, Draft
from merit.core.config import Frozen
from merit.core.types import Floats
from merit.data.texts import TextConfig
from merit.evaluation import predictions, ranking
from merit.evaluation.classification import MetricKey, Metrics
from merit.evaluation.evaluate import truth_of_test_users
from merit.evaluation.predictions import BUDGET, Predictions, Truth
from merit.evaluation.ranking import MEAN, SHARES, Scores, hit_key
from merit.evaluation.uncertainty import Metric
from merit.generator.backbone import BackboneConfig
from merit.generator.decoding import DecodeConfig
from merit.generator.model import load_generator, read_examples
from merit.labels import space
from merit.labels.build import load_vectors
from merit.propensity.states import read_states
from merit.propensity.train import load_scorer
from merit.retrieval.build import vertical_shares
from merit.retrieval.ranking import LengthConfig, propensity_scores, top_labels

KIND = "cell"
HITS = "hits.safetensors"
RELIABILITY = "reliability.parquet"
MERIT = "MERIT"


class BaselineCellConfig(Frozen):
    """All that decides what a method of merit.baselines.methods says."""

    method: str
    seconds: float
    """For training, on this machine."""
    backbone: BackboneConfig = BackboneConfig()
    text: TextConfig = TextConfig()


class GeneratorCellConfig(Frozen):
    """A method of our own: all else is decided by the artifacts it reads."""

    method: str
    budget: int = BUDGET


class MeritCellConfig(GeneratorCellConfig):
    """The same, with the rule by which lists at free length end."""

    length: LengthConfig = LengthConfig()


@dataclass(frozen=True)
class Costs:
    """What a cell took. Training includes every artifact it builds on, whoever made them first."""

    train_seconds: float | None
    """None where a part was made elsewhere, by nobody's clock."""
    predict_seconds: float
    """For all test users."""
    parameters: float
    peak_gib: float | None = None
    """Of the whole process meanwhile; none where the system does not tell."""


@dataclass(frozen=True)
class PreparedDataset:
    """One data set, as all of its cells see it. What takes long is read once, when it is first needed."""

    examples: Artifact
    labels: Artifact
    backbone: BackboneConfig
    text: TextConfig
    seconds: float

    @cached_property
    def truth(self) -> Truth:
        """Gold and history of the test examples, over the whole label space."""
        return truth_of_test_users(self.examples, space.load(self.labels.path), load_vectors(self.labels))

    @cached_property
    def shares(self) -> Floats:
        """P(vertical | label), by what training users bought."""
        return vertical_shares(self.examples, space.load(self.labels.path))[0]

    @cached_property
    def world(self) -> World:
        """What methods of merit.baselines.methods are given; its test examples have no gold."""
        return make_world(self.examples, self.labels, self.backbone, self.text, self.seconds)

    @property
    def both(self) -> tuple[Artifact, Artifact]:
        """Examples, then labels: the order in which stages take them."""
        return self.examples, self.labels

    @property
    def shop(self) -> dict[str, Artifact]:
        """The same two, by the names that manifests have for parents."""
        return {"examples": self.examples, "labels": self.labels}

    def judged(self, score: Scores) -> Metrics:
        """Users for an interest, and what is new to a user."""
        return ranking.measure_audiences(score, self.truth, self.shares) | ranking.measure_new_labels(score, self.truth)

    def answer_config(self, method: str) -> BaselineCellConfig:
        """The settings of a method's cell on this data set."""
        return BaselineCellConfig(method=method, seconds=self.seconds, backbone=self.backbone, text=self.text)


def write_answer(ground: PreparedDataset, out: Path, config: BaselineCellConfig, seed: int) -> Artifact:
    """Train a method for the time it has and ask it about the test users."""
    world = ground.world
    with _writing(out, config, seed, ground.shop) as (draft, peak):
        with console.spinner(f"{config.method}: training for at most {config.seconds:g} s"):
            answer = method(config.method)(world, seed)
        said = [answer.predictions(config.method, seed)]
        if int(answer.ranked.lengths().max(initial=0)) > BUDGET:  # the paper shows dual encoders at top 100, too
            longest = int(answer.ranked.lengths().max())
            said.append(replace(said[0], method=f"{config.method}, top {longest}", free=answer.ranked))
        _write_lists(draft, said)
        if answer.scores:
            write_hits(draft.path / HITS, ground.judged(answer.scores))
        told = answer.summary
        costs = Costs(told["train_seconds"], told["predict_seconds"], told["parameters"], peak.gib())
        draft.summary |= {"told": told} | vars(costs)
    return artifacts.load(out, KIND)


def write_generator(
    ground: PreparedDataset,
    generator: Artifact,
    said: Artifact,
    out: Path,
    config: GeneratorCellConfig,
    seed: int,
    spent: float | None,
    peak_gib: float | None,
) -> Artifact:
    """`said` are the predictions of the generator; `spent` is the time of all its training, `peak_gib` its memory."""
    trained, settings = load_generator(generator, *ground.both)
    _, prompts = read_examples(ground.examples, "test", trained, settings)
    parents = {"generator": generator, "predictions": said} | ground.shop
    with _writing(out, config, seed, parents) as (draft, _):
        with console.spinner(f"timing {config.method}"):
            taken = TimeBudget(ground.seconds)
            trained.decode(prompts, DecodeConfig(max_labels=config.budget), seed)
            seconds = taken.used()
        for name in said.manifest.files:
            shutil.copyfile(said.file(name), draft.path / name)
        steps = generator.manifest.summary["steps"]
        costs = Costs(spent, seconds, float(generator.manifest.summary["parameters"]), peak_gib)
        draft.summary |= {"steps": steps} | vars(costs)
    return artifacts.load(out, KIND)


def write_merit(
    ground: PreparedDataset,
    propensity: Artifact,
    states: Artifact,
    generator: Artifact,
    out: Path,
    config: MeritCellConfig,
    seed: int,
    spent: float | None,
    peak_gib: float | None,
) -> Artifact:
    """The propensity model ranks, and its probabilities tell how long a free list is."""
    scorer = load_scorer(propensity, ground.labels)
    _, known = read_states(states, "test")
    trained, settings = load_generator(generator, *ground.both)
    _, prompts = read_examples(ground.examples, "test", trained, settings)
    parents = {"propensity": propensity, "states": states, "generator": generator} | ground.shop
    with _writing(out, config, seed, parents) as (draft, _):
        with console.spinner(f"ranking {len(known):,} users"):
            taken = TimeBudget(ground.seconds)
            trained.decode(prompts, DecodeConfig(max_labels=scorer.labels, fixed_budget=True), seed)
            users = scorer.users(known)
            free, ranked = top_labels(scorer, users, config.budget, config.length)
            seconds = taken.used()
            _write_lists(draft, [Predictions(config.method, seed, free, ranked)])
            write_hits(draft.path / HITS, ground.judged(propensity_scores(scorer, users)))
        shutil.copyfile(propensity.file(RELIABILITY), draft.path / RELIABILITY)
        parameters = float(generator.manifest.summary["parameters"] + propensity.manifest.summary["parameters"])
        draft.summary |= vars(Costs(spent, seconds, parameters, peak_gib))
    return artifacts.load(out, KIND)


def costs_of(cell: Artifact) -> Costs:
    """As the cell's manifest has them in its summary."""
    told = cell.manifest.summary
    return Costs(told["train_seconds"], told["predict_seconds"], told["parameters"], told["peak_gib"])


# --- figures of scores, as what every user adds to them ---------------------------------------------------------------


def write_hits(file: Path, found: Metrics) -> None:
    """Counts by user, under the name of their figure. The mean over verticals is put together again when read."""
    kept = {key: metric for key, metric in found.items() if key.vertical != MEAN}
    save_file({json.dumps(key): metric.columns.astype(np.uint32) for key, metric in kept.items()}, file)


def read_hits(file: Path) -> Metrics:
    """What `write_hits` kept, with the mean over verticals beside it again."""
    found: Metrics = {
        MetricKey(*json.loads(name)): Metric(counts.astype(np.float64)) for name, counts in load_file(file).items()
    }
    for share in SHARES:
        verticals = [found[key] for key in sorted(found) if key == hit_key(share, key.vertical) and key.vertical]
        if verticals:
            found[hit_key(share, MEAN)] = ranking.mean_of(verticals)
    return found


# --- writing ---------------------------------------------------------------------------------------------------------


class Peak:
    """The largest memory of this process since it was made, where the system can be asked (Linux)."""

    def __init__(self) -> None:
        try:
            Path("/proc/self/clear_refs").write_text("5")  # forget the peak so far
            self._known = True
        except OSError:
            self._known = False

    def gib(self) -> float | None:
        """In units of 2³⁰ bytes; none where the system cannot be asked."""
        if not self._known:
            return None
        lines = Path("/proc/self/status").read_text().splitlines()
        return float(next(line.split()[1] for line in lines if line.startswith("VmHWM"))) / 2**20


@contextmanager
def _writing(
    out: Path, config: BaselineCellConfig | GeneratorCellConfig, seed: int, parents: Mapping[str, Artifact]
) -> Iterator[tuple[Draft, Peak]]:
    with artifacts.writing(out, KIND, config=config, seed=seed, parents=parents) as draft:
        yield draft, Peak()


def _write_lists(draft: Draft, said: list[Predictions]) -> None:
    for number, each in enumerate(said):
        predictions.write(draft.path / f"predictions-{number}.parquet", each)
