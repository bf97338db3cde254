"""mine: a generator's own mistakes on the training examples, part by part, so that a stopped run goes on.

The artifact: mined.parquet, a row for each training example in order: mined labels, how many samples said each, and
how many said each gold label.
"""

from __future__ import annotations

import shutil
from pathlib import Path

import numpy as np
import polars as pl

from merit import artifacts, console
from merit.artifacts import Artifact
from merit.data.ragged import Ragged, list_column
from merit.mining import MiningConfig, keep_mistakes
from merit.stages.generator import TOGETHER, Generator, load_generator, read_examples, sampling
from merit.stages.labels import load_vectors

PART = 2_000  # examples decoded between two commits


def mine(
    generator: Artifact,
    examples: Artifact,
    labels: Artifact,
    out: Path,
    config: MiningConfig,
    seed: int,
    together: int = TOGETHER,
) -> Artifact:
    """Sample from the generator on every training example and keep what is wrong."""
    trained, settings = load_generator(generator, examples, labels, together)
    text, prompts = read_examples(examples, "train", trained, settings)
    parents = {"generator": generator, "examples": examples, "labels": labels}
    finished = out.parent / f".{out.name}.parts-{generator.manifest.hash[:12]}"
    with artifacts.writing(out, "mined", config=config, seed=seed, parents=parents) as draft:
        sampled = _sample_all(trained, prompts, config, seed, finished)
        mined = keep_mistakes(sampled, text.gold, text.later, load_vectors(labels), config)
        table = {
            "labels": list_column(mined.labels.values.astype(np.uint32), mined.labels.lengths()),
            "counts": list_column(mined.counts.astype(np.uint32), mined.labels.lengths()),
            "hits": list_column(mined.hits.astype(np.uint32), text.gold.lengths()),
        }
        pl.DataFrame(table).write_parquet(draft.path / "mined.parquet")
        draft.summary |= mined.report
    shutil.rmtree(finished, ignore_errors=True)
    return artifacts.load(out, "mined")


def _sample_all(trained: Generator, prompts: Ragged, config: MiningConfig, seed: int, finished: Path) -> Ragged:
    """Every part is committed under its number; those already there are read."""
    finished.mkdir(parents=True, exist_ok=True)
    how = sampling(config)
    rows: list[list[int]] = []
    starts = range(0, len(prompts), PART)
    for start in console.track(starts, "mining", total=len(starts)):
        file = finished / f"{start:09}.parquet"
        if not file.exists():
            said = trained.decode(prompts.part(start, min(start + PART, len(prompts))), how, seed, first=start)
            _commit(said, file)
        rows += pl.read_parquet(file)["labels"].to_list()
    return Ragged.of(rows)


def _commit(said: Ragged, file: Path) -> None:
    draft = file.with_suffix(".tmp")
    labels = list_column(said.values.astype(np.uint32), said.lengths())
    pl.DataFrame({"labels": labels}).write_parquet(draft)
    draft.rename(file)
