"""factors: a corpus → the factor model, trained against all labels.

The artifact: model.safetensors, and with folds fold-N.safetensors, a model of all training users but those of fold N:
what the generator starts from on their purchases, so that it learns what the factor model leaves and not what it has
learnt by heart.

A pair costs a few dozen multiplications here, and thousands in the MLP. So a batch of users is scored for every live
label, or in a large space for a few thousand that they share, and a few epochs are enough.

Training starts at a ridge regression from the labels of histories to the next ones. With X the histories and Y the
golds of training users, W = (XᵀX + strength)⁻¹ XᵀY has a closed form, and its best approximation of low rank, U S Vᵀ,
is a factor model already: U √S are history factors, V √S label factors. What is left to learn is what a linear model
does not know (docs/decisions/0012-start-at-the-ridge.md).
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
import torch
from pydantic import Field
from safetensors.torch import load_file, save_file
from torch import Tensor
from torch.nn.functional import softplus

from merit.core import artifacts
from merit.core.artifacts import Artifact
from merit.core.config import Frozen
from merit.core.ragged import Ragged
from merit.core.seeds import stream, torch_stream
from merit.core.types import Floats, Ints
from merit.data.corpus import purchases_table, read_table, read_words
from merit.labels import space
from merit.labels.build import load_vectors
from merit.propensity.epochs import FASTER, train_epochs
from merit.propensity.factor_model import FactorModel, grid_spots
from merit.propensity.features import UserFeatures, read_purchases
from merit.propensity.negatives import LabelSampler
from merit.propensity.ridge import RidgeConfig, fold_of_users, ridge_factors

STEPS = 50  # of an epoch, at least
MODEL = "model.safetensors"


class FactorsConfig(Frozen):
    """How the factor model is trained, before all else of the model."""

    epochs: int = Field(4, ge=1)
    batch_size: int = Field(256, ge=1)
    """At most: an epoch has 50 steps where there are users for it."""
    learning_rate: float = Field(3e-3, gt=0)
    weight_decay: float = Field(1.0, ge=0)
    """Of the shortest training, which has 50 steps an epoch; each step of a longer one decays by so much less that
    all steps together decay as much."""
    dropout: float = Field(0.3, ge=0, lt=1)
    """Of the summed factors of histories."""
    labels: int = Field(4_096, ge=1)
    """A batch is scored for so many labels; for all live ones where there are no more."""
    dropped: float = Field(0.3, ge=0, lt=1)
    """This share of a batch's labels goes without its own factors, so that texts learn to stand alone."""
    ridge: RidgeConfig = RidgeConfig()
    """Where the factors start."""


class FactorsRun(Frozen):
    """The settings of this stage."""

    size: int = Field(128, ge=0)
    """Factors of a label; 0 for no factor model."""
    fit: FactorsConfig = FactorsConfig()
    folds: int = Field(0, ge=0)
    """Of training users; 0 for none."""


def train_factors(corpus: Artifact, labels: Artifact, out: Path, config: FactorsRun, seed: int) -> Artifact:
    """The factor model, and one for each fold of training users without them."""
    vectors, live = load_vectors(labels), space.load(labels.path).live_mask()
    gold, features = read_purchases(corpus)
    fold = folds_of(corpus, config.folds, seed)
    words = len(read_words(corpus))

    def trained(rows: Ints) -> tuple[FactorModel, list[float]]:
        with torch_stream(seed, "factors-weights"):
            model = FactorModel(config.size, vectors.shape[1], torch.from_numpy(live), words)
        part = (features.gather(rows), gold.gather(rows))
        return model, fit_factors(model, *part, np.flatnonzero(live), vectors, config.fit, seed)

    parents = {"corpus": corpus, "labels": labels}
    with artifacts.writing(out, "factors", config=config, seed=seed, parents=parents) as draft:
        model, losses = trained(np.arange(len(gold)))
        save_file(model.state_dict(), draft.path / MODEL)
        for number in range(config.folds):
            save_file(trained(np.flatnonzero(fold != number))[0].state_dict(), draft.path / fold_file(number))
        draft.summary |= {
            "purchases": len(gold),
            "losses": [round(loss, 4) for loss in losses],
            "parameters": sum(value.numel() for value in model.parameters()),
        }
    return artifacts.load(out, "factors")


