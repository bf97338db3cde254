"""`merit run CONFIG`: all stages in order; what is finished and unchanged is not made again.

Reading `_STAGES` from top to bottom is reading the paper: examples, labels, a generator trained by teacher forcing, its
mistakes, a generator that learnt to recover from them, its mistakes and states, a propensity model over those, results.
"""

from __future__ import annotations

import shutil
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Literal, get_args

from pydantic import BaseModel, Field, model_validator

from merit.core import artifacts, console
from merit.core.artifacts import Artifact
from merit.core.config import Frozen
from merit.core.errors import ConfigError
from merit.core.timings import timed
from merit.data import sources
from merit.data.prepare import PrepareConfig, PrepareRun, prepare
from merit.data.report.build import DataReportConfig, write_data_report
from merit.engine.job import EngineConfig
from merit.evaluation.classification import EvaluationConfig
from merit.evaluation.evaluate import evaluate
from merit.generator import processes, worker
from merit.generator.backbone import BackboneConfig
from merit.generator.mine import mine
from merit.generator.mining import MiningConfig
from merit.generator.model import TOGETHER, GeneratorConfig, ObjectiveConfig, checkpoints_of, train_generator
from merit.generator.predict import PredictConfig, predict
from merit.generator.processes import DevicesConfig
from merit.generator.texts import TextConfig
from merit.labels.build import LabelsConfig, build_labels, labels_inputs
from merit.plan.config import PlanConfig
from merit.propensity.states import StatesConfig, write_states
from merit.propensity.train import PropensityRun, train_propensity
from merit.retrieval.build import ModelConfig, write_model
from merit.retrieval.ranking import RankingsConfig, rank

Stage = Literal[
    "examples",
    "labels",
    "data-report",
    "stage-1",
    "mined-1",
    "stage-2",
    "predictions-1",
    "predictions-2",
    "mined-2",
    "states",
    "propensity",
    "rankings",
    "results",
    "model",
]


PREDICTIONS: tuple[Stage, ...] = ("predictions-1", "predictions-2", "rankings")


class FirstStage(ObjectiveConfig):
    """Teacher forcing, unless told otherwise."""

    objective: str = "teacher-forcing"


class SecondStage(ObjectiveConfig):
    """Self-correction with the uniform temper unless told otherwise, whatever else of the section is given.

    It ranks far better than the paper's pooling, beta = 1: docs/decisions/0006-uniform-temper.md.
    """

    @model_validator(mode="before")
    @classmethod
    def _uniform(cls, given: Any) -> Any:
        if isinstance(given, dict) and given.get("objective", "self-correction") == "self-correction":
            return {"beta": 0.0} | given
        return given


class RunConfig(Frozen):
    """One file for the whole run. Every stage has its section."""

    seed: int = 7
    out: Path = Path("runs/merit")
    """The folder that gets one artifact folder per stage."""
    cache: Path = Path(".cache/merit")
    """Label vectors by content, shared between runs."""
    devices: DevicesConfig = DevicesConfig()
    decode_batch: int = Field(TOGETHER, ge=1)
    """Prompts decoded at a time. Lower it when memory is short: it decides nothing that is said."""
    engine: EngineConfig = EngineConfig()
    """Who builds examples, mines, predicts and looks at states: docs/cluster.md."""
    source: sources.Source
    prepare: PrepareConfig = PrepareConfig()
    labels: LabelsConfig = LabelsConfig()
    data_report: DataReportConfig = DataReportConfig()
    backbone: BackboneConfig = BackboneConfig()
    text: TextConfig = TextConfig()
    label_vectors: bool = False
    """Whether tokens that are whole labels start from their label vectors."""
    stage_1: FirstStage = FirstStage()
    mining: MiningConfig = MiningConfig()
    stage_2: SecondStage = SecondStage()
    predict: PredictConfig = PredictConfig()
    states: StatesConfig = StatesConfig()
    propensity: PropensityRun = PropensityRun()
    rankings: RankingsConfig = RankingsConfig()
    evaluation: EvaluationConfig = EvaluationConfig()
    model: ModelConfig = ModelConfig()
    plan: PlanConfig = PlanConfig()
    """What `merit plan` may assume. It decides nothing that is made."""

    @property
    def decoding(self) -> tuple[int, EngineConfig]:
        """How everybody is decoded; it decides nothing that is said."""
        return self.decode_batch, self.engine

    def generator(self, train: ObjectiveConfig) -> GeneratorConfig:
        """The settings of a generator that is trained so; all else is the same in both stages."""
        return GeneratorConfig(backbone=self.backbone, text=self.text, train=train, label_vectors=self.label_vectors)


