"""Labels by what a person types, and how often each was met. Blocked labels have no status to be found by."""

from __future__ import annotations

import shlex
from pathlib import Path
from typing import Literal

import polars as pl

from merit.labels.names import normalise
from merit.labels.space import LabelSpace

Findable = Literal["live", "retired"]


def search(space: LabelSpace, typed: str, status: Findable) -> pl.DataFrame:
    """Rows of the space's table: labels that begin so, then labels with words that do; the most frequent first."""
    table = space.table.filter(pl.col("status") == status)
    key = normalise(typed)
    if key:
        padded = pl.concat_str(pl.lit(" "), "key")
        words = pl.all_horizontal(padded.str.contains(f" {word}", literal=True) for word in key.split())
        begins = pl.col("key").str.starts_with(key)
        table = table.with_columns(begins=begins).filter(begins | words)
        return table.sort("begins", "count", "id", descending=[True, True, False]).drop("begins")
    return table.sort("count", "id", descending=[True, False])


def listed(found: pl.DataFrame, histories: pl.Series) -> pl.DataFrame:
    """Labels in words: users who had it (`histories`: a list of label ids of each user), events of training users."""
    had = histories.explode().drop_nulls().cast(pl.UInt32).alias("id").value_counts(name="users")
    counted = found.join(had, on="id", how="left", maintain_order="left")
    return counted.select(
        pl.col("text").alias("interest"),
        pl.col("users").fill_null(0),
        pl.col("count").alias("events"),
        "vertical",
        pl.col("status").cast(pl.String),
    )


def nothing(typed: str, status: Findable, folder: Path) -> str:
    """What to say where none was found."""
    if normalise(typed):
        ask = shlex.join(["merit", "model", "audience", str(folder), typed])
        return f"No {status} interest has words that begin like '{typed}'. Any phrase can be asked for: `{ask}`."
    return f"There are no {status} interests in {folder}."
