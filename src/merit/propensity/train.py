"""propensity: the factor model and what the generator knows of users → a calibrated model of who wants what.

The artifact: model.safetensors, calibration.json, and reliability.parquet: predicted probabilities of test users and
the shares that came true, by probability and vertical. The model is fitted on train users, the curve and the weight of
likely labels on validation users; the table is of test users.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import torch
from numpy.typing import NDArray
from pydantic import Field
from safetensors.torch import load_file, save_file

from merit.core import artifacts, console
from merit.core.artifacts import Artifact
from merit.core.config import Frozen
from merit.core.errors import DamagedArtifact, DataError
from merit.core.ragged import column_lists, indicators
from merit.core.seeds import stream, torch_stream
from merit.core.types import Floats, Ints
from merit.data.corpus import WORDS, read_words
from merit.evaluation import calibration
from merit.evaluation.calibration import Bins
from merit.generator.mining import read_mined
from merit.labels import space
from merit.labels.build import load_vectors
from merit.propensity.calibration import CalibrationCurve, ScoreTally, calibrate
from merit.propensity.features import UserFeatures
from merit.propensity.likely import Pairs, fit_weight
from merit.propensity.linear import MODEL, FactorsConfig
from merit.propensity.negatives import NegativeSampler, NegativesConfig, make_sampler
from merit.propensity.states import read_features
from merit.propensity.states_model import Propensity, PropensityConfig
from merit.propensity.training import PropensityFitConfig, fit, user_vectors

GRID = 1 << 22  # values of the hidden layer computed at a time


class PropensityRun(Frozen):
    """The settings of this stage."""

    model: PropensityConfig = PropensityConfig()
    factors: FactorsConfig = FactorsConfig()
    negatives: NegativesConfig = NegativesConfig()
    fit: PropensityFitConfig = PropensityFitConfig()
    calibration_pairs: int = Field(20_000_000, ge=1)
    """Pairs of user and label that are read for calibration, and for its check, at most; whole users are left out."""


@dataclass(frozen=True)
class TrainedScorer:
    """A trained model with the projections of all labels. Scores are log-odds before calibration."""

    model: Propensity
    labels: int
    """k_g: states that make a user."""
    texts: Floats
    """By label: its text vector."""
    projections: torch.Tensor  # (C, hidden + R)
    repeats: torch.Tensor  # (C,)
    live: NDArray[np.bool_]
    calibration: CalibrationCurve | None
    likely: int = 0
    """Likely labels of the generator that are read, at most."""

    def vectors(self, features: UserFeatures) -> torch.Tensor:
        """(B, width + R): the vectors of users."""
        with torch.inference_mode():
            states = features.first(self.labels) if self.model.reads_states else features
            return user_vectors(self.model, states, self.texts)

    def users(self, features: UserFeatures) -> torch.Tensor:
        """(B, hidden + R): the projections of users, which are computed once to be scored for any labels."""
        with torch.inference_mode():
            return self.model.user_projections(self.vectors(features))

    @torch.inference_mode()
    def grid(self, users: torch.Tensor, features: UserFeatures, labels: Ints) -> Floats:
        """(B, labels): the scores of all pairs, of projections of users and their features."""
        step, blocks = max(1, GRID // max(1, len(labels) * self.projections.shape[1])), []
        for at in range(0, len(users), step):
            rows = np.arange(at, min(at + step, len(users)))
            pairs = np.broadcast_to(labels, (len(rows), len(labels)))
            times, shares = map(torch.from_numpy, features.history_counts(rows, pairs, len(self.live)))
            trends = torch.from_numpy(features.trends.gather(rows).of(labels)) if features.trends else None
            users_, labels_ = users[rows][:, None], self.projections[labels]
            scores = self.model.score(users_, labels_, times, shares, self.repeats[labels], trends)
            if features.likely:
                likely = features.likely.gather(rows).grid(labels, len(self.live))
                scores = scores + self.model.likely_weight * torch.from_numpy(likely)
            blocks.append(scores)
        grid: Floats = torch.cat(blocks).numpy()
        return grid


def train_propensity(
    corpus: Artifact,
    factors: Artifact,
    states: Artifact,
    labels: Artifact,
    out: Path,
    config: PropensityRun,
    seed: int,
    mined: Artifact | None = None,
) -> Artifact:
    """The trained model: calibrated on validation users, checked on test users.

    A scorer of states is fitted on train users, with `mined` labels among the negatives.
    """
    label_space, vectors = space.load(labels.path), load_vectors(labels)
    live, width = label_space.live_mask(), int(states.manifest.summary["width"])
    words = read_words(corpus)
    model = make_model(config.model, width, vectors.shape[1], live, seed, len(words))
    if config.model.factors:
        model.load_state_dict(load_file(factors.file(MODEL)), strict=False)
    parents = {"corpus": corpus, "factors": factors, "states": states, "labels": labels}
    parents |= {"mined": mined} if mined else {}
    with artifacts.writing(out, "propensity", config=config, seed=seed, parents=parents) as draft:
        if config.model.states:
            draft.summary |= _fit_states(model, corpus, states, mined, vectors, live, config, seed)
        scorer = _scorer(model.eval(), config, vectors, live, None)
        if config.model.likely:
            blocks = _grids(scorer, corpus, states, "validation", config.calibration_pairs)
            model.likely_weight.data.fill_(fit_weight([Pairs(*block) for block in blocks]))
        verticals = label_space.table["vertical"].fill_null("unknown")
        curve, reliability, shares = _calibrated(scorer, corpus, states, verticals, config.calibration_pairs)
        save_file(model.state_dict(), draft.path / "model.safetensors")
        shutil.copyfile(corpus.file(WORDS), draft.path / WORDS)
        (draft.path / "calibration.json").write_text(json.dumps(asdict(curve)), encoding="utf-8")
        reliability.write_parquet(draft.path / "reliability.parquet")
        overall = calibration.summary(reliability)
        draft.summary |= {
            "parameters": sum(value.numel() for value in model.parameters()),
            "ece": overall.ece,
            "brier": overall.brier,
            "state_width": width,
            "likely": states.manifest.config["likely"],
            "likely_weight": round(float(model.likely_weight.detach()), 4),
            "likely_share": shares,
        }
    return artifacts.load(out, "propensity")


def _fit_states(
    model: Propensity,
    corpus: Artifact,
    states: Artifact,
    mined: Artifact | None,
    vectors: Floats,
    live: NDArray[np.bool_],
    config: PropensityRun,
    seed: int,
) -> dict[str, Any]:
    """Fit the scorer of states in place; its figures."""
    if not mined:
        raise DataError("A scorer of states needs mined labels. Without one, set propensity.model.states to false.")
    users, features = read_features(corpus, states, "train")
    sampler = _sampler(users, mined, live, config)
    losses = fit(model, features.first(config.model.labels), sampler, vectors, config.fit, seed)
    summary = {name: mined.manifest.summary[name] for name in ("mined", "later_bought_share")}
    return {"losses": [round(loss, 4) for loss in losses]} | summary


@artifacts.opens
def load_scorer(propensity: Artifact, labels: Artifact) -> TrainedScorer:
    """A trained model over its label space, or over a later version: new labels are scored by their text."""
    config = PropensityRun.model_validate(propensity.manifest.config)
    label_space, vectors = space.load(labels.path), load_vectors(labels)
    weights = load_file(propensity.file("model.safetensors"))
    if len(weights["trained"]) > len(label_space):
        raise DataError(
            f"{propensity.path} was trained on {len(weights['trained']):,} labels, but {labels.path} has only "
            f"{len(label_space):,}. Use the label space of its training, or a later version of that."
        )
    width, words = propensity.manifest.summary["state_width"], len(weights["word_factors"])
    model = make_model(config.model, width, vectors.shape[1], weights["trained"].numpy(), seed=0, words=words)
    try:
        model.load_state_dict(weights)
    except RuntimeError as error:
        raise DamagedArtifact(f"{propensity.path} does not hold its model: {str(error).splitlines()[0]}") from None
    curve = CalibrationCurve(**json.loads(propensity.file("calibration.json").read_text(encoding="utf-8")))
    scorer = _scorer(model.eval(), config, vectors, label_space.live_mask(), curve)
    return replace(scorer, likely=propensity.manifest.summary["likely"])


def make_model(
    config: PropensityConfig, state_width: int, vector_width: int, trained: NDArray[np.bool_], seed: int, words: int
) -> Propensity:
    """An untrained model, its weights drawn by the seed; `trained` says by label whether training sees it."""
    with torch_stream(seed, "propensity-weights"):
        return Propensity(config, state_width, vector_width, torch.from_numpy(trained), words)


@torch.inference_mode()
def _scorer(
    model: Propensity, config: PropensityRun, vectors: Floats, live: NDArray[np.bool_], curve: CalibrationCurve | None
) -> TrainedScorer:
    table = model.labels(torch.from_numpy(vectors), torch.arange(len(vectors)))
    projections, repeats = model.label_projections(table), model.label_repeats(table)
    return TrainedScorer(model, config.model.labels, vectors, projections, repeats, live, curve)


def _sampler(users: pl.DataFrame, mined: Artifact, live: NDArray[np.bool_], config: PropensityRun) -> NegativeSampler:
    table = read_mined(mined, len(users))
    gold, wrong = column_lists(users["gold"]), column_lists(table["labels"])
    hits, counts = (column_lists(table[name]).values for name in ("hits", "counts"))
    return make_sampler(gold, hits, wrong, counts, live, config.negatives)


def _grids(
    scorer: TrainedScorer, corpus: Artifact, states: Artifact, split: str, pairs: int
) -> Iterator[tuple[Floats, Floats, NDArray[np.bool_]]]:
    """Of all live labels and users of a split, up to so many pairs: scores, what is likely, and what came true."""
    users, features = read_features(corpus, states, split)
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
        assert part.likely
        likely = part.likely.grid(live, len(scorer.live))
        yield scorer.grid(scorer.users(part), part, live), likely, truth[:, live].toarray() > 0


def _calibrated(
    scorer: TrainedScorer, corpus: Artifact, states: Artifact, verticals: pl.Series, pairs: int
) -> tuple[CalibrationCurve, pl.DataFrame, float]:
    """The curve of validation users; its check, by vertical, on test users; the share of likely labels in the score.

    The share is that of the variance of scores within a test user.
    """
    tally, names = ScoreTally(), verticals.unique().sort()
    for scores, _, truth in _grids(scorer, corpus, states, "validation", pairs):
        tally.add(scores.ravel(), truth.ravel())
    curve, bins = calibrate(tally), Bins.empty(len(names))
    of_label = names.search_sorted(verticals).to_numpy()[np.flatnonzero(scorer.live)]
    weight, within, whole = float(scorer.model.likely_weight.detach()), 0.0, 0.0
    for scores, likely, truth in _grids(scorer, corpus, states, "test", pairs):
        bins.add(curve.probability(scores), truth, np.broadcast_to(of_label, scores.shape))
        within += float((weight * likely).var(axis=1).sum())
        whole += float(scores.var(axis=1).sum())
    return curve, bins.table(names.to_list()), round(within / max(whole, 1e-9), 4)
