"""What a method may see, and what it gives back. A method is a function from a world to an answer.

    answer = method(world, seed)                 # world: train and validation users, and test users without their gold
    answer.predictions("ALS", seed)              # lists, for the evaluator
    answer.scores(labels)                        # (test users, labels), where users can be ranked for an interest

Every method gets the same users, labels, tokens and time. The gold of test users is not in the world, so no method can
look at it by mistake.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from merit.core.ragged import Ragged
from merit.core.types import Floats, Ints
from merit.data.labelled import Labelled
from merit.evaluation.audiences import Scores
from merit.evaluation.predictions import LENGTH, Predictions, head
from merit.labels.space import LabelSpace

FREE = LENGTH  # labels at free length of a method that does not stop by itself


@dataclass(frozen=True)
class World:
    """Users, labels, tokens and time, the same for every method."""

    train: Labelled
    validation: Labelled
    test: Labelled
    """Without gold and without what came later."""
    labels: LabelSpace
    vectors: Floats
    """By label: its text vector."""
    popularity: Ints
    """By label: events of training users; zero for labels that may not be said."""
    seconds: float
    """For training, on this machine. A method that is not done by then stops."""
    text: Text | None = None
    """Tokens, for methods that read and write them."""


@dataclass(frozen=True)
class Text:
    """The world in tokens, for methods that share the generator's backbone."""

    shop: Any  # merit.generator.texts.Shop; not imported here, so that light methods stay light
    backbone: Any  # merit.generator.backbone.BackboneConfig
    train: Ragged
    """Prompts, a row for each example."""
    validation: Ragged
    test: Ragged


@dataclass(frozen=True)
class Answer:
    """What a method says of the test users, a row for each, in the order of the world."""

    ranked: Ragged
    """At least BUDGET labels of each test user, best first (all live ones, where there are fewer)."""
    free: Ragged | None = None
    """What the method chose to say, where it stops by itself; otherwise the first FREE are taken."""
    scores: Scores | None = None
    """Comparable across users, where the method can rank users for a label."""
    told: dict[str, float] = field(default_factory=dict)
    """Parameters, training and inference seconds, and whatever else is worth a line in the table of costs."""

    def predictions(self, method: str, seed: int) -> Predictions:
        """Lists for the evaluator: at the length the method chose, else the first FREE, and ranked."""
        return Predictions(method, seed, head(self.ranked, FREE) if self.free is None else self.free, self.ranked)


Method = Callable[[World, int], Answer]


def without_gold(examples: Labelled) -> Labelled:
    """The same users, of whom nothing is known but their history."""
    nothing = Ragged(np.zeros(len(examples) + 1, dtype=np.int64), np.zeros(0, dtype=np.int32))
    return replace(examples, gold=nothing, later=nothing)
