"""A scorer against users who are held out: what it scores, what came true, and the check of its probabilities.

What either preset keeps of it: calibration.json, the curve, and reliability.parquet, predicted probabilities of test
users and the shares that came true, by probability and vertical.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from dataclasses import asdict
from typing import Any, NamedTuple, Protocol

import numpy as np
import polars as pl
from numpy.typing import NDArray

from merit.core import console
from merit.core.artifacts import Artifact, Draft
from merit.core.errors import DataError
from merit.core.ragged import column_lists, indicators
from merit.core.seeds import stream
from merit.core.types import Floats, Ints
from merit.evaluation import calibration
from merit.evaluation.calibration import Bins
from merit.labels import space
from merit.labels.build import load_vectors
from merit.labels.space import LabelSpace
from merit.propensity.calibration import CalibrationCurve
from merit.propensity.features import UserFeatures

CURVE, RELIABILITY = "calibration.json", "reliability.parquet"
GRID = 1 << 22  # scores of users and labels that are computed at a time


class PairScorer(Protocol):
    """A trained propensity model, of either preset."""

    @property
    def live(self) -> NDArray[np.bool_]:
        """(labels,)"""

    @property
    def calibration(self) -> CalibrationCurve | None:
        """From scores to probabilities."""

    def users(self, features: UserFeatures) -> Any:
        """What stands for each of these users in `grid`."""

    def grid(self, users: Any, features: UserFeatures, labels: Ints) -> Floats:
        """(B, labels): the scores of all pairs."""


class HeldOut(NamedTuple):
    """Some users of a split: their features, their scores for all live labels, and which of these they bought."""

    users: UserFeatures
    scores: Floats
    truth: NDArray[np.bool_]


def held_out(
    scorer: PairScorer, users: pl.DataFrame, features: UserFeatures, split: str, pairs: int
) -> Iterator[HeldOut]:
    """The users of a split, block by block, up to so many pairs of user and label."""
    live, gold = np.flatnonzero(scorer.live), column_lists(users["gold"])
    most = max(1, pairs // len(live))
    if most < len(users):  # a sample, so that no part of the table is preferred
        drawn = np.sort(stream(0, "calibration", split).permutation(len(users))[:most])
        features, gold = features.gather(drawn), gold.gather(drawn)
    block = max(1, GRID // len(live))
    starts = range(0, len(features), block)
    for at in console.track(starts, f"scoring {split} users", total=len(starts)):
        part = features.part(at, at + block)
        truth = indicators(gold.gather(np.arange(at, at + len(part))), len(scorer.live))
        yield HeldOut(part, scorer.grid(scorer.users(part), part, live), truth[:, live].toarray() > 0)


def reliability(curve: CalibrationCurve, blocks: Iterable[HeldOut], labels: LabelSpace) -> pl.DataFrame:
    """Predicted and observed shares of users by vertical of the label."""
    verticals = labels.table["vertical"].fill_null("unknown")
    names = verticals.unique().sort()
    of_label = names.search_sorted(verticals).to_numpy()[np.flatnonzero(labels.live_mask())]
    bins = Bins.empty(len(names))
    for block in blocks:
        bins.add(curve.probability(block.scores), block.truth, np.broadcast_to(of_label, block.scores.shape))
    return bins.table(names.to_list())


def write_check(draft: Draft, curve: CalibrationCurve, table: pl.DataFrame) -> None:
    """Keep the curve and its check, and name the errors in the manifest."""
    (draft.path / CURVE).write_text(json.dumps(asdict(curve)), encoding="utf-8")
    table.write_parquet(draft.path / RELIABILITY)
    overall = calibration.summary(table)
    draft.summary |= {"ece": overall.ece, "brier": overall.brier}


def read_curve(propensity: Artifact) -> CalibrationCurve:
    """The curve that `write_check` kept."""
    return CalibrationCurve(**json.loads(propensity.file(CURVE).read_text(encoding="utf-8")))


def later_labels(propensity: Artifact, labels: Artifact, trained: int) -> tuple[NDArray[np.bool_], Floats]:
    """Which labels are live and the vectors of all, in the label space of a training or a later version of it."""
    label_space = space.load(labels.path)
    if trained > len(label_space):
        raise DataError(
            f"{propensity.path} was trained on {trained:,} labels, but {labels.path} has only {len(label_space):,}. "
            "Use the label space of its training, or a later version of that."
        )
    return label_space.live_mask(), load_vectors(labels)
