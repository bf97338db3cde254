"""The stages of the quick preset, in order. Nothing here imports torch."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from merit.core.shared import SharedRun
from merit.core.stage import Stage
from merit.data.corpus import build_corpus
from merit.data.prepare import prepare
from merit.data.report.build import write_data_report
from merit.data.sources import open_source
from merit.evaluation.evaluate import evaluate
from merit.labels.build import build_labels, labels_inputs
from merit.labels.tagging.build import build_tags, needed, tags_inputs
from merit.propensity.quick import train_quick
from merit.retrieval.build import write_quick_model
from merit.retrieval.ranking import rank_quick

EXAMPLES = {"examples": "examples"}
CORPUS = {"corpus": "corpus", "labels": "labels"}
SCORED = {"propensity": "propensity"} | CORPUS
READERS = ("examples", "data-report")  # of tags, where there are some
QUICK_STAGES: dict[str, Stage] = {
    "examples": Stage(
        "examples", {}, prepare, lambda run: run.examples, ("engine",), lambda given: open_source(given.source).inputs
    ),
    "labels": Stage("labels", EXAMPLES, build_labels, lambda run: run.quick_labels, ("cache",), labels_inputs),
    "corpus": Stage("corpus", EXAMPLES | {"labels": "labels"}, build_corpus, lambda run: run.quick_corpus),
    "data-report": Stage("data-report", EXAMPLES | CORPUS, write_data_report, lambda run: run.data_report),
    "propensity": Stage("propensity", CORPUS, train_quick, lambda run: run.quick),
    "ranking": Stage("predictions", SCORED, rank_quick, lambda run: run.ranking),
    "results": Stage("results", {"ranking": "ranking"} | CORPUS, evaluate, lambda run: run.evaluation),
    "model": Stage("model", SCORED | {"results": "results"}, write_quick_model, lambda run: run.model),
}
TAGS = Stage("tags", {}, build_tags, lambda run: run.tagging, ("cache",), tags_inputs)


def with_tags(stages: Mapping[str, Stage], config: SharedRun) -> Mapping[str, Stage]:
    """The stages, behind one that tags items where the run has a source of tags."""
    if not needed(config.tagging):
        return stages
    readers = {name: replace(stages[name], parents={**stages[name].parents, "tags": "tags"}) for name in READERS}
    return {"tags": TAGS} | {name: readers.get(name, stage) for name, stage in stages.items()}
