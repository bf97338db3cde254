"""One small planted shop as a world, and a clock that ticks when it is looked at."""

from __future__ import annotations

from collections.abc import Callable
from itertools import count
from pathlib import Path

from merit.baselines.world import World, make_world
from merit.core import config
from merit.core.pipeline import run
from merit.core.ragged import Ragged
from merit.core.settings import RunConfig
from merit.data.planted import PlantedConfig, shop, write
from merit.data.texts import TextConfig
from merit.evaluation.evaluate import truth_of_test_users
from merit.generator.backbone import BackboneConfig

SECONDS = 60.0


def make_small(folder: Path) -> tuple[World, Ragged]:
    """The world, and the gold of its test users, which is not in it."""
    write(shop(PlantedConfig(users=300, events=30), seed=7), folder)
    values = {
        "reads": "text",  # some methods read prompts
        "out": str(folder / "run"),
        "cache": str(folder / "cache"),
        "source": {
            "kind": "tables",
            "interactions": f"{folder}/interactions.parquet",
            "items": f"{folder}/items.parquet",
        },
        "labels": {"encoder": "hashed"},
        "prepare": {"per_train_user": 2, "per_test_user": 4},
    }
    made = run(config.build(RunConfig, values), until="corpus")
    backbone = BackboneConfig(width=32, layers=1, heads=2, vocabulary=1400)
    world = make_world(made["corpus"], made["labels"], backbone, TextConfig(), SECONDS)
    return world, truth_of_test_users(made["corpus"], world.labels, world.vectors).gold


def ticking() -> Callable[[], float]:
    """A second at every look: what is done in time is then the same on every machine."""
    ticks = count()
    return lambda: float(next(ticks))
