"""predictions: the labels that a generator decodes for the test users, at free length and at equal budgets.

The artifact: one predictions file per way of reading the generator. Evaluation needs nothing else of it.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
import polars as pl
from pydantic import Field

from merit.core import artifacts
from merit.core.artifacts import Artifact
from merit.core.config import Frozen
from merit.core.ragged import Ragged, column_lists, head
from merit.engine.job import EngineConfig
from merit.engine.run import INLINE
from merit.evaluation import exposure_bias, predictions
from merit.evaluation.predictions import Predictions
from merit.generator.decoding import DecodeConfig
from merit.generator.exposure import after_prefixes
from merit.generator.mining import MiningConfig, keep_mistakes, sampling
from merit.generator.model import name_of
from merit.generator.worker import DecodeJob, GeneratorWorker, decoding, in_order, lists, read_rows


class PredictConfig(Frozen):
    """In which ways a generator is decoded for the test users."""

    budget: int = Field(20, ge=1)
    """Labels at equal budgets, and at most at free length."""
    likelihood: bool = True
    """Also rank labels by their probability as the first label: what the first position knows (docs/log.md)."""
    union: bool = True
    """Also the union of several samples: does length alone explain the gain?"""
    exposure: bool = True
    """Also continue targets that begin with gold labels, and with mistakes: the exposure-bias meter."""
    sampling: MiningConfig = MiningConfig()


def predict(job: DecodeJob[PredictConfig], out: Path, engine: EngineConfig = INLINE) -> Artifact:
    """The lists of every test example."""
    config, seed, name = job.config, job.seed, name_of(job.generator)
    rows = read_rows(job, "test", "gold", "later")
    with decoding("predictions", decode_rows, job, rows, out, engine) as (draft, parts):
        table = in_order(parts, np.arange(len(rows)))
        decoded = {column: column_lists(table[column]) for column in table.columns if column != "row"}
        methods = _methods(decoded, name, config, seed)
        for number, method in enumerate(methods):
            predictions.write(draft.path / f"predictions-{number}.parquet", method)
        if config.exposure:
            gold, mistakes = (Predictions(name, seed, decoded[f"after_{what}"]) for what in ("gold", "mistakes"))
            exposure_bias.write_continuations(draft.path, gold, mistakes, decoded["left"])
        draft.summary |= {
            "examples": len(rows),
            "methods": [method.method for method in methods],
            "labels_per_user": round(float(methods[0].free.lengths().mean()), 2),
        }
    return artifacts.load(out, "predictions")


def decode_rows(worker: GeneratorWorker[PredictConfig], rows: pl.DataFrame) -> pl.DataFrame:
    """All lists of some examples."""
    config, inputs = worker.job.config, worker.generator.inputs(rows)
    decoded = {
        "free": worker.decode(rows, inputs, DecodeConfig(max_labels=config.budget)),
        "ranked": worker.decode(rows, inputs, DecodeConfig(max_labels=config.budget, fixed_budget=True)),
    }
    if config.likelihood:
        beams = DecodeConfig(mode="beam", beams=config.budget, max_labels=1, fixed_budget=True)
        decoded["likely"] = worker.decode(rows, inputs, beams)
    if config.union or config.exposure:
        decoded["sampled"] = worker.decode(rows, inputs, sampling(config.sampling))
    if config.exposure:
        gold, later = (column_lists(rows[name]) for name in ("gold", "later"))
        mined = keep_mistakes(decoded["sampled"], gold, later, worker.vectors, config.sampling)
        continued = after_prefixes(worker.generator, gold, inputs, mined, worker.job.seed)
        decoded |= dict(zip(("after_gold", "after_mistakes", "left"), continued, strict=True))
    return lists(rows, **decoded)


def _methods(decoded: dict[str, Ragged], name: str, config: PredictConfig, seed: int) -> list[Predictions]:
    """The lists as those of methods: one way of reading the generator each."""
    free = decoded["free"]
    methods = [Predictions(name, seed, free, decoded["ranked"])]
    if config.likelihood:
        same_length = head(decoded["likely"], free.lengths())
        methods.append(Predictions(f"{name}, likelihood ranking", seed, same_length, decoded["likely"]))
    if config.union:
        union = _by_votes(decoded["sampled"])
        methods.append(Predictions(f"{name}, union of {config.sampling.samples} samples", seed, union))
    return methods


def _by_votes(sampled: Ragged) -> Ragged:
    """The different labels of all samples, the most frequent first, then those sampled first."""
    rows = []
    for row in range(len(sampled)):
        labels, first, votes = np.unique(sampled[row], return_index=True, return_counts=True)
        rows.append(labels[np.lexsort((first, -votes))].tolist())
    return Ragged.of(rows)
