"""What settings and weights are chosen by: exact recall on validation users, never on test users."""

from __future__ import annotations

import numpy as np

from merit.baselines.world import World
from merit.core.ragged import Ragged
from merit.core.types import Floats
from merit.evaluation.predictions import head, owners, top

BUDGET = 10  # labels: the middle one of the equal budgets


def recall(said: Ragged, gold: Ragged) -> float:
    """The share of all golds that are in the lists, row by row."""
    width = int(max(said.values.max(initial=0), gold.values.max(initial=0))) + 1
    found = np.isin(owners(gold) * width + gold.values, owners(said) * width + said.values)
    return float(found.sum() / max(1, len(found)))


def recall_of_scores(scores: Floats, world: World, budgets: tuple[int, ...] = (BUDGET,)) -> float:
    """The same of the labels with the highest scores, as a mean over budgets. The first users may be enough."""
    said = top(scores, np.flatnonzero(world.labels.live_mask()), max(budgets))
    gold = world.validation.gold.gather(np.arange(len(scores)))
    return float(np.mean([recall(head(said, budget), gold) for budget in budgets]))
