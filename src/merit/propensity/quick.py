"""The quick preset's propensity model: the factor model in closed form, calibrated. No generator, no states, no torch.

The artifact: model.safetensors, calibration.json and reliability.parquet, as those of the whole of MERIT have.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import asdict, replace
from pathlib import Path

import numpy as np
import polars as pl
from numpy.typing import NDArray
from pydantic import Field
from safetensors.numpy import load_file, save_file

from merit.core import artifacts, console
from merit.core.artifacts import Artifact
from merit.core.config import Frozen
from merit.core.errors import DataError
from merit.core.ragged import column_lists, indicators
from merit.core.types import Floats
from merit.data.corpus import purchases_table, read_table
from merit.evaluation import calibration
from merit.evaluation.calibration import Bins
from merit.labels import space
from merit.labels.build import load_vectors
from merit.propensity.calibration import CalibrationCurve, ScoreTally, calibrate
from merit.propensity.closed_form import HALVES, ClosedFormConfig, fit_closed_form
from merit.propensity.factor_scorer import FactorScorer, FactorWeights
from merit.propensity.features import read_purchases, stateless
from merit.propensity.ridge import fold_of_users

MODEL, CURVE = "model.safetensors", "calibration.json"
GRID = 1 << 22  # scores of users and labels that are computed at a time


class QuickRun(Frozen):
    """The settings of this stage."""

    fit: ClosedFormConfig = ClosedFormConfig()
    calibration_pairs: int = Field(20_000_000, ge=1)
    """Pairs of user and label that are read for calibration, and for its check, at most; whole users are left out."""


def train_quick(corpus: Artifact, labels: Artifact, out: Path, config: QuickRun, seed: int) -> Artifact:
    """The model: fitted on train users, calibrated on validation users, checked on test users."""
    label_space, vectors = space.load(labels.path), load_vectors(labels)
    gold, features = read_purchases(corpus)
    users = read_table(corpus, purchases_table(corpus), "user_id")["user_id"].to_list()
    half, live = fold_of_users(users, HALVES, seed), label_space.live_mask()
    parents = {"corpus": corpus, "labels": labels}
    with artifacts.writing(out, "propensity", config=config, seed=seed, parents=parents) as draft:
        weights, few = fit_closed_form(features, gold, half, live, vectors, config.fit, seed)
        scorer = FactorScorer(weights, vectors, live)
        tally = ScoreTally()
        for scores, truth in _grids(scorer, corpus, "validation", config.calibration_pairs):
            tally.add(scores.ravel(), truth.ravel())
        scorer = replace(scorer, calibration=(curve := calibrate(tally)))
        verticals = label_space.table["vertical"].fill_null("unknown")
        reliability = _reliability(scorer, curve, corpus, verticals, config.calibration_pairs)
        save_file(weights.arrays(), draft.path / MODEL)
        (draft.path / CURVE).write_text(json.dumps(asdict(curve)), encoding="utf-8")
        reliability.write_parquet(draft.path / "reliability.parquet")
        overall = calibration.summary(reliability)
        draft.summary |= {"parameters": sum(array.size for array in weights.arrays().values()), "purchases": len(gold)}
        draft.summary |= {"ece": overall.ece, "brier": overall.brier}
        draft.summary |= {name: round(value, 4) for name, value in few.items()}
    return artifacts.load(out, "propensity")


@artifacts.opens
def load_quick(propensity: Artifact, labels: Artifact) -> FactorScorer:
    """A trained model over its label space, or over a later version: new labels are scored by their text."""
    weights = FactorWeights.of(load_file(propensity.file(MODEL)))
    label_space, vectors = space.load(labels.path), load_vectors(labels)
    if len(weights.trained) > len(label_space):
        raise DataError(
            f"{propensity.path} was trained on {len(weights.trained):,} labels, but {labels.path} has only "
            f"{len(label_space):,}. Use the label space of its training, or a later version of that."
        )
    curve = CalibrationCurve(**json.loads(propensity.file(CURVE).read_text(encoding="utf-8")))
    return FactorScorer(weights, vectors, label_space.live_mask(), curve)


def _grids(
    scorer: FactorScorer, corpus: Artifact, split: str, pairs: int
) -> Iterator[tuple[Floats, NDArray[np.bool_]]]:
    """Scores and truth of all live labels for users of a split, block by block, up to so many pairs."""
    users, features = stateless(corpus, split)
    live, gold = np.flatnonzero(scorer.live), column_lists(users["gold"])
    block = max(1, GRID // len(live))
    starts = range(0, min(len(users), max(1, pairs // len(live))), block)
    for at in console.track(starts, f"scoring {split} users", total=len(starts)):
        part = features.part(at, at + block)
        truth = indicators(gold.gather(np.arange(at, at + len(part))), len(scorer.live))
        yield scorer.grid(scorer.users(part), part, live), truth[:, live].toarray() > 0


def _reliability(
    scorer: FactorScorer, curve: CalibrationCurve, corpus: Artifact, verticals: pl.Series, pairs: int
) -> pl.DataFrame:
    """Predicted and observed shares of test users by vertical."""
    names = verticals.unique().sort()
    bins = Bins.empty(len(names))
    of_label = names.search_sorted(verticals).to_numpy()[np.flatnonzero(scorer.live)]
    for scores, truth in _grids(scorer, corpus, "test", pairs):
        bins.add(curve.probability(scores), truth, np.broadcast_to(of_label, scores.shape))
    return bins.table(names.to_list())
