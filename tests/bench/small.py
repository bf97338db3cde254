"""A grid small enough to be run in a test: one planted shop, half of whose users are asked."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from merit.bench.config import BenchConfig
from merit.core import config
from tests.small_run import SMALL, shop

OURS = ("labels", "backbone", "item_generator", "states", "propensity", "evaluation")


def values(place: Path, groups: list[dict[str, Any]]) -> dict[str, Any]:
    """The settings of a grid over a planted shop in `place`, as a TOML file would have them."""
    prepare = {"split": {"test": 0.5}, "per_train_user": 2}
    return {name: SMALL[name] for name in OURS} | {
        "out": str(place / "bench"),
        "results": str(place / "results"),
        "cache": str(place / "cache"),
        "seconds": 5,
        "steps": 3,
        "datasets": {"planted": {"source": shop(place, 140, 3), "prepare": prepare}},
        "groups": groups,
        "mining": {"samples": 1},
        "predict": {"exposure": False, "union": False, "likelihood": False},
    }


def settings(place: Path, groups: list[dict[str, Any]], *overrides: str) -> BenchConfig:
    return config.build(BenchConfig, values(place, groups), overrides)
