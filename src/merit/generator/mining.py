"""mined: a generator's own mistakes on the training examples.

A mined label is one that was sampled, is not gold, and does not mean the same as a gold label: near-synonyms of the
truth must never be shown to the model as mistakes.

The artifact: mined.parquet, a row for each training example in order: whether it was sampled, mined labels, in how many
samples each was, and in how many samples each gold label was.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np
import polars as pl
from numpy.typing import NDArray
from pydantic import Field

from merit.core import artifacts
from merit.core.artifacts import Artifact
from merit.core.config import Frozen
from merit.core.errors import DataError
from merit.core.ragged import Ragged, column_lists, counts_of, list_column, offsets_of, pair_keys
from merit.core.seeds import stream
from merit.core.types import Floats, Ints
from merit.engine.job import EngineConfig
from merit.engine.run import INLINE
from merit.generator.decoding import DecodeConfig
from merit.generator.worker import DecodeJob, GeneratorWorker, decoding, in_order, lists, read_rows
from merit.labels.build import load_vectors


class MiningConfig(Frozen):
    """How often the generator is sampled, and which of its labels count as mistakes."""

    examples: int | None = Field(None, ge=1)
    """Training examples that are sampled, drawn at random. By default `merit run` samples as many as stage 2 will read:
    mistakes on the others would never be used."""
    samples: int = Field(4, ge=1)
    """The paper sees a plateau beyond 4."""
    temperature: float = Field(1.0, gt=0)
    max_labels: int = Field(12, ge=1)
    """Of one sample: a model that does not know when to stop must not fill the mined set with one user."""
    max_similarity: float = Field(0.6, gt=0, le=1)
    """Below soft matching: paraphrases of the truth never become mistakes. Of 83 judged pairs below it, one means the
    same (docs/evaluation.md)."""

    def of(self, examples: int) -> MiningConfig:
        """The same with a number of examples, unless one is set."""
        return self if self.examples else self.model_copy(update={"examples": examples})


@dataclass(frozen=True)
class Mined:
    """Mistakes by example that was sampled. The report goes into the artifact's summary."""

    labels: Ragged
    counts: NDArray[np.int32]
    """Beside labels.values: in how many samples it was."""
    hits: NDArray[np.int32]
    """Beside the values of gold: in how many samples it was."""
    report: dict[str, float]


def mine(job: DecodeJob[MiningConfig], out: Path, engine: EngineConfig = INLINE) -> Artifact:
    """The mistakes of a generator on training examples, all or some."""
    rows = read_rows(job, "train", "gold", "later")
    drawn = draw_examples(len(rows), job.config, job.seed)
    gold, later = (column_lists(rows[name]) for name in ("gold", "later"))
    with decoding("mined", sample, job, rows[drawn], out, engine) as (draft, parts):
        sampled = column_lists(in_order(parts, drawn)["labels"])
        mined = keep_mistakes(sampled, gold.gather(drawn), later.gather(drawn), load_vectors(job.labels), job.config)
        _table(mined, drawn, gold).write_parquet(draft.path / "mined.parquet")
        draft.summary |= mined.report
    return artifacts.load(out, "mined")


def sample(worker: GeneratorWorker[MiningConfig], rows: pl.DataFrame) -> pl.DataFrame:
    """All labels of all samples, repeats included."""
    return lists(rows, labels=worker.decode(rows, worker.generator.inputs(rows), sampling(worker.job.config)))


def sampling(config: MiningConfig) -> DecodeConfig:
    """How mistakes are provoked: several samples of each prompt."""
    return DecodeConfig(
        mode="sample", samples=config.samples, temperature=config.temperature, max_labels=config.max_labels
    )


def draw_examples(examples: int, config: MiningConfig, seed: int) -> Ints:
    """Which of so many examples are sampled, ascending."""
    if config.examples is None or config.examples >= examples:
        return np.arange(examples)
    return np.sort(stream(seed, "mining").permutation(examples)[: config.examples])


def keep_mistakes(sampled: Ragged, gold: Ragged, later: Ragged, vectors: Floats, config: MiningConfig) -> Mined:
    """`sampled`: by example, all labels of all samples, repeats included."""
    n_labels = len(vectors)
    golds = pair_keys(gold, n_labels)
    keys, counts = np.unique(pair_keys(sampled, n_labels), return_counts=True)
    is_gold = np.isin(keys, golds)
    alike = _alike(keys // n_labels, keys % n_labels, gold, vectors, config.max_similarity) & ~is_gold
    kept = ~is_gold & ~alike
    mined, times = keys[kept], counts[kept]
    sizes = np.bincount(mined // n_labels, minlength=len(sampled))
    early = np.isin(mined, pair_keys(later, n_labels))
    report = {
        "examples": len(sampled),
        "sampled": int(counts.sum()),
        "distinct": len(keys),
        "gold": int(is_gold.sum()),
        "look_alikes": int(alike.sum()),
        "mined": len(mined),
        "mined_per_example": round(len(mined) / max(1, len(sampled)), 2),
        "examples_without": int((sizes == 0).sum()),
        "later_bought": int(early.sum()),
        "later_bought_share": round(float(early.mean()) if len(early) else 0.0, 4),
    }
    labels = Ragged(offsets_of(sizes), (mined % n_labels).astype(np.int32))
    return Mined(labels, times.astype(np.int32), counts_of(golds, keys, counts.astype(np.int32)), report)


@artifacts.opens
def read_mined(mined: Artifact, examples: int) -> pl.DataFrame:
    """The table of mined labels: a row for each of so many training examples."""
    table = pl.read_parquet(mined.file("mined.parquet"))
    if len(table) != examples:
        raise DataError(f"{mined.path} was mined from {len(table)} examples, but there are {examples}. Mine again.")
    return table


def _alike(example: Ints, label: Ints, gold: Ragged, vectors: Floats, limit: float) -> NDArray[np.bool_]:
    """Whether a label is closer than `limit` to any gold label of its example. Pairs are compared in blocks."""
    alike = np.zeros(len(label), dtype=bool)
    block = 200_000
    for at in range(0, len(label), block):
        part = slice(at, at + block)
        golds, sizes = gold.take(example[part])
        owner = np.repeat(np.arange(len(sizes)), sizes)
        close = np.einsum("nd,nd->n", vectors[label[part]][owner], vectors[golds]) > limit
        alike[part] = np.bincount(owner, weights=close, minlength=len(sizes)) > 0
    return alike


def _table(mined: Mined, drawn: Ints, gold: Ragged) -> pl.DataFrame:
    """A row for each example; those that were not sampled have no mined labels."""
    sampled, sizes = np.zeros(len(gold), bool), np.zeros(len(gold), np.int64)
    sampled[drawn], sizes[drawn] = True, mined.labels.lengths()
    hits = np.zeros(len(gold.values), np.uint32)
    hits[np.repeat(sampled, gold.lengths())] = mined.hits
    return pl.DataFrame(
        {
            "sampled": sampled,
            "labels": list_column(mined.labels.values.astype(np.uint32), sizes),
            "counts": list_column(mined.counts.astype(np.uint32), sizes),
            "hits": list_column(hits, gold.lengths()),
        }
    )
