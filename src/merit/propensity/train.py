"""propensity: the factor model and what the generator knows of users → a calibrated model of who wants what.

The artifact: model.safetensors, and the curve and its check (`held_out`). The model is fitted on train users, the curve
and the weight of likely labels on validation users; the check is of test users.
"""

from __future__ import annotations

import math
import shutil
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import torch
from numpy.typing import NDArray
from pydantic import Field
from safetensors.torch import load_file, save_file
from torch import Tensor
from torch.nn.functional import binary_cross_entropy_with_logits, embedding

from merit.core import artifacts
from merit.core.artifacts import Artifact
from merit.core.config import Frozen
from merit.core.errors import DamagedArtifact, DataError
from merit.core.ragged import column_lists
from merit.core.seeds import stream, torch_stream
from merit.core.types import Floats, Ints
from merit.data.corpus import WORDS, read_words
from merit.generator.mining import read_mined
from merit.labels import space
from merit.labels.build import load_vectors
from merit.propensity.calibration import CalibrationCurve, fit_curve
from merit.propensity.epochs import FASTER, train_epochs
from merit.propensity.factor_model import WEIGHTS, bag_sums, summed_factors
from merit.propensity.features import UserFeatures
from merit.propensity.held_out import HeldOut, held_out, later_labels, read_curve, reliability, write_check
from merit.propensity.likely import Pairs, fit_weight
from merit.propensity.linear import MODEL, FactorsConfig
from merit.propensity.negatives import NegativeSampler, NegativesConfig, make_sampler
from merit.propensity.states import read_features
from merit.propensity.states_model import Propensity, PropensityConfig

GRID = 1 << 22  # values of the hidden layer computed at a time


class PropensityFitConfig(Frozen):
    """How the rest of the model is trained, once the factor model is."""

    epochs: int = Field(1, ge=1)
    batch_size: int = Field(64, ge=1)
    learning_rate: float = Field(1e-3, gt=0)
    weight_decay: float = Field(0.01, ge=0)


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
    projections: Tensor  # (C, hidden + R)
    repeats: Tensor  # (C,)
    live: NDArray[np.bool_]
    calibration: CalibrationCurve | None
    likely: int = 0
    """Likely labels of the generator that are read, at most."""

    def vectors(self, features: UserFeatures) -> Tensor:
        """(B, width + R): the vectors of users."""
        with torch.inference_mode():
            states = features.first(self.labels) if self.model.reads_states else features
            return user_vectors(self.model, states, self.texts)

    def users(self, features: UserFeatures) -> Tensor:
        """(B, hidden + R): the projections of users, which are computed once to be scored for any labels."""
        with torch.inference_mode():
            return self.model.user_projections(self.vectors(features))

    @torch.inference_mode()
    def grid(self, users: Tensor, features: UserFeatures, labels: Ints) -> Floats:
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
        validation, test = (
            held_out(scorer, *read_features(corpus, states, split), split, config.calibration_pairs)
            for split in ("validation", "test")
        )
        pairs = [Pairs(block.scores, _likely(block, scorer), block.truth) for block in validation]
        weight = fit_weight(pairs) if config.model.likely else 0.0
        model.likely_weight.data.fill_(weight)
        curve = fit_curve((scores + np.float32(weight) * likely, truth) for scores, likely, truth in pairs)
        shares: list[tuple[float, float]] = []
        table = reliability(curve, _variances(test, scorer, shares), label_space)
        within, whole = np.sum(shares, axis=0)
        save_file(model.state_dict(), draft.path / "model.safetensors")
        shutil.copyfile(corpus.file(WORDS), draft.path / WORDS)
        draft.summary |= {"parameters": sum(value.numel() for value in model.parameters())}
        write_check(draft, curve, table)
        draft.summary |= {
            "state_width": width,
            "likely": states.manifest.config["likely"],
            "likely_weight": round(float(model.likely_weight.detach()), 4),
            "likely_share": round(float(within / max(whole, 1e-9)), 4),
        }
    return artifacts.load(out, "propensity")


@artifacts.opens
def load_scorer(propensity: Artifact, labels: Artifact) -> TrainedScorer:
    """A trained model over its label space, or over a later version: new labels are scored by their text."""
    config = PropensityRun.model_validate(propensity.manifest.config)
    weights = load_file(propensity.file("model.safetensors"))
    live, vectors = later_labels(propensity, labels, len(weights["trained"]))
    width, words = propensity.manifest.summary["state_width"], len(weights["word_factors"])
    model = make_model(config.model, width, vectors.shape[1], weights["trained"].numpy(), seed=0, words=words)
    try:
        model.load_state_dict(weights)
    except RuntimeError as error:
        raise DamagedArtifact(f"{propensity.path} does not hold its model: {str(error).splitlines()[0]}") from None
    scorer = _scorer(model.eval(), config, vectors, live, read_curve(propensity))
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


