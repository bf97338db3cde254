"""The settings that the small run was made with, and the paper's."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from merit.core import config
from merit.core.settings import RunConfig
from tests.small_run import TEXT

PAPER = Path(__file__).parents[2] / "configs/paper.toml"


def of_made(made: Path) -> dict[str, Any]:
    """What the small run has of its own: tables and places."""
    tables = {name: str(made.parent / f"shop/{name}.parquet") for name in ("interactions", "items")}
    return {"source": {"kind": "tables", **tables}, "out": str(made), "cache": str(made.parent / "cache")}


def settings(made: Path, *overrides: str) -> RunConfig:
    """Those of the small run that reads text."""
    return config.build(RunConfig, TEXT | of_made(made), overrides)
