"""What a method said after a prefix that was given to it: gold labels, or mistakes. Files beside its predictions."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import polars as pl

from merit.core.ragged import Ragged, list_column
from merit.evaluation import predictions
from merit.evaluation.exposure_bias import recall_lost
from merit.evaluation.predictions import Predictions, Truth
from merit.evaluation.uncertainty import Metric

AFTER_GOLD, AFTER_MISTAKES, LEFT = "after-gold.parquet", "after-mistakes.parquet", "left.parquet"


def write(folder: Path, after_gold: Predictions, after_mistakes: Predictions, left: Ragged) -> None:
    """`left`: by example, the golds still to be found; empty where there was no prefix."""
    predictions.write(folder / AFTER_GOLD, after_gold)
    predictions.write(folder / AFTER_MISTAKES, after_mistakes)
    column = list_column(left.values.astype(np.uint32), left.lengths())
    pl.DataFrame({"left": column}).write_parquet(folder / LEFT)


def lost(folder: Path, truth: Truth) -> tuple[tuple[str, int], Metric] | None:
    """(method, seed) and its recall after gold prefixes minus that after mistakes; none where it was not measured."""
    if not (folder / LEFT).exists():
        return None
    gold, wrong = (predictions.read(folder / name) for name in (AFTER_GOLD, AFTER_MISTAKES))
    left = Ragged.of(pl.read_parquet(folder / LEFT)["left"].to_list())
    return (gold.method, gold.seed), recall_lost(gold, wrong, replace(truth, gold=left))
