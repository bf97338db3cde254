"""Runs that may be refreshed, copied from those of the session, and logs that have grown."""

from __future__ import annotations

import shutil
from pathlib import Path

import polars as pl

TS = pl.col("timestamp")


def copy(run: Path, place: Path) -> Path:
    """A copy of a run that may be written to."""
    shutil.copytree(run, place / "run")
    return place / "run"


def tables(run: Path) -> tuple[pl.DataFrame, pl.DataFrame]:
    """The interactions and the items that a run was made of."""
    folder = run / "tables" if (run / "tables").exists() else run.parent / "shop"
    return pl.read_parquet(folder / "interactions.parquet"), pl.read_parquet(folder / "items.parquet")


def week(log: pl.DataFrame, back: int = 0) -> pl.DataFrame:
    """A further week: that of so many weeks before the last one, sold again."""
    last = log["timestamp"].max()
    end = last - pl.duration(days=7 * back)
    part = log.filter((end - pl.duration(days=7) < TS) & (end >= TS))
    return part.with_columns(
        TS + pl.duration(days=7 * (back + 1)), order_id=pl.format("{}-{}", "order_id", pl.lit(back))
    )


def given(place: Path, interactions: pl.DataFrame, items: pl.DataFrame) -> dict[str, str]:
    """Two tables as the source of a refresh."""
    place.mkdir(exist_ok=True)
    interactions.write_parquet(place / "grown.parquet")
    items.write_parquet(place / "grown-items.parquet")
    return {"interactions": str(place / "grown.parquet"), "items": str(place / "grown-items.parquet")}
