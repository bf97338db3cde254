"""The stages of a run: each artifact is made unless it is current."""

from __future__ import annotations

import shutil
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from pydantic import BaseModel

from merit.core import artifacts, console, processes, timings
from merit.core.artifacts import Artifact
from merit.core.errors import ConfigError
from merit.core.timings import Timing


@dataclass(frozen=True)
class Stage:
    """How one artifact of a run is made."""

    kind: str
    parents: Mapping[str, str]
    """The stages it reads, by the name of the function's argument."""
    make: Callable[..., Artifact]
    settings: Callable[[Any], BaseModel]
    """The part of the run's settings that decides what is made."""
    options: tuple[str, ...] = ()
    """Settings that are handed to the function too, and decide only how fast or where."""
    inputs: Callable[[Any], Mapping[str, Any]] = lambda settings: {}
    """Fingerprints of raw files that it reads, from its settings."""


def make_all(stages: Mapping[str, Stage], config: Any, until: str | None = None) -> dict[str, Artifact]:
    """The artifacts of a run by stage, up to `until`; those that are missing or out of date are made."""
    if until and until not in stages:
        raise ConfigError(f"There is no stage '{until}' in this run. Stages, in order: {', '.join(stages)}.")
    made: dict[str, Artifact] = {}
    for name, stage in stages.items():
        settings, parents = stage.settings(config), {role: made[parent] for role, parent in stage.parents.items()}
        options = {option: getattr(config, option) for option in stage.options}
        make = partial(stage.make, **parents, config=settings, seed=config.seed, **options)
        made[name] = make_unless_current(
            config.out / name, name, stage.kind, settings, config.seed, parents, make, stage.inputs(settings)
        )
        if name == until:
            break
    return made


def make_unless_current(
    folder: Path,
    name: str,
    kind: str,
    settings: BaseModel,
    seed: int,
    parents: Mapping[str, Artifact],
    make: Callable[..., Artifact],
    inputs: Mapping[str, Any] | None = None,
) -> Artifact:
    """The artifact in `folder` if it is what `make(out=folder)` would write; otherwise it is made.

    Of processes that a launcher started, all train, and the main one makes everything else.
    """
    with processes.main_first(alone=kind != "generator"):
        if current := artifacts.current(folder, kind, settings, seed, parents, inputs or {}):
            artifacts.tidy(folder)  # a run was killed right after the folder got its name
            shutil.rmtree(checkpoints_of(folder), ignore_errors=True)  # or after its last checkpoint
            console.tell(f"{name}: unchanged, kept", stage=name, folder=str(folder), kept=True)
            return current
        resumed, begin = checkpoints_of(folder).exists(), time.perf_counter()
        timings.reset_peak()
        artifact = make(out=folder)
        seconds, digest = time.perf_counter() - begin, artifact.manifest.hash
        timing = Timing(stage=folder.name, hash=digest, seconds=round(seconds, 2), peak=timings.peak(), resumed=resumed)
        if not processes.number():  # of several processes that train together, the main one
            timings.note(folder.parent, timing)
    seconds = round(seconds, 1)
    console.tell(f"{name}: made in {seconds} s", stage=name, folder=str(folder), kept=False, seconds=seconds)
    return artifact


def checkpoints_of(folder: Path) -> Path:
    """Where the checkpoints of a training lie while its artifact is being made."""
    return folder.parent / f".{folder.name}.checkpoints"
