"""The other half of the exposure-bias meter: the same users, once after labels of theirs, once after mistakes.

A generator is made to continue a target of which the first one or two labels are already written: gold ones, or as many
of its own mistakes about that user. What it then finds of the golds still missing, and how much less of them after
mistakes, is its exposure bias.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from merit.core.ragged import Ragged
from merit.generator.decoding import DecodeConfig
from merit.generator.mining import Mined

if TYPE_CHECKING:
    from merit.generator.model import TrainedGenerator  # which is measured by this while it is trained

WRITTEN = 2  # labels at most in the prefix; one gold label at least is left to be found
BUDGET = 5


def after_prefixes(
    trained: TrainedGenerator, gold: Ragged, inputs: Any, mined: Mined, seed: int
) -> tuple[Ragged, Ragged, Ragged]:
    """By example: labels decoded after gold labels, after mistakes, and the golds that are left to be found."""
    golds, mistakes, left = _prefixes(gold, mined)
    config = DecodeConfig(max_labels=BUDGET, fixed_budget=True)
    after_gold, after_mistakes = (
        trained.decode(inputs, config, seed, written=Ragged.of(written)) for written in (golds, mistakes)
    )
    return after_gold, after_mistakes, Ragged.of(left)


def _prefixes(gold: Ragged, mined: Mined) -> tuple[list[list[int]], list[list[int]], list[list[int]]]:
    """Of each example: gold prefix, prefix of as many mistakes (the most frequent first), golds left."""
    golds, mistakes, left = [], [], []
    for row in range(len(gold)):
        right = gold[row].tolist()
        start, stop = mined.labels.offsets[row : row + 2]
        wrong = mined.labels[row][np.argsort(-mined.counts[start:stop], kind="stable")].tolist()
        size = min(WRITTEN, len(right) - 1, len(wrong))
        golds.append(right[:size])
        mistakes.append(wrong[:size])
        left.append(right[size:] if size else [])  # without a prefix there is nothing to compare
    return golds, mistakes, left
