"""Our own chain for one data set and seed: each part is made once, when a cell first needs it.

    factor model → generator that reads items → likely labels → propensity
    teacher forcing → mined → self-correction → mined again, states → propensity          with reads = "text"

A generator of text trains for as many steps as fit into its time: a short probe, which is an artifact too, tells how
long a step takes here. Timings beside the artifacts tell what all that a cell builds on has cost.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import cached_property, partial
from hashlib import sha256
from pathlib import Path

import numpy as np
from pydantic import BaseModel

from merit.baselines.world import World, make_world
from merit.bench.config import BenchConfig, objective_of, slug
from merit.core import artifacts, timings, tracking
from merit.core.artifacts import Artifact
from merit.core.config import digest
from merit.core.errors import ConfigError, TrainingError
from merit.core.stage import make_unless_current
from merit.core.timings import Timing
from merit.core.types import Floats
from merit.data.texts import TextConfig
from merit.engine.run import INLINE
from merit.evaluation.evaluate import truth_of_test_users
from merit.evaluation.predictions import Truth
from merit.generator.backbone import BackboneConfig
from merit.generator.items.model import NAMES
from merit.generator.items.prefixes import Prefixes
from merit.generator.items.train import train_items
from merit.generator.mining import MiningConfig, mine
from merit.generator.model import GeneratorConfig, ObjectiveConfig, reads_items
from merit.generator.predict import predict
from merit.generator.train import train_generator
from merit.generator.worker import decode_stage
from merit.labels import space
from merit.labels.build import load_vectors
from merit.propensity.linear import FactorsRun, train_factors
from merit.propensity.states import write_states
from merit.propensity.states_model import PropensityConfig
from merit.propensity.train import train_propensity
from merit.retrieval.verticals import vertical_shares

StageFunction = Callable[..., Artifact]  # of its parents by name, out, config and seed
WARM = 5  # steps of a probe that pay for caches and are not counted
STEP = "train/loss"  # what a training logs at every step


@dataclass(frozen=True)
class PreparedDataset:
    """One data set, as all of its cells see it. What takes long is read once, when it is first needed."""

    corpus: Artifact
    labels: Artifact
    backbone: BackboneConfig
    text: TextConfig
    seconds: float

    @cached_property
    def truth(self) -> Truth:
        """Gold and history of the test examples, over the whole label space."""
        return truth_of_test_users(self.corpus, space.load(self.labels.path), load_vectors(self.labels))

    @cached_property
    def shares(self) -> Floats:
        """P(vertical | label), by what training users bought."""
        return vertical_shares(self.corpus, space.load(self.labels.path))[0]

    @cached_property
    def world(self) -> World:
        """What methods of merit.baselines.methods are given; its test examples have no gold."""
        return make_world(self.corpus, self.labels, self.backbone, self.text, self.seconds)

    @property
    def parents(self) -> dict[str, Artifact]:
        """Corpus and labels, by the names that manifests have for parents."""
        return {"corpus": self.corpus, "labels": self.labels}


@dataclass(frozen=True)
class Chain:
    """One data set and seed in a folder of its own; nothing is made before a cell asks for it."""

    config: BenchConfig
    dataset: PreparedDataset
    folder: Path
    seed: int
    variant: bool = False
    """Whether settings differ from those of the grid: artifacts that are made alike are shared, others kept apart."""
    _results: dict[str, Artifact | Exception] = field(default_factory=dict, repr=False)
    """Artifacts by name, and failures: the next cell that needs a failed one fails at once."""

    def varied(self, name: str) -> Chain:
        """The chain of a variant of MERIT."""
        return Chain(self.config.variant(name), self.dataset, self.folder, self.seed, variant=True)

    def generator(self, method: str) -> Artifact:
        """The generator that is a method of the grid; one of text is trained for the whole budget."""
        if kinds := [kind for kind, name in NAMES.items() if name == method]:
            return self._items(kinds[0])
        train = self.training(method)
        return self._trained(train, self.config.shares.stage_2 if train.resolved().mined else 1.0)

    def corrected(self) -> Artifact:
        """MERIT's generator."""
        if self.config.reads == "items":
            return self._items(self.config.item_generator.train.prefixes)
        return self._trained(self.config.stage_2, self.config.shares.stage_2)

    def mined(self, generator: Artifact) -> Artifact:
        """The mistakes of a generator on the training examples."""
        return self._of(generator, f"mined-{generator.path.name}", "mined", self._mining(), mine)

    def _mining(self) -> MiningConfig:
        """Of as many examples as self-correction will read: its steps are no faster than those of the first one."""
        if self.config.reads == "items":
            return self.config.mining.of(self.config.stage_2.reads)
        shares, first = self.config.shares, self._first().manifest.summary["steps"]
        steps = self.config.steps or math.ceil(first * max(1.0, shares.stage_2 / shares.stage_1))
        return self.config.mining.of(self.config.stage_2.model_copy(update={"steps": steps}).reads)

    def predictions(self, generator: Artifact) -> Artifact:
        """The lists of a generator for the test users."""
        return self._of(generator, f"predictions-{generator.path.name}", "predictions", self.config.predict, predict)

    def factors(self) -> Artifact:
        """The factor model."""
        propensity = self.config.propensity
        size = propensity.model.factors or PropensityConfig().factors  # what the generator starts from is always there
        settings = FactorsRun(size=size, fit=propensity.factors, folds=2 if self.config.reads == "items" else 0)
        return self._made("factors", "factors", settings, self.dataset.parents, train_factors)

    def states(self) -> Artifact:
        """The likely labels of all users, from MERIT's generator, and its states where they are read."""
        kept = {} if self.config.propensity.model.states else {"labels": 0}
        settings = self.config.states.model_copy(update=kept)
        return self._of(self.corrected(), "states", "states", settings, write_states)

    def propensity(self) -> Artifact:
        """MERIT's scorer; one of states has the mistakes of the same generator among its negatives."""
        parents = self.dataset.parents | {"factors": self.factors(), "states": self.states()}
        if self.config.propensity.model.states:
            parents["mined"] = self.mined(self.corrected())
        return self._made("propensity", "propensity", self.config.propensity, parents, train_propensity)

    def training(self, method: str) -> ObjectiveConfig:
        """How the generator of a method is trained, but for the number of steps."""
        parsed = objective_of(method)
        if parsed is None:
            raise ConfigError(f"'{method}' is no generator of ours.")
        objective, beta = parsed
        how = self.config.stage_2 if objective == self.config.stage_2.objective else self.config.stage_1
        return how.model_copy(update={"objective": objective, "beta": beta})

    def spent(self, *made: Artifact) -> float | None:
        """Seconds that these artifacts took; None where one was made elsewhere and its time is unknown.

        The log of a generator gives the time of one that was trained elsewhere, or in several sessions.
        """
        total = 0.0
        for artifact in made:
            timing = timing_of(artifact)
            if timing and not timing.resumed:
                total += timing.seconds
            elif artifact.manifest.kind == "generator" and not reads_items(artifact):
                total += step_seconds(artifact) * int(artifact.manifest.summary["steps"])
            else:
                return None
        return total

    def before(self, generator: Artifact) -> list[Artifact]:
        """A generator and what it was made from, without data and labels."""
        if reads_items(generator):
            return [self.factors(), generator]
        if "mined" not in generator.manifest.parents:
            return [generator]
        first = self._first()
        return [first, self.mined(first), generator]

    def _items(self, prefixes: Prefixes) -> Artifact:
        """The generator that reads items, trained on such prefixes."""
        train = self.config.item_generator.train.model_copy(update={"prefixes": prefixes})
        settings = self.config.item_generator.model_copy(update={"train": train})
        parents = self.dataset.parents | {"factors": self.factors()}
        return self._made(settings.name, "generator", settings, parents, train_items)

    def _first(self) -> Artifact:
        """The generator whose mistakes self-correction learns from."""
        return self._trained(self.config.stage_1, self.config.shares.stage_1)

    def _trained(self, train: ObjectiveConfig, share: float) -> Artifact:
        """A generator of as many steps as fit into the time; at least two, so that a step's time can be measured."""
        parents = self.dataset.parents | ({"mined": self.mined(self._first())} if train.resolved().mined else {})

        def trained(name: str, steps: int) -> Artifact:
            short = train.model_copy(update={"steps": steps})
            settings = GeneratorConfig(backbone=self.dataset.backbone, text=self.dataset.text, train=short)
            return self._made(name, "generator", settings, parents, train_generator)

        if not (steps := self.config.steps):
            probe = trained(f"probe-{train.name}", self.config.probe)
            steps = max(2, int(share * self.config.seconds / step_seconds(probe)))
        return trained(f"{train.name}-{steps}", steps)

    def _of(self, generator: Artifact, name: str, kind: str, settings: BaseModel, stage: StageFunction) -> Artifact:
        """What a stage that decodes makes of a generator."""
        parents = {"generator": generator} | self.dataset.parents
        return self._made(name, kind, settings, parents, partial(decode_stage(stage), engine=INLINE))

    def _made(
        self, name: str, kind: str, settings: BaseModel, parents: Mapping[str, Artifact], stage: StageFunction
    ) -> Artifact:
        """What a stage makes of its parents, kept or made; a failure is remembered and raised again."""
        if name not in self._results:
            title = f"{self.folder.parent.name}, seed {self.seed}, {name}"
            try:
                folder = self._folder(slug(name), kind, settings, parents)
                make = partial(stage, **parents, config=settings, seed=self.seed)
                self._results[name] = make_unless_current(folder, title, kind, settings, self.seed, parents, make)
            except Exception as error:
                self._results[name] = error
        result = self._results[name]
        if isinstance(result, Exception):
            raise result
        return result

    def _folder(self, name: str, kind: str, settings: BaseModel, parents: Mapping[str, Artifact]) -> Path:
        """The folder of an artifact; variants that make it in the same way share it."""
        shared = self.folder / name
        if not self.variant or artifacts.current(shared, kind, settings, self.seed, parents, {}):
            return shared
        parts = [digest(settings), *(parents[key].manifest.hash for key in sorted(parents))]
        return self.folder / "variants" / f"{name}-{sha256(' '.join(parts).encode()).hexdigest()[:12]}"


def timing_of(artifact: Artifact) -> Timing | None:
    """What it took to make an artifact, if that was noted beside it."""
    timing = timings.read(artifact.path.parent).get(artifact.path.name)
    return timing if timing and timing.hash == artifact.manifest.hash else None


def peak_gib(*made: Artifact) -> float | None:
    """The highest memory that making one of these took, where it is known."""
    return max((timing.peak / 2**30 for artifact in made if (timing := timing_of(artifact))), default=None)


def step_seconds(generator: Artifact) -> float:
    """The usual time of a step, from the log of the training: a pause on the way is no part of it."""
    times = [figure.time for figure in tracking.read(generator.path, STEP)]
    if len(times) < 2:  # stopped behind its last checkpoint: it went on without a step
        raise TrainingError(f"{generator.path} has no log of its steps. Remove the folder and run again.")
    taken = np.sort(np.diff(times[WARM:] if len(times) > 2 * WARM else times))
    # without the slowest twentieth: steps differ by the length of their prompts, and some wait for a neighbour
    return float(taken[: max(1, round(0.95 * len(taken)))].mean())
