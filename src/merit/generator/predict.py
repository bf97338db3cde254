"""predict: what a generator says about the test users, at free length and at equal budgets.

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
from merit.core.ragged import Ragged, column_lists
from merit.engine.job import EngineConfig
from merit.engine.run import INLINE, make_parts, workplace
from merit.evaluation import exposure_bias, predictions
from merit.evaluation.predictions import Predictions
from merit.generator.decoding import DecodeConfig
from merit.generator.exposure import after_prefixes
from merit.generator.mining import MiningConfig, keep_mistakes
from merit.generator.model import TOGETHER, read_labelled, sampling
from merit.generator.worker import Asked, Speaker, in_order, job_of, lists, rows_of, threads_of


class PredictConfig(Frozen):
    """In which ways a generator is asked about the test users."""

    budget: int = Field(20, ge=1)
    """Labels at equal budgets, and at most at free length."""
    likelihood: bool = True
    """Also rank labels by their probability as the first label: what the first position knows (docs/log.md)."""
    union: bool = True
    """Also the union of several samples: does length alone explain the gain?"""
    exposure: bool = True
    """Also continue targets that begin with gold labels, and with mistakes: the exposure-bias meter."""
    sampling: MiningConfig = MiningConfig()


def predict(
    generator: Artifact,
    examples: Artifact,
    labels: Artifact,
    out: Path,
    config: PredictConfig,
    seed: int,
    decode_batch: int = TOGETHER,
    engine: EngineConfig = INLINE,
) -> Artifact:
    """Decode every test example and write the lists."""
    asked = Asked(generator, examples, labels, config, seed, decode_batch, engine.device)
    speaker = Speaker(asked)
    tested = read_labelled(examples, "test", speaker.shop)
    name, rows = speaker.settings.train.name, rows_of(tested, gold=tested.gold, later=tested.later)
    parents = {"generator": generator, "examples": examples, "labels": labels}
    with (
        threads_of(engine) as settled,
        workplace(out, settled) as place,
        artifacts.writing(out, "predictions", config=config, seed=seed, parents=parents) as draft,
    ):
        parts = make_parts(job_of("decoding test examples", asked, answer), rows, place, settled, speaker)
        table = in_order(parts, np.arange(len(tested)))
        found = {column: column_lists(table[column]) for column in table.columns if column != "row"}
        said = _methods(found, name, config, seed)
        for number, each in enumerate(said):
            predictions.write(draft.path / f"predictions-{number}.parquet", each)
        if config.exposure:
            gold, mistakes = (Predictions(name, seed, found[f"after_{what}"]) for what in ("gold", "mistakes"))
            exposure_bias.write_continuations(draft.path, gold, mistakes, found["left"])
        draft.summary |= {
            "examples": len(tested),
            "methods": [each.method for each in said],
            "labels_per_user": round(float(said[0].free.lengths().mean()), 2),
        }
    return artifacts.load(out, "predictions")


def answer(speaker: Speaker, rows: pl.DataFrame) -> pl.DataFrame:
    """Everything that is asked about some examples."""
    config = speaker.asked.config
    assert isinstance(config, PredictConfig)
    prompts = speaker.prompts(rows)
    said = {
        "free": speaker.said(rows, prompts, DecodeConfig(max_labels=config.budget)),
        "ranked": speaker.said(rows, prompts, DecodeConfig(max_labels=config.budget, fixed_budget=True)),
    }
    if config.likelihood:
        beams = DecodeConfig(mode="beam", beams=config.budget, max_labels=1, fixed_budget=True)
        said["likely"] = speaker.said(rows, prompts, beams)
    if config.union or config.exposure:
        said["sampled"] = speaker.said(rows, prompts, sampling(config.sampling))
    if config.exposure:
        gold, later = (column_lists(rows[name]) for name in ("gold", "later"))
        mined = keep_mistakes(said["sampled"], gold, later, speaker.vectors, config.sampling)
        continued = after_prefixes(speaker.trained, gold, prompts, mined, speaker.asked.seed)
        said |= dict(zip(("after_gold", "after_mistakes", "left"), continued, strict=True))
    return lists(rows, **said)


def _methods(found: dict[str, Ragged], name: str, config: PredictConfig, seed: int) -> list[Predictions]:
    """The lists as those of methods: one way of reading the generator each."""
    free = found["free"]
    said = [Predictions(name, seed, free, found["ranked"])]
    if config.likelihood:
        own_length = predictions.head(found["likely"], free.lengths())  # as many as it chose to say, in another order
        said.append(Predictions(f"{name}, by likelihood", seed, own_length, found["likely"]))
    if config.union:
        union = _by_votes(found["sampled"])
        said.append(Predictions(f"{name}, union of {config.sampling.samples} samples", seed, union))
    return said


def _by_votes(sampled: Ragged) -> Ragged:
    """The different labels of all samples, those said most often first, then those said first."""
    rows = []
    for row in range(len(sampled)):
        labels, first, votes = np.unique(sampled[row], return_index=True, return_counts=True)
        rows.append(labels[np.lexsort((first, -votes))].tolist())
    return Ragged.of(rows)
