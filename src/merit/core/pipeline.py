"""`merit run CONFIG`: every stage in order; an artifact that is finished and unchanged is kept.

Reading `STAGES` from top to bottom is reading the paper: examples, labels, a generator trained by teacher forcing, its
mistakes, a generator that learnt to recover from them, its mistakes and states, a propensity model over those, results.
A generator that reads items, the default, needs fewer (`stages_of`).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from merit.core import processes
from merit.core.artifacts import Artifact
from merit.core.quick import CORPUS, EXAMPLES, QUICK_STAGES, with_tags
from merit.core.settings import RunConfig
from merit.core.stage import Stage, make_all
from merit.data.corpus import build_corpus
from merit.evaluation.evaluate import evaluate
from merit.generator.items.train import train_items
from merit.generator.mining import mine
from merit.generator.predict import predict
from merit.generator.train import train_generator
from merit.generator.worker import check_device, decode_stage
from merit.labels.build import build_labels, labels_inputs
from merit.propensity.linear import train_factors
from merit.propensity.states import write_states
from merit.propensity.train import train_propensity
from merit.retrieval.build import write_model
from merit.retrieval.ranking import rank

LABELLED = EXAMPLES | {"labels": "labels"}
STAGE_1, STAGE_2 = ({"generator": name} | CORPUS for name in ("stage-1", "stage-2"))
SCORED = {"propensity": "propensity", "states": "states"} | STAGE_2
SECOND = {name: name for name in ("predictions-2", "ranking")}
PREDICTIONS = {"predictions-1": "predictions-1"} | SECOND
LEARNING = ("devices", "trackers")
DECODING = ("decode_batch", "engine")
# name: Stage(kind of artifact, its inputs by role, the function, its settings, options that decide nothing it makes)
STAGES: dict[str, Stage] = {
    "examples": QUICK_STAGES["examples"],
    "labels": Stage("labels", EXAMPLES, build_labels, lambda run: run.labels, ("cache",), labels_inputs),
    "corpus": Stage("corpus", LABELLED, build_corpus, lambda run: run.tokens),
    "data-report": QUICK_STAGES["data-report"],
    "factors": Stage("factors", CORPUS, train_factors, lambda run: run.factors),
    "stage-1": Stage("generator", CORPUS, train_generator, lambda run: run.generator(run.stage_1), LEARNING),
    "mined-1": Stage("mined", STAGE_1, decode_stage(mine), lambda run: run.mined, DECODING),
    "stage-2": Stage(
        "generator",
        CORPUS | {"mined": "mined-1"},
        train_generator,
        lambda run: run.generator(run.stage_2),
        LEARNING,
    ),
    "predictions-1": Stage("predictions", STAGE_1, decode_stage(predict), lambda run: run.predict, DECODING),
    "predictions-2": Stage("predictions", STAGE_2, decode_stage(predict), lambda run: run.predict, DECODING),
    "mined-2": Stage("mined", STAGE_2, decode_stage(mine), lambda run: run.mined, DECODING),
    "states": Stage("states", STAGE_2, decode_stage(write_states), lambda run: run.kept_states, DECODING),
    "propensity": Stage(
        "propensity",
        CORPUS | {"factors": "factors", "states": "states", "mined": "mined-2"},
        train_propensity,
        lambda run: run.propensity,
    ),
    "ranking": Stage("predictions", SCORED, rank, lambda run: run.ranking),
    "results": Stage("results", PREDICTIONS | CORPUS, evaluate, lambda run: run.evaluation),
    "model": Stage("model", SCORED | {"results": "results"}, write_model, lambda run: run.model),
}


def stages_of(config: RunConfig) -> Mapping[str, Stage]:
    """The stages of this run. The first tags items, where the run has a source of tags; the rest of them is its own."""
    return with_tags(_stages_of(config), config)


def _stages_of(config: RunConfig) -> dict[str, Stage]:
    """The stages behind the tags. The quick preset has few; a generator that reads items is trained once, on the factor
    model, and mistakes are mined where a scorer of states learns from them."""
    if config.preset == "quick":
        return QUICK_STAGES
    if config.reads == "text":
        return STAGES
    first, propensity = ("stage-1", "mined-1", "predictions-1"), STAGES["propensity"]
    left_out = first if config.propensity.model.states else (*first, "mined-2")
    read = {role: parent for role, parent in propensity.parents.items() if parent not in left_out}
    others = {
        "stage-2": Stage(
            "generator", CORPUS | {"factors": "factors"}, train_items, lambda run: run.item_generator, ("trackers",)
        ),
        "propensity": replace(propensity, parents=read),
        "results": replace(STAGES["results"], parents=SECOND | CORPUS),
    }
    return {name: others.get(name, stage) for name, stage in STAGES.items() if name not in left_out}


def run(config: RunConfig, until: str | None = None) -> dict[str, Artifact]:
    """The artifacts of the run by stage, up to `until`; those that are missing or out of date are made."""
    processes.check(config.devices)
    if config.engine.runner != "ray":  # a cluster has GPUs where this machine may have none
        check_device(config.engine.device)
    return make_all(stages_of(config), config, until)
