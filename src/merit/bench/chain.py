"""Our own chain for one data set and seed: generators, their mistakes, states, propensity. Each is made once.

    teacher forcing → mined → self-correction → mined again, states → propensity

A generator trains for as many steps as fit into its time: a short probe, which is an artifact too, tells how long a
step takes here. What everything took is kept in a ledger, so that a cell can say what all it builds on has cost.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import partial
from hashlib import sha256
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
from pydantic import BaseModel

from merit.baselines.fitting import TimeBudget
from merit.bench.cells import Peak, PreparedDataset
from merit.bench.config import BenchConfig, objective_of, slug
from merit.core import artifacts
from merit.core.artifacts import Artifact
from merit.core.config import digest
from merit.core.errors import ConfigError, TrainingError
from merit.core.stage import checkpoints_of, make_unless_current
from merit.core.types import Floats
from merit.generator.mine import mine
from merit.generator.mining import MiningConfig
from merit.generator.model import GeneratorConfig, ObjectiveConfig, train_generator
from merit.generator.predict import predict
from merit.propensity.states import write_states
from merit.propensity.train import train_propensity

C = TypeVar("C", bound=BaseModel)
WARM = 5  # steps of a probe that pay for caches and are not counted
LEDGER = "costs.jsonl"
STEP = "train/loss"  # what a training logs at every step


@dataclass(frozen=True)
class Chain:
    """One data set and seed in a folder of its own; nothing is made before a cell asks for it."""

    config: BenchConfig
    ground: PreparedDataset
    folder: Path
    seed: int
    variant: bool = False
    """Whether these are not the settings of the grid: what is the same is taken from it, all else has its own place."""
    _known: dict[str, Artifact | Exception] = field(default_factory=dict, repr=False)
    """What this process made or found already, and what failed: the next cell that needs it fails at once."""

    def varied(self, name: str) -> Chain:
        """The chain of a variant of MERIT."""
        return Chain(self.config.variant(name), self.ground, self.folder, self.seed, variant=True)

    def generator(self, method: str) -> Artifact:
        """The generator that is a method of the grid, trained for the whole budget."""
        train = self.training(method)
        return self._trained(train, self.config.shares.stage_2 if train.resolved().mined else 1.0)

    def corrected(self) -> Artifact:
        """MERIT's generator."""
        return self._trained(self.config.stage_2, self.config.shares.stage_2)

    def mined(self, generator: Artifact) -> Artifact:
        """The mistakes of a generator on the training examples."""
        return self._asked(generator, f"mined-{generator.path.name}", "mined", self._mining(), mine)

    def _mining(self) -> MiningConfig:
        """Of as many examples as self-correction will read: its steps are no faster than those of the first one."""
        shares, first = self.config.shares, self._first().manifest.summary["steps"]
        steps = self.config.steps or math.ceil(first * max(1.0, shares.stage_2 / shares.stage_1))
        return self.config.mining.of(self.config.stage_2.model_copy(update={"steps": steps}).reads)

    def predictions(self, generator: Artifact) -> Artifact:
        """What a generator says of the test users."""
        name = f"predictions-{generator.path.name}"
        return self._asked(generator, name, "predictions", self.config.predict, predict)

    def states(self) -> Artifact:
        """What the propensity model reads of all users, from MERIT's generator."""
        return self._asked(self.corrected(), "states", "states", self.config.states, write_states)

    def propensity(self) -> Artifact:
        """Trained on those states; its negatives are the mistakes of the same generator."""
        states, mined, labels = self.states(), self.mined(self.corrected()), self.ground.labels
        return self._made(
            "propensity",
            "propensity",
            self.config.propensity,
            {"states": states, "mined": mined, "labels": labels},
            lambda out: train_propensity(states, mined, labels, out, self.config.propensity, self.seed),
        )

    def training(self, method: str) -> ObjectiveConfig:
        """How the generator of a method is trained, but for the number of steps."""
        found = objective_of(method)
        if found is None:
            raise ConfigError(f"'{method}' is no generator of ours.")
        objective, beta = found
        how = self.config.stage_2 if objective == self.config.stage_2.objective else self.config.stage_1
        return how.model_copy(update={"objective": objective, "beta": beta})

    def spent(self, *made: Artifact) -> float | None:
        """Seconds of work that these artifacts took; none where one was brought here, and nobody knows.

        The log of a generator tells about one that was trained elsewhere, or in several goes.
        """
        told, total = self._ledger(), 0.0
        for each in made:
            entry = told.get(each.manifest.hash)
            if entry and not entry.get("went_on"):
                total += float(entry["seconds"])
            elif each.manifest.kind == "generator":
                total += step_seconds(each) * int(each.manifest.summary["steps"])
            else:
                return None
        return total

    def peak(self, *made: Artifact) -> float | None:
        """The most memory that the making of one of these took, where it is known."""
        told = self._ledger()
        found = [told.get(each.manifest.hash, {}).get("peak_gib") for each in made]
        return max((one for one in found if one is not None), default=None)

    def before(self, generator: Artifact) -> list[Artifact]:
        """A generator and what it was made from, without data and labels."""
        if "mined" not in generator.manifest.parents:
            return [generator]
        first = self._first()
        return [first, self.mined(first), generator]

    def _first(self) -> Artifact:
        """The generator whose mistakes self-correction learns from."""
        return self._trained(self.config.stage_1, self.config.shares.stage_1)

    def _trained(self, train: ObjectiveConfig, share: float) -> Artifact:
        mined = self.mined(self._first()) if train.resolved().mined else None
        steps = self.config.steps or self._steps(train, mined, share)
        return self._generator(f"{train.name}-{steps}", train.model_copy(update={"steps": steps}), mined)

    def _steps(self, train: ObjectiveConfig, mined: Artifact | None, share: float) -> int:
        """As many as fit into the time; two at least, between which the time can be told."""
        short = train.model_copy(update={"steps": self.config.probe})
        probe = self._generator(f"probe-{train.name}", short, mined)
        return max(2, int(share * self.config.seconds / step_seconds(probe)))

    def _generator(self, name: str, train: ObjectiveConfig, mined: Artifact | None) -> Artifact:
        ground = self.ground
        settings = GeneratorConfig(backbone=ground.backbone, text=ground.text, train=train)
        return self._made(
            name,
            "generator",
            settings,
            ground.shop | ({"mined": mined} if mined else {}),
            lambda out: train_generator(*ground.both, out, settings, self.seed, mined=mined),
        )

    def _asked(
        self,
        generator: Artifact,
        name: str,
        kind: str,
        settings: C,
        stage: Callable[[Artifact, Artifact, Artifact, Path, C, int], Artifact],
    ) -> Artifact:
        """What a stage makes of a trained generator."""
        parents = {"generator": generator} | self.ground.shop
        make = partial(stage, generator, *self.ground.both)
        return self._made(name, kind, settings, parents, lambda out: make(out, settings, self.seed))

    def _made(
        self,
        name: str,
        kind: str,
        settings: BaseModel,
        parents: Mapping[str, Artifact],
        make: Callable[[Path], Artifact],
    ) -> Artifact:
        if name not in self._known:
            try:
                self._known[name] = self._kept_or_made(name, kind, settings, parents, make)
            except Exception as error:
                self._known[name] = error
        found = self._known[name]
        if isinstance(found, Exception):
            raise found
        return found

    def _kept_or_made(
        self,
        name: str,
        kind: str,
        settings: BaseModel,
        parents: Mapping[str, Artifact],
        make: Callable[[Path], Artifact],
    ) -> Artifact:
        def timed(out: Path) -> Artifact:
            taken, peak, went_on = TimeBudget(self.config.seconds), Peak(), checkpoints_of(out).exists()
            made = make(out)
            self._enter(made, taken.used(), peak.gib(), went_on)
            return made

        title = f"{self.folder.parent.name}, seed {self.seed}, {name}"
        place = self._place(slug(name), kind, settings, parents)
        return make_unless_current(place, title, kind, settings, self.seed, parents, timed)

    def _place(self, name: str, kind: str, settings: BaseModel, parents: Mapping[str, Artifact]) -> Path:
        """Variants that agree on how something is made share it."""
        usual = self.folder / name
        if not self.variant or artifacts.current(usual, kind, settings, self.seed, parents, {}):
            return usual
        told = [digest(settings), *(parents[key].manifest.hash for key in sorted(parents))]
        return self.folder / "variants" / f"{name}-{sha256(' '.join(told).encode()).hexdigest()[:12]}"

    def _enter(self, made: Artifact, seconds: float, peak_gib: float | None, went_on: bool) -> None:
        """One line for each artifact; of one that was stopped and went on, the time since then."""
        told = {"hash": made.manifest.hash, "name": made.path.name, "seconds": round(seconds, 2), "peak_gib": peak_gib}
        told |= {"went_on": True} if went_on else {}
        with (self.folder / LEDGER).open("a", encoding="utf-8") as file:
            file.write(json.dumps(told, ensure_ascii=False) + "\n")

    def _ledger(self) -> dict[str, dict[str, Any]]:
        file = self.folder / LEDGER
        lines = file.read_text(encoding="utf-8").splitlines() if file.exists() else []
        return {told["hash"]: told for told in map(json.loads, lines)}


def step_seconds(generator: Artifact) -> float:
    """The usual time of a step, from the log of the training: a pause on the way is no part of it."""
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator  # type: ignore[import-untyped]

    log = EventAccumulator(str(generator.file("log")), size_guidance={"scalars": 0})
    log.Reload()
    times = [event.wall_time for event in log.Scalars(STEP)] if STEP in log.Tags()["scalars"] else []
    if len(times) < 2:  # stopped behind its last checkpoint: it went on without a step
        raise TrainingError(f"{generator.path} has no log of its steps. Remove the folder and run again.")
    counted = times[WARM:] if len(times) > 2 * WARM else times
    return trimmed_mean(np.diff(counted))


def trimmed_mean(taken: Floats) -> float:
    """Without the slowest twentieth: steps differ by the length of their prompts, and some wait for a neighbour."""
    return float(np.sort(taken)[: max(1, round(0.95 * len(taken)))].mean())
