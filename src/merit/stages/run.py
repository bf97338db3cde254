"""`merit run CONFIG`: all stages in order; what is finished and unchanged is not made again."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Literal

from pydantic import BaseModel

from merit import artifacts, console
from merit.artifacts import Artifact
from merit.config import Frozen
from merit.data import sources
from merit.stages.data_report import DataReportConfig, write_data_report
from merit.stages.labels import LabelsConfig, build_labels, labels_inputs
from merit.stages.prepare import PrepareConfig, PrepareRun, prepare

Stage = Literal["examples", "labels", "data-report"]


class RunConfig(Frozen):
    """One file for the whole run. Every stage has its section."""

    seed: int = 7
    out: Path = Path("runs/merit")
    """The folder that gets one artifact folder per stage."""
    cache: Path = Path(".cache/merit")
    """Label vectors by content, shared between runs."""
    source: sources.Source
    prepare: PrepareConfig = PrepareConfig()
    labels: LabelsConfig = LabelsConfig()
    data_report: DataReportConfig = DataReportConfig()


def run(config: RunConfig, until: Stage | None = None) -> dict[str, Artifact]:
    """Make every artifact of the run that is missing or out of date, up to `until`."""
    made: dict[str, Artifact] = {}
    for name, stage in _STAGES.items():
        made[name] = stage(config, made)
        if name == until:
            break
    return made


def _examples(config: RunConfig, made: Mapping[str, Artifact]) -> Artifact:
    settings = PrepareRun(source=config.source, prepare=config.prepare)
    inputs = sources.open_source(config.source).inputs
    return _unless_current(
        config, "examples", settings, {}, inputs, lambda folder: prepare(folder, settings, config.seed)
    )


def _labels(config: RunConfig, made: Mapping[str, Artifact]) -> Artifact:
    parents = {"examples": made["examples"]}
    return _unless_current(
        config,
        "labels",
        config.labels,
        parents,
        labels_inputs(config.labels),
        lambda folder: build_labels(made["examples"], folder, config.labels, config.seed, config.cache),
    )


def _data_report(config: RunConfig, made: Mapping[str, Artifact]) -> Artifact:
    parents = {"examples": made["examples"], "labels": made["labels"]}
    return _unless_current(
        config,
        "data-report",
        config.data_report,
        parents,
        {},
        lambda folder: write_data_report(made["examples"], made["labels"], folder, config.data_report, config.seed),
    )


_STAGES: dict[Stage, Callable[[RunConfig, Mapping[str, Artifact]], Artifact]] = {
    "examples": _examples,
    "labels": _labels,
    "data-report": _data_report,
}


def _unless_current(
    config: RunConfig,
    kind: Stage,
    settings: BaseModel,
    parents: Mapping[str, Artifact],
    inputs: Mapping[str, Any],
    make: Callable[[Path], Artifact],
) -> Artifact:
    folder = config.out / kind
    if found := artifacts.current(folder, kind, settings, config.seed, parents, inputs):
        console.tell(f"{kind}: unchanged, kept", stage=kind, folder=str(folder), kept=True)
        return found
    begin = time.perf_counter()
    made = make(folder)
    seconds = round(time.perf_counter() - begin, 1)
    console.tell(f"{kind}: made in {seconds} s", stage=kind, folder=str(folder), kept=False, seconds=seconds)
    return made
