"""The quick preset's propensity model: the factor model in closed form, calibrated. No generator, no states, no torch.

The artifact: model.safetensors, calibration.json and reliability.parquet, as those of the whole of MERIT have.
"""

from __future__ import annotations

from pathlib import Path

from pydantic import Field
from safetensors.numpy import load_file, save_file

from merit.core import artifacts
from merit.core.artifacts import Artifact
from merit.core.config import Frozen
from merit.data.corpus import purchases_table, read_table
from merit.labels import space
from merit.labels.build import load_vectors
from merit.propensity.calibration import fit_curve
from merit.propensity.closed_form import HALVES, ClosedFormConfig, fit_closed_form
from merit.propensity.factor_scorer import FactorScorer, FactorWeights
from merit.propensity.features import read_purchases, stateless
from merit.propensity.held_out import held_out, later_labels, read_curve, reliability, write_check
from merit.propensity.ridge import fold_of_users

MODEL = "model.safetensors"


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
        validation, test = (
            held_out(scorer, *stateless(corpus, split), split, config.calibration_pairs)
            for split in ("validation", "test")
        )
        curve = fit_curve((block.scores, block.truth) for block in validation)
        save_file(weights.arrays(), draft.path / MODEL)
        draft.summary |= {"parameters": sum(array.size for array in weights.arrays().values()), "purchases": len(gold)}
        write_check(draft, curve, reliability(curve, test, label_space))
        draft.summary |= {name: round(value, 4) for name, value in few.items()}
    return artifacts.load(out, "propensity")


@artifacts.opens
def load_quick(propensity: Artifact, labels: Artifact) -> FactorScorer:
    """A trained model over its label space, or over a later version: new labels are scored by their text."""
    weights = FactorWeights.of(load_file(propensity.file(MODEL)))
    live, vectors = later_labels(propensity, labels, len(weights.trained))
    return FactorScorer(weights, vectors, live, read_curve(propensity))