def stage_named(name: str | None) -> Stage | None:
    """The stage of that name, or an error that lists them."""
    for known in get_args(Stage):
        if name == known:
            return known  # type: ignore[no-any-return]
    if name is None:
        return None
    raise ConfigError(f"There is no stage '{name}'. Stages, in order: {', '.join(get_args(Stage))}.")


def run(config: RunConfig, until: Stage | None = None) -> dict[Stage, Artifact]:
    """Make every artifact of the run that is missing or out of date, up to `until`."""
    processes.check(config.devices)
    if config.engine.runner != "ray":  # a cluster has GPUs where this machine may have none
        worker.check(config.engine.device)
    made: dict[Stage, Artifact] = {}
    for name, stage in _STAGES.items():
        made[name] = stage(config, made)
        if name == until:
            break
    return made


def _examples(config: RunConfig, made: Mapping[Stage, Artifact]) -> Artifact:
    settings = PrepareRun(source=config.source, prepare=config.prepare)
    inputs = sources.open_source(config.source).inputs
    return _unless_current(
        config,
        "examples",
        "examples",
        settings,
        {},
        lambda out: prepare(out, settings, config.seed, config.engine),
        inputs,
    )


def _labels(config: RunConfig, made: Mapping[Stage, Artifact]) -> Artifact:
    return _unless_current(
        config,
        "labels",
        "labels",
        config.labels,
        {"examples": made["examples"]},
        lambda out: build_labels(made["examples"], out, config.labels, config.seed, config.cache),
        labels_inputs(config.labels),
    )


def _data_report(config: RunConfig, made: Mapping[Stage, Artifact]) -> Artifact:
    return _unless_current(
        config,
        "data-report",
        "data-report",
        config.data_report,
        _shop(made),
        lambda out: write_data_report(made["examples"], made["labels"], out, config.data_report, config.seed),
    )


def _stage_1(config: RunConfig, made: Mapping[Stage, Artifact]) -> Artifact:
    settings = config.generator(config.stage_1)
    return _unless_current(
        config,
        "stage-1",
        "generator",
        settings,
        _shop(made),
        lambda out: train_generator(made["examples"], made["labels"], None, out, settings, config.seed, config.devices),
    )


def _mined(stage: Stage, name: Stage) -> Callable[[RunConfig, Mapping[Stage, Artifact]], Artifact]:
    def make(config: RunConfig, made: Mapping[Stage, Artifact]) -> Artifact:
        parents, settings = {"generator": made[stage]} | _shop(made), config.mining.of(config.stage_2.reads)
        return _unless_current(
            config,
            name,
            "mined",
            settings,
            parents,
            lambda out: mine(
                made[stage], made["examples"], made["labels"], out, settings, config.seed, *config.decoding
            ),
        )

    return make


def _stage_2(config: RunConfig, made: Mapping[Stage, Artifact]) -> Artifact:
    settings, parents = config.generator(config.stage_2), _shop(made) | {"mined": made["mined-1"]}
    return _unless_current(
        config,
        "stage-2",
        "generator",
        settings,
        parents,
        lambda out: train_generator(
            made["examples"], made["labels"], made["mined-1"], out, settings, config.seed, config.devices
        ),
    )


def _predictions(stage: Stage, name: Stage) -> Callable[[RunConfig, Mapping[Stage, Artifact]], Artifact]:
    def make(config: RunConfig, made: Mapping[Stage, Artifact]) -> Artifact:
        parents = {"generator": made[stage]} | _shop(made)
        return _unless_current(
            config,
            name,
            "predictions",
            config.predict,
            parents,
            lambda out: predict(
                made[stage], made["examples"], made["labels"], out, config.predict, config.seed, *config.decoding
            ),
        )

    return make


