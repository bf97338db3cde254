"""predict: what a generator says about the test users, at free length and at equal budgets.

The artifact: one predictions file per way of reading the generator. Evaluation needs nothing else of it.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
from pydantic import Field

from merit import artifacts, console
from merit.artifacts import Artifact
from merit.config import Frozen
from merit.data.ragged import Ragged
from merit.evaluation import predictions
from merit.evaluation.predictions import Predictions
from merit.generator.decode import DecodeConfig
from merit.mining import MiningConfig, keep_mistakes
from merit.stages.generator import TOGETHER, Generator, load_generator, read_examples, sampling
from merit.stages.labels import load_vectors
from merit.stages.prefixes import write_continuations


class PredictConfig(Frozen):
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
    together: int = TOGETHER,
) -> Artifact:
    """Decode every test example and write the lists."""
    trained, settings = load_generator(generator, examples, labels, together)
    asked, prompts = read_examples(examples, "test", trained, settings)
    name = settings.train.name
    parents = {"generator": generator, "examples": examples, "labels": labels}
    with artifacts.writing(out, "predictions", config=config, seed=seed, parents=parents) as draft:
        with console.spinner(f"decoding {len(prompts):,} test examples"):
            sampled = trained.decode(prompts, sampling(config.sampling), seed)
            said = _all(trained, prompts, sampled, name, config, seed)
            if config.exposure:
                mined = keep_mistakes(sampled, asked.gold, asked.later, load_vectors(labels), config.sampling)
                write_continuations(draft.path, trained, asked, prompts, mined, name, seed)
        for number, each in enumerate(said):
            predictions.write(draft.path / f"predictions-{number}.parquet", each)
        draft.summary |= {
            "examples": len(prompts),
            "methods": [each.method for each in said],
            "labels_per_user": round(float(said[0].free.lengths().mean()), 2),
        }
    return artifacts.load(out, "predictions")


def _all(
    trained: Generator, prompts: Ragged, sampled: Ragged, name: str, config: PredictConfig, seed: int
) -> list[Predictions]:
    free = trained.decode(prompts, DecodeConfig(max_labels=config.budget), seed)
    ranked = trained.decode(prompts, DecodeConfig(max_labels=config.budget, fixed_budget=True), seed)
    found = [Predictions(name, seed, free, ranked)]
    if config.likelihood:
        beams = DecodeConfig(mode="beam", beams=config.budget, max_labels=1, fixed_budget=True)
        likely = trained.decode(prompts, beams, seed)
        own_length = predictions.head(likely, free.lengths())  # as many as it chose to say, in another order
        found.append(Predictions(f"{name}, by likelihood", seed, own_length, likely))
    if config.union:
        found.append(Predictions(f"{name}, union of {config.sampling.samples} samples", seed, _by_votes(sampled)))
    return found


def _by_votes(sampled: Ragged) -> Ragged:
    """The different labels of all samples, those said most often first, then those said first."""
    rows = []
    for row in range(len(sampled)):
        labels, first, votes = np.unique(sampled[row], return_index=True, return_counts=True)
        rows.append(labels[np.lexsort((first, -votes))].tolist())
    return Ragged.of(rows)
