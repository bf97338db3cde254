"""Which examples are read in which step, and by which of several processes: functions of the seed alone.

Examples with prompts of like length share a batch, so that little is padded. Those of some fifty batches are sorted
together, which leaves enough of the shuffle.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray
from pydantic import Field

from merit.core.seeds import stream
from merit.generator.patching import Schedule
from merit.objective.collate import CollateConfig, Corpus

POOL = 50  # batches whose examples are sorted by length together: little padding, still a shuffle

Plan = Callable[[int], tuple[int, NDArray[np.int64]]]


class BatchConfig(CollateConfig):
    """How much is read, and what together."""

    steps: int = Field(240, ge=1)
    """Minutes on two cores. What is ranked with the states is no better for more: docs/decisions/0011-one-recipe.md."""
    batch_size: int = Field(64, ge=1)
    accumulate: int = Field(1, ge=1)
    """Batches per step. Halve the batch and double this when memory runs out: the result is nearly the same."""

    @property
    def reads(self) -> int:
        """Examples that are read in all."""
        return self.steps * self.batch_size * self.accumulate


def epoch_batches(lengths: NDArray[np.int64], size: int, epoch: int, seed: int) -> list[NDArray[np.int64]]:
    """All examples once, in batches of like length, in an order of this epoch's own."""
    rng = stream(seed, "order", epoch)
    order = rng.permutation(len(lengths))
    pools = [order[at : at + size * POOL] for at in range(0, len(order), size * POOL)]
    by_length = np.concatenate([pool[np.argsort(lengths[pool], kind="stable")] for pool in pools])
    batches = [by_length[at : at + size] for at in range(0, len(by_length), size)]
    return [batches[place] for place in rng.permutation(len(batches))]


def plan_batches(corpus: Corpus, config: BatchConfig, seed: int, schedule: Schedule) -> Plan:
    """Number of a micro-batch → its epoch and its examples."""
    lengths = (corpus.patched or corpus.prompts).lengths()
    all_examples = passes(np.arange(len(corpus)), lengths, config.batch_size, seed)
    only = [step for step in range(config.steps) if schedule(step / config.steps).only]
    pooled = np.flatnonzero(corpus.patched.some()) if corpus.patched else np.zeros(0, np.int64)
    if not only or not len(pooled):
        return all_examples
    return passes(pooled, lengths, config.batch_size, seed, all_examples, only[0] * config.accumulate)


def passes(
    rows: NDArray[np.int64],
    lengths: NDArray[np.int64],
    size: int,
    seed: int,
    before: Plan | None = None,
    first: int = 0,
) -> Plan:
    """Epoch after epoch over these rows, from micro-batch `first` on, and by the plan `before` up to there."""
    per_epoch = math.ceil(len(rows) / size)
    earlier = before(first - 1)[0] + 1 if before and first else 0  # epochs: what is drawn in one is never drawn again

    @lru_cache(2)  # a step may end one epoch and begin the next
    def batches(epoch: int) -> list[NDArray[np.int64]]:
        return [rows[batch] for batch in epoch_batches(lengths[rows], size, earlier + epoch, seed)]

    def planned(number: int) -> tuple[int, NDArray[np.int64]]:
        if before and number < first:
            return before(number)
        epoch, place = divmod(number - first, per_epoch)
        return earlier + epoch, batches(epoch)[place]

    return planned


def share_of(examples: NDArray[np.int64], number: int, count: int) -> tuple[NDArray[np.int64], float]:
    """The examples of a batch that one of several processes reads, and their share of it.

    Every count-th, so that all have as much to read. A process without any reads an example that counts for nothing.
    """
    part = examples[number::count]
    return (part, len(part) / len(examples)) if len(part) else (examples[:1], 0.0)
