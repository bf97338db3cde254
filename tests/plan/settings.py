"""The settings that the small run was made with, and the paper's."""

from __future__ import annotations

from pathlib import Path

from merit.core import config
from merit.core.settings import RunConfig
from tests.small_run import TEXT

PAPER = Path(__file__).parents[2] / "configs/paper.toml"


def settings(made: Path, *overrides: str) -> RunConfig:
    """Those of the small run that reads text."""
    tables = {name: str(made.parent / f"shop/{name}.parquet") for name in ("interactions", "items")}
    values = TEXT | {"source": {"kind": "tables", **tables}, "out": str(made), "cache": str(made.parent / "cache")}
    return config.build(RunConfig, values, overrides)
