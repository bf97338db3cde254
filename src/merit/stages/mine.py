"""mine: a generator's own mistakes on the training examples, shard by shard, so that a stopped run goes on.

The artifact: mined.parquet, a row for each training example in order: whether it was asked about, mined labels, how
many samples said each, and how many said each gold label.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
import polars as pl

from merit import artifacts
from merit.artifacts import Artifact
from merit.data.ragged import Ragged, column_lists, list_column
from merit.engine.config import EngineConfig
from merit.engine.run import HERE, make_parts, workplace
from merit.mining import Mined, MiningConfig, drawn, keep_mistakes
from merit.stages.asking import Asked, Speaker, in_order, job_of, lists, rows_of, threads_of
from merit.stages.generator import TOGETHER, read_labelled, sampling
from merit.stages.labels import load_vectors
from merit.types import Ints


def mine(
    generator: Artifact,
    examples: Artifact,
    labels: Artifact,
    out: Path,
    config: MiningConfig,
    seed: int,
    together: int = TOGETHER,
    engine: EngineConfig = HERE,
) -> Artifact:
    """Sample from the generator on training examples, all or some, and keep what is wrong."""
    asked = Asked(generator, examples, labels, config, seed, together, engine.device)
    speaker = Speaker(asked)
    text = read_labelled(examples, "train", speaker.shop)
    parents = {"generator": generator, "examples": examples, "labels": labels}
    with (
        threads_of(engine) as settled,
        workplace(out, settled) as place,
        artifacts.writing(out, "mined", config=config, seed=seed, parents=parents) as draft,
    ):
        some = drawn(len(text), config, seed)
        parts = make_parts(job_of("mining", asked, sample), rows_of(text)[some], place, settled, speaker)
        sampled = column_lists(in_order(parts, some)["labels"])
        mined = keep_mistakes(sampled, text.gold.gather(some), text.later.gather(some), load_vectors(labels), config)
        _table(mined, some, text.gold).write_parquet(draft.path / "mined.parquet")
        draft.summary |= mined.report
    return artifacts.load(out, "mined")


def _table(mined: Mined, some: Ints, gold: Ragged) -> pl.DataFrame:
    """A row for each example; of those that were not asked about, nothing was said."""
    asked, sizes = np.zeros(len(gold), bool), np.zeros(len(gold), np.int64)
    asked[some], sizes[some] = True, mined.labels.lengths()
    hits = np.zeros(len(gold.values), np.uint32)
    hits[np.repeat(asked, gold.lengths())] = mined.hits
    return pl.DataFrame(
        {
            "asked": asked,
            "labels": list_column(mined.labels.values.astype(np.uint32), sizes),
            "counts": list_column(mined.counts.astype(np.uint32), sizes),
            "hits": list_column(hits, gold.lengths()),
        }
    )


def sample(speaker: Speaker, rows: pl.DataFrame) -> pl.DataFrame:
    """All labels of all samples, repeats included."""
    config = speaker.asked.config
    assert isinstance(config, MiningConfig)
    return lists(rows, labels=speaker.said(rows, speaker.prompts(rows), sampling(config)))
