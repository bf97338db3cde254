"""What a method said and what is true, as flat arrays on disk and in memory. The evaluator sees nothing else.

    write(Path("predictions.parquet"), Predictions("trivial", 7, free))
    check(read(Path("predictions.parquet")), truth)

A label is its row in the label space; an example is its row in the truth.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import numpy as np
import polars as pl
from numpy.typing import NDArray

from merit.core.errors import DamagedArtifact, DataError
from merit.core.ragged import Ragged, column_lists, head, list_column, pair_keys
from merit.core.types import Floats, Ints

LENGTH = 5  # labels at free length of a method that does not stop by itself: the paper's cut
BUDGET = 20  # labels of a ranked list: the largest of the equal budgets


@dataclass(frozen=True)
class Predictions:
    """One method with one seed on all test examples."""

    method: str
    seed: int
    free: Ragged
    """Labels of each example, best first, as many as the method chose to give."""
    ranked: Ragged | None = None
    """At least 20 labels of each example, best first, for equal budgets; the free list serves where there is none."""
    command: str = ""
    """What makes these predictions again."""
    commit: str = ""

    def at(self, budget: int | None) -> Ragged:
        """The lists at free length, or the first `budget` labels of each. A short list is never padded."""
        if budget is None:
            return self.free
        return head(self.free if self.ranked is None else self.ranked, budget)


@dataclass(frozen=True)
class Truth:
    """The test examples and the labels they speak of."""

    gold: Ragged
    """Different labels of each example."""
    bought: Ragged
    """Different verticals of the products that each example bought, rows of `verticals`."""
    history: Ragged
    """Different labels of each example's history, in any order."""
    counts: NDArray[np.int32]
    """Beside `history.values`: events of the history with that label."""
    purchases: NDArray[np.int32]
    """Beside `history.values`: purchases among those events."""
    user: Ints
    """By example: whose it is, as a number from 0 to the number of users. Users are the unit of every interval."""
    vertical: Ints
    """By label: a row of `verticals`, the one it is most often of."""
    verticals: Sequence[str]
    vectors: Floats
    """By label: a row of length one. May be memory-mapped."""
    cluster: Ints
    """By label."""
    user_ids: Sequence[str] = ()

    def __len__(self) -> int:
        return len(self.gold)

    @property
    def users(self) -> int:
        """How many: one more than the highest number, and none without examples."""
        return int(self.user.max()) + 1 if len(self.user) else 0

    @property
    def labels(self) -> int:
        """How many there are in the space, whether or not one is ever gold."""
        return len(self.vectors)

    @cached_property
    def novel(self) -> NDArray[np.bool_]:
        """Beside `gold.values`: whether the user never had that label in the history."""
        return ~np.isin(pair_keys(self.gold, self.labels), pair_keys(self.history, self.labels))


def top(scores: Floats, live: Ints, k: int = BUDGET) -> Ragged:
    """The k live labels with the highest scores of each row, best first; of equal ones the lower id."""
    size = min(k, len(live))
    order = np.argsort(-scores[:, live], axis=1, kind="stable")[:, :size]
    return Ragged(np.arange(0, order.size + 1, size, dtype=np.int64), live[order].ravel().astype(np.int32))


def filled(ranked: Ragged, others: Ragged, budget: int = BUDGET) -> Ragged:
    """The ranked labels of each row, then the others that are not among them, up to the budget."""
    rows = (dict.fromkeys([*ranked[row].tolist(), *others[row].tolist()]) for row in range(len(ranked)))
    return Ragged.of([list(row)[:budget] for row in rows])


def recall(lists: Ragged, gold: Ragged) -> float:
    """The share of all gold labels that are in the lists, row by row."""
    width = int(max(lists.values.max(initial=0), gold.values.max(initial=0))) + 1
    hits = np.isin(pair_keys(gold, width), pair_keys(lists, width))
    return float(hits.sum() / max(1, len(hits)))


def check(predictions: Predictions, truth: Truth) -> None:
    """Refuse what would be measured wrongly: examples missing, labels unknown or said twice."""
    name = f"{predictions.method} (seed {predictions.seed})"
    for lists in (predictions.free, predictions.ranked):
        if lists is None:
            continue
        if len(lists) != len(truth):
            raise DataError(f"{name} has {len(lists):,} predictions for {len(truth):,} examples. Predict them again.")
        if len(lists.values) and not (lists.values.min() >= 0 and lists.values.max() < truth.labels):
            raise DataError(
                f"{name} predicts labels outside the {truth.labels:,} of this space: another version of it?"
            )
        if (np.diff(np.sort(pair_keys(lists, truth.labels))) == 0).any():
            raise DataError(f"{name} predicts a label twice for one example. Keep the first of each.")


# --- on disk ---------------------------------------------------------------------------------------------------------


def write(path: Path, predictions: Predictions) -> None:
    """One row per example: example, labels, ranked (null where there is none)."""
    ranked = pl.Series([None] * len(predictions.free), dtype=pl.List(pl.Int32))
    frame = pl.DataFrame(
        {
            "example": np.arange(len(predictions.free), dtype=np.uint32),
            "labels": _column(predictions.free),
            "ranked": ranked if predictions.ranked is None else _column(predictions.ranked),
        }
    )
    facts = {name: getattr(predictions, name) for name in ("method", "seed", "command", "commit")}
    frame.write_parquet(path, metadata={"merit": json.dumps(facts)})


def read(path: Path) -> Predictions:
    """What `write` wrote; examples must be 0, 1, 2… without a gap."""
    try:
        facts, frame = json.loads(pl.read_parquet_metadata(path)["merit"]), pl.read_parquet(path)
        free, ranked = column_lists(frame["labels"]), frame["ranked"]
    except (OSError, ValueError, KeyError, pl.exceptions.PolarsError) as error:
        raise DamagedArtifact(f"{path} does not hold predictions ({error}). Make them again.") from None
    if (frame["example"] != pl.int_range(len(frame), eager=True)).any():
        raise DataError(f"{path}: examples are missing or double. Make the predictions again.")
    return Predictions(free=free, ranked=None if ranked.has_nulls() else column_lists(ranked), **facts)


def _column(lists: Ragged) -> pl.Series:
    return list_column(lists.values.astype(np.int32), lists.lengths())