def _states(config: RunConfig, made: Mapping[Stage, Artifact]) -> Artifact:
    parents = {"generator": made["stage-2"]} | _shop(made)
    return _unless_current(
        config,
        "states",
        "states",
        config.states,
        parents,
        lambda out: write_states(
            made["stage-2"], made["examples"], made["labels"], out, config.states, config.seed, *config.decoding
        ),
    )


def _propensity(config: RunConfig, made: Mapping[Stage, Artifact]) -> Artifact:
    inputs = (made["states"], made["mined-2"], made["labels"])
    return _unless_current(
        config,
        "propensity",
        "propensity",
        config.propensity,
        {"states": made["states"], "mined": made["mined-2"], "labels": made["labels"]},
        lambda out: train_propensity(*inputs, out, config.propensity, config.seed),
    )


def _rankings(config: RunConfig, made: Mapping[Stage, Artifact]) -> Artifact:
    inputs = (made["propensity"], made["states"], made["stage-2"], made["examples"], made["labels"])
    return _unless_current(
        config,
        "rankings",
        "predictions",
        config.rankings,
        {"propensity": made["propensity"], "states": made["states"], "generator": made["stage-2"]} | _shop(made),
        lambda out: rank(*inputs, out, config.rankings, config.seed),
    )


def _results(config: RunConfig, made: Mapping[Stage, Artifact]) -> Artifact:
    said: dict[str, Artifact] = {name: made[name] for name in PREDICTIONS}
    return _unless_current(
        config,
        "results",
        "results",
        config.evaluation,
        said | _shop(made),
        lambda out: evaluate(said, made["examples"], made["labels"], out, config.evaluation, config.seed),
    )


def _model(config: RunConfig, made: Mapping[Stage, Artifact]) -> Artifact:
    inputs = (made["propensity"], made["states"], made["stage-2"], made["examples"], made["labels"], made["results"])
    names = ("propensity", "states", "generator", "examples", "labels", "results")
    return _unless_current(
        config,
        "model",
        "model",
        config.model,
        dict(zip(names, inputs, strict=True)),
        lambda out: write_model(*inputs, out, config.model, config.seed),
    )


_STAGES: dict[Stage, Callable[[RunConfig, Mapping[Stage, Artifact]], Artifact]] = {
    "examples": _examples,
    "labels": _labels,
    "data-report": _data_report,
    "stage-1": _stage_1,
    "mined-1": _mined("stage-1", "mined-1"),
    "stage-2": _stage_2,
    "predictions-1": _predictions("stage-1", "predictions-1"),
    "predictions-2": _predictions("stage-2", "predictions-2"),
    "mined-2": _mined("stage-2", "mined-2"),
    "states": _states,
    "propensity": _propensity,
    "rankings": _rankings,
    "results": _results,
    "model": _model,
}


def _shop(made: Mapping[Stage, Artifact]) -> dict[str, Artifact]:
    return {"examples": made["examples"], "labels": made["labels"]}


def _unless_current(
    config: RunConfig,
    name: Stage,
    kind: str,
    settings: BaseModel,
    parents: Mapping[str, Artifact],
    make: Callable[[Path], Artifact],
    inputs: Mapping[str, Any] | None = None,
) -> Artifact:
    timing = timed(make, config.out, name)
    return unless_current(config.out / name, name, kind, settings, config.seed, parents, timing, inputs)


def unless_current(
    folder: Path,
    name: str,
    kind: str,
    settings: BaseModel,
    seed: int,
    parents: Mapping[str, Artifact],
    make: Callable[[Path], Artifact],
    inputs: Mapping[str, Any] | None = None,
) -> Artifact:
    """What `folder` holds if it is just what `make` would write there; otherwise it is made.

    Of processes that a launcher began, all train, and the main one makes everything else.
    """
    with processes.main_first(alone=kind != "generator"):
        if found := artifacts.current(folder, kind, settings, seed, parents, inputs or {}):
            artifacts.tidy(folder)  # a run was killed right after it had given the folder its name
            shutil.rmtree(checkpoints_of(folder), ignore_errors=True)  # or after its last checkpoint
            console.tell(f"{name}: unchanged, kept", stage=name, folder=str(folder), kept=True)
            return found
        begin = time.perf_counter()
        made = make(folder)
    seconds = round(time.perf_counter() - begin, 1)
    console.tell(f"{name}: made in {seconds} s", stage=name, folder=str(folder), kept=False, seconds=seconds)
    return made
