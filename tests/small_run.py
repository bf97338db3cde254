"""A run small enough to be made once for all tests that need a trained model: about ten seconds."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import polars as pl

import merit
from merit.core import config
from merit.core.pipeline import run
from merit.core.settings import RunConfig
from merit.data import planted

SMALL: dict[str, Any] = {
    "labels": {"encoder": "hashed"},
    "corpus": {"min_purchases": 4_000},  # by default 50,000: a factor model, and two of its folds, would learn from all
    "backbone": {"width": 16, "layers": 1, "heads": 2, "vocabulary": 1400},
    "stage_1": {"objective": "teacher-forcing", "steps": 3},
    "stage_2": {"steps": 3},
    "item_generator": {"network": {"width": 16, "layers": 1, "heads": 2}, "train": {"steps": 20}},
    "states": {"labels": 3},
    "propensity": {
        "model": {"labels": 2, "width": 16, "layers": 1, "heads": 2, "hidden": 24, "second": 8},
        "fit": {"epochs": 3},
    },
    "predict": {"exposure": False, "union": False, "likelihood": False},
    "evaluation": {"resamples": 100},
    "ranking": {"resamples": 100},
    "model": {"windows": {"sets": 4}},
}


def shop(place: Path, users: int, seed: int) -> dict[str, str]:
    """A planted shop's tables, as the source of a run."""
    planted.write(planted.shop(planted.PlantedConfig(users=users), seed), place / "shop")
    tables = {name: str(place / f"shop/{name}.parquet") for name in ("interactions", "items")}
    return {"kind": "tables", **tables}


TEXT: dict[str, Any] = SMALL | {"reads": "text"}
QUICK: dict[str, Any] = {name: SMALL[name] for name in ("labels", "evaluation", "ranking", "model")} | {"seed": 3}


def make_quick(place: Path) -> Path:
    """A quick model of the same shop, from frames. The folder of the run."""
    tables = shop(place, 160, 3)
    frames = (pl.read_parquet(tables[name]) for name in ("interactions", "items"))
    merit.fit(*frames, preset="quick", out=place / "run", cache=str(place / "cache"), **QUICK)
    return place / "run"


def make(place: Path, users: int = 160, values: dict[str, Any] = SMALL) -> Path:
    """All stages on a small shop. The folder of the run."""
    own = {"source": shop(place, users, 3), "out": str(place / "run"), "cache": str(place / "cache")}
    run(config.build(RunConfig, values | own))
    return place / "run"


def make_text(place: Path) -> Path:
    """The same with a language model that reads text."""
    return make(place, values=TEXT)
