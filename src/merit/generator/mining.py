"""What the generator says and should not have: its own mistakes, kept as mined labels.

A mined label is one that was sampled, is not gold, and does not mean the same as a gold label: near-synonyms of the
truth must never be shown to the model as mistakes.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from pydantic import Field

from merit.core.config import Frozen
from merit.core.ragged import Ragged, offsets_of
from merit.core.seeds import stream
from merit.core.types import Floats, Ints


class MiningConfig(Frozen):
    """How often the generator is asked, and which of its answers count as mistakes."""

    examples: int | None = Field(None, ge=1)
    """Training examples that are asked about, drawn by lot. By default `merit run` asks about as many as stage 2 will
    read: the mistakes on all others would cost time, and nobody would see them."""
    samples: int = Field(4, ge=1)
    """The paper sees a plateau beyond 4."""
    temperature: float = Field(1.0, gt=0)
    max_labels: int = Field(12, ge=1)
    """Of one sample: a model that does not know when to stop must not fill the mined set with one user."""
    max_similarity: float = Field(0.6, gt=0, le=1)
    """Below the 0.7 of soft matching: paraphrases of the truth never become mistakes."""

    def of(self, examples: int) -> MiningConfig:
        """Of so many examples, unless the settings say of how many."""
        return self if self.examples else self.model_copy(update={"examples": examples})


@dataclass(frozen=True)
class Mined:
    """By example that was asked about: its mistakes. The report goes into the artifact's summary."""

    labels: Ragged
    counts: NDArray[np.int32]
    """Beside labels.values: how many samples said it."""
    hits: NDArray[np.int32]
    """Beside the values of gold: how many samples said it."""
    report: dict[str, float]


def drawn(examples: int, config: MiningConfig, seed: int) -> Ints:
    """Which of so many examples are asked about, ascending."""
    if config.examples is None or config.examples >= examples:
        return np.arange(examples)
    return np.sort(stream(seed, "mining").permutation(examples)[: config.examples])


def keep_mistakes(sampled: Ragged, gold: Ragged, later: Ragged, vectors: Floats, config: MiningConfig) -> Mined:
    """`sampled`: by example, all labels of all samples, repeats included."""
    n_labels = len(vectors)
    example = np.repeat(np.arange(len(sampled)), sampled.lengths())
    keys, counts = np.unique(example * n_labels + sampled.values, return_counts=True)
    is_gold = np.isin(keys, _keys(gold, n_labels))
    alike = _alike(keys // n_labels, keys % n_labels, gold, vectors, config.max_similarity) & ~is_gold
    kept = ~is_gold & ~alike
    mined, times = keys[kept], counts[kept]
    sizes = np.bincount(mined // n_labels, minlength=len(sampled))
    early = np.isin(mined, _keys(later, n_labels))
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
    return Mined(labels, times.astype(np.int32), _times(keys, counts, _keys(gold, n_labels)), report)


def _times(keys: Ints, counts: Ints, wanted: Ints) -> NDArray[np.int32]:
    """The count of every wanted key, 0 where it is not among the sorted keys."""
    place = np.minimum(np.searchsorted(keys, wanted), max(0, len(keys) - 1))
    if not len(keys):
        return np.zeros(len(wanted), np.int32)
    return np.where(keys[place] == wanted, counts[place], 0).astype(np.int32)


def _keys(lists: Ragged, n_labels: int) -> Ints:
    return np.repeat(np.arange(len(lists)), lists.lengths()) * n_labels + lists.values


def _alike(example: Ints, label: Ints, gold: Ragged, vectors: Floats, limit: float) -> NDArray[np.bool_]:
    """Whether a label is closer than `limit` to any gold label of its example. Pairs are compared in blocks."""
    found = np.zeros(len(label), dtype=bool)
    block = 200_000
    for at in range(0, len(label), block):
        part = slice(at, at + block)
        golds, sizes = gold.take(example[part])
        own = np.repeat(np.arange(len(sizes)), sizes)
        close = np.einsum("nd,nd->n", vectors[label[part]][own], vectors[golds]) > limit
        found[part] = np.bincount(own, weights=close, minlength=len(sizes)) > 0
    return found