def _likely(block: HeldOut, scorer: TrainedScorer) -> Floats:
    """(users, live labels): what the generator finds likely."""
    assert block.users.likely
    return block.users.likely.grid(np.flatnonzero(scorer.live), len(scorer.live))


def _variances(
    blocks: Iterable[HeldOut], scorer: TrainedScorer, variances: list[tuple[float, float]]
) -> Iterator[HeldOut]:
    """The same blocks; on the way, the variance within users of what likely labels add, and of the whole score."""
    weight = float(scorer.model.likely_weight.detach())
    for block in blocks:
        within, whole = (part.var(axis=1).sum() for part in (weight * _likely(block, scorer), block.scores))
        variances.append((float(within), float(whole)))
        yield block


def user_vectors(model: Propensity, users: UserFeatures, vectors: Floats) -> Tensor:
    """(B, width + R). `vectors` are the text vectors of all labels; only those in these histories are read."""
    factors = summed_factors(model, users)
    if not model.reads_states:
        return model.user_factors(factors)
    labels, place = np.unique(users.history.values.astype(np.int64), return_inverse=True)
    table = model.labels(torch.from_numpy(vectors[labels]), torch.from_numpy(labels))
    histories = bag_sums(place, users.history.offsets, table, users.history_shares())
    states, counts = torch.from_numpy(users.states.values.astype(np.float32)), torch.tensor(users.states.counts)
    return model.users(states, counts, histories, factors)


# --- the scorer of states ---------------------------------------------------------------------------------------------


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


def _sampler(users: pl.DataFrame, mined: Artifact, live: NDArray[np.bool_], config: PropensityRun) -> NegativeSampler:
    table = read_mined(mined, len(users))
    gold, wrong = column_lists(users["gold"]), column_lists(table["labels"])
    hits, counts = (column_lists(table[name]).values for name in ("hits", "counts"))
    return make_sampler(gold, hits, wrong, counts, live, config.negatives)


def fit(
    model: Propensity,
    features: UserFeatures,
    sampler: NegativeSampler,
    vectors: Floats,
    config: PropensityFitConfig,
    seed: int,
) -> list[float]:
    """The mean loss of every epoch; the model is trained in place."""

    def loss(rows: Ints, epoch: int, start: int) -> Tensor:
        return batch_loss(model, features, sampler, vectors, rows, stream(seed, "negatives", epoch, start))

    _start_at_prevalence(model, sampler)
    model.train()
    groups = _groups(model, config)
    losses = train_epochs(
        "propensity", groups, loss, len(features), config.epochs, config.batch_size, seed, clipped=model.parameters()
    )
    model.eval()
    return losses


def _groups(model: Propensity, config: PropensityFitConfig) -> list[dict[str, Any]]:
    """All weights but those of the factor model, which stay as they were trained on all labels."""
    few = [model.repeat, model.repeat_bias]
    rest = [value for name, value in model.named_parameters() if name not in {*WEIGHTS, "likely_weight"}]
    return [
        {"params": rest, "lr": config.learning_rate, "weight_decay": config.weight_decay},
        {"params": few, "lr": FASTER * config.learning_rate, "weight_decay": 0.0},
    ]


def _start_at_prevalence(model: Propensity, sampler: NegativeSampler) -> None:
    """Without a factor model, every pair starts as likely as the average one: no epochs are spent on that."""
    share = len(sampler.gold.values) / (len(sampler.gold) * len(sampler.live))
    with torch.no_grad():
        model.last.weight.mul_(0.1)
        model.last.bias.fill_(0.0 if model.factors else math.log(share / (1 - share)))


def batch_loss(
    model: Propensity,
    features: UserFeatures,
    sampler: NegativeSampler,
    vectors: Floats,
    rows: Ints,
    rng: np.random.Generator,
) -> Tensor:
    """The mean over pairs. A label is projected once, however many users it is scored for."""
    batch, (gold, gold_rates) = features.gather(rows), sampler.positives(rows)
    wrong, wrong_rates = sampler.negatives(rows, rng)
    labels, rates = np.concatenate([gold, wrong], axis=1), np.concatenate([gold_rates, wrong_rates], axis=1)
    distinct, place = np.unique(labels, return_inverse=True)  # -1, the padding, is the first of them if it is there
    table = model.labels(torch.from_numpy(vectors[distinct]), torch.from_numpy(distinct))
    which = torch.from_numpy(place.reshape(labels.shape))
    users = model.user_projections(user_vectors(model, batch, vectors))
    times, shares = map(torch.from_numpy, features.history_counts(rows, labels, len(vectors)))
    projections = embedding(which, model.label_projections(table))  # indexing trains slower
    trends = torch.from_numpy(batch.trends.of(labels)) if batch.trends else None
    scores = model.score(users[:, None], projections, times, shares, model.label_repeats(table)[which], trends)
    truth = torch.zeros_like(scores)
    truth[:, : gold.shape[1]] = 1
    losses = binary_cross_entropy_with_logits(scores - torch.from_numpy(rates).log(), truth, reduction="none")
    return losses[torch.from_numpy(labels >= 0)].mean()
