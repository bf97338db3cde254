"""mine: a generator's own mistakes on the training examples, shard by shard, so that a stopped run goes on.

The artifact: mined.parquet, a row for each training example in order: whether it was asked about, mined labels, how
many samples said each, and how many said each gold label.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
import polars as pl

from merit.core import artifacts
from merit.core.artifacts import Artifact
from merit.core.ragged import Ragged, column_lists, list_column
from merit.core.types import Ints
from merit.engine.job import EngineConfig
from merit.engine.run import INLINE, make_parts, workplace
from merit.generator.mining import Mined, MiningConfig, drawn, keep_mistakes
from merit.generator.model import TOGETHER, read_labelled, sampling
from merit.generator.worker import Asked, Speaker, in_order, job_of, lists, rows_of, threads_of
from merit.labels.build import load_vectors


def mine(
    generator: Artifact,
    examples: Artifact,
    labels: Artifact,
    out: Path,
    config: MiningConfig,
    seed: int,
    decode_batch: int = TOGETHER,
    engine: EngineConfig = INLINE,
) -> Artifact:
    """Sample from the generator on training examples, all or some, and keep what is wrong."""
    asked = Asked(generator, examples, labels, config, seed, decode_batch, engine.device)
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