def folds_of(corpus: Artifact, folds: int, seed: int) -> Ints:
    """The fold of each purchase that the factor model learns from: all of a user are in one."""
    return fold_of_users(read_table(corpus, purchases_table(corpus), "user_id")["user_id"].to_list(), folds, seed)


def fold_file(number: int) -> str:
    """The name of the file with the model of all users but those of this fold."""
    return f"fold-{number}.safetensors"


@artifacts.opens
def load_factors(factors: Artifact, name: str = MODEL) -> FactorModel:
    """The factor model, or the one in another file of the artifact."""
    weights = load_file(factors.file(name))
    words = len(weights["word_factors"])
    size, width = weights["of_text"].shape
    model = FactorModel(size, width, weights["trained"], words)
    model.load_state_dict(weights)
    return model.eval()


def fit_factors(
    model: FactorModel,
    features: UserFeatures,
    gold: Ragged,
    live: Ints,
    vectors: Floats,
    config: FactorsConfig,
    seed: int,
) -> list[float]:
    """The mean loss of every epoch; factors and the weights about repeats are trained in place."""
    if not model.factors:
        return []
    sampler = LabelSampler.of(gold, live, config.labels)
    _start_at_popularity(model, gold)
    _start_at_the_ridge(model, features, gold, config.ridge, seed)

    def loss(rows: Ints, epoch: int, start: int) -> Tensor:
        sampled = sampler.draw(gold.take(rows)[0], stream(seed, "factors-labels", epoch, start))
        return factors_loss(model, features, gold, vectors, rows, sampled, config.dropped, config.dropout)

    size = max(1, min(config.batch_size, len(features) // STEPS))
    steps = config.epochs * -(-len(features) // size)
    factors = [model.label_factors, model.history_factors, model.word_factors, model.of_text, model.bias]
    few = [model.repeat, model.repeat_bias, model.trend_weight]
    groups = [
        {"params": factors, "lr": config.learning_rate},
        {"params": few, "lr": FASTER * config.learning_rate, "weight_decay": 0.0},
    ]
    decay = config.weight_decay * min(1.0, config.epochs * STEPS / steps)
    return train_epochs("factors", groups, loss, len(features), config.epochs, size, seed, decay)


def factors_loss(
    model: FactorModel,
    features: UserFeatures,
    gold: Ragged,
    vectors: Floats,
    rows: Ints,
    sampled: tuple[Ints, Floats],
    dropped: float = 0.0,
    dropout: float = 0.0,
) -> Tensor:
    """Binary cross-entropy of a user with all labels, the mean over users; sampled labels stand for the others."""
    labels, weights = sampled
    scores = model.grid(features.gather(rows), torch.from_numpy(vectors[labels]), labels, dropped, dropout)
    right, _ = grid_spots(gold.gather(rows), labels)
    wrong = torch.from_numpy(weights).repeat(len(rows))
    wrong[right] = 0
    flat = scores.flatten()
    return ((softplus(flat) * wrong).sum() + softplus(-flat[right]).sum()) / len(rows)


def _start_at_popularity(model: FactorModel, gold: Ragged) -> None:
    """Every pair starts as likely as the average one; a label's last factor is how far the label is from that."""
    often = np.log(np.maximum(np.bincount(gold.values, minlength=len(model.label_factors)), 0.5) / len(gold))
    average = float(often[model.trained.numpy()].mean())
    with torch.no_grad():
        model.bias.fill_(average)
        model.label_factors[:, -1] = torch.from_numpy(often - average).float()


def _start_at_the_ridge(
    model: FactorModel, features: UserFeatures, gold: Ragged, config: RidgeConfig, seed: int
) -> None:
    """History and label factors, all but popularity, start as a regression solved in closed form."""
    rank = model.history_factors.shape[1]
    if not (config.weight and rank):
        return
    factors = ridge_factors(features.history, features.times, gold, len(model.label_factors), rank, config, seed)
    labels, history, label = map(torch.from_numpy, factors)
    with torch.no_grad():
        model.history_factors[labels, : history.shape[1]] = history
        model.label_factors[labels, : label.shape[1]] = label
