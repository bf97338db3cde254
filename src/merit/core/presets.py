"""Settings and runs of either preset: torch is imported where the standard one is asked for, and not before."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from merit.core import config as configs
from merit.core import console, extras
from merit.core.artifacts import Artifact
from merit.core.quick import QUICK_STAGES, with_tags
from merit.core.shared import SharedRun
from merit.core.stage import make_all

OF_THE_GENERATOR = (
    *(
        "devices",
        "trackers",
        "decode_batch",
        "backbone",
        "text",
        "reads",
        "item_generator",
        "stage_1",
        "mining",
        "stage_2",
    ),
    *("predict", "states", "propensity", "plan"),
)
"""Sections of a run that the quick preset does not read. A file may have them: the preset is one word in it."""


def load(file: Path, overrides: Sequence[str] = ()) -> SharedRun:
    """The settings in a file, with overrides such as `preset=quick`."""
    return build(configs.overridden(configs.read(file), overrides), str(file))


def build(values: dict[str, Any], origin: str = "settings") -> SharedRun:
    """The settings from plain values; those of the standard preset are a `RunConfig`."""
    if values.get("preset") != "quick":
        with extras.needed_by("The standard preset"):
            from merit.core.settings import RunConfig

        return configs.build(RunConfig, values, origin=origin)
    unread = [name for name in values if name in OF_THE_GENERATOR]
    if unread:
        console.tell(f"The quick preset has no generator and does not read: {', '.join(unread)}.", unread=unread)
    return configs.build(SharedRun, {name: values[name] for name in values if name not in unread}, origin=origin)


def run(config: SharedRun, until: str | None = None) -> dict[str, Artifact]:
    """The artifacts of the run by stage, up to `until`; those that are missing or out of date are made."""
    if config.preset == "quick":
        return make_all(with_tags(QUICK_STAGES, config), config, until)
    from merit.core import pipeline
    from merit.core.settings import RunConfig

    assert isinstance(config, RunConfig)
    return pipeline.run(config, until)
