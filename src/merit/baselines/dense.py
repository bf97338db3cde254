"""What methods that score every label share: lists as sparse matrices, and an answer from scores."""

from __future__ import annotations

from typing import Any

import numpy as np

from merit.baselines.world import Answer, World
from merit.core.ragged import Ragged, matrix
from merit.core.types import Floats
from merit.evaluation.predictions import top


def gold_matrix(gold: Ragged, n_labels: int) -> Any:
    """(examples, labels), sparse: 1 where a label is gold."""
    return matrix(gold, np.ones(len(gold.values)), n_labels)


def stacked(first: Ragged, second: Ragged) -> Ragged:
    """The rows of one, then those of the other."""
    offsets = np.concatenate([first.offsets, first.offsets[-1] + second.offsets[1:]])
    return Ragged(offsets, np.concatenate([first.values, second.values]))


def answer(scores: Floats, world: World, told: dict[str, float]) -> Answer:
    """Ranked by the scores (test users, labels); what may not be said scores zero for everybody."""
    live = world.labels.live_mask()
    kept: Floats = np.where(live, scores, 0).astype(np.float32)
    return Answer(top(kept, np.flatnonzero(live)), scores=lambda labels: kept[:, labels], told=told)
