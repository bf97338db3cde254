"""DEXML: the backbone as a dual encoder. A user and a label are read by the same model; the cosine is the score.

The last state of the prompt stands for the user, that of the label's tokens (behind the same closing token) for the
label. Every label is a negative of every user in every step, where they fit; otherwise the golds of the batch and as
many others as fit, drawn anew each step.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from pydantic import Field
from torch import Tensor
from torch.nn.functional import normalize

from merit.baselines import dense, validation
from merit.baselines.budget import Budget
from merit.baselines.dexml_losses import decoupled_softmax, log_soft_top_k, soft_top_k_loss
from merit.baselines.fitting import FitConfig, fit
from merit.baselines.generative import few, fresh, text_of
from merit.baselines.world import Answer, Text, World
from merit.core.config import Frozen
from merit.core.ragged import Ragged
from merit.core.seeds import stream
from merit.core.types import Floats, Ints
from merit.evaluation.predictions import top
from merit.generator import backbone

TEMPERATURE = 0.05
SHOWN = 100  # labels ranked: the paper reports the first 5 and the first 100
CHUNK = 512  # texts encoded together, of like length

Loss = Callable[[Tensor, Tensor], Tensor]  # scores (B, C), positive (B, C) → (B,)
Chances = Callable[[Tensor], Tensor]  # scores (B, C) → how much each label belongs to the user


class DexmlConfig(Frozen):
    """Of both losses; `places` counts for SoftTop-k only."""

    max_labels: int = Field(4096, ge=2)
    """Labels encoded in a step."""
    places: int = Field(5, ge=1)
    """k of SoftTop-k."""
    fit: FitConfig = FitConfig(batch_size=128, learning_rate=1e-3)
    """A large batch: the labels are encoded once a step, however many users they are compared with."""


@dataclass(frozen=True)
class _Encoder:
    model: Any
    users: Ragged
    """Prompts of the training examples."""
    labels: Ragged
    """By label: its tokens and the closing token."""


def dexml_ds(world: World, seed: int, config: DexmlConfig | None = None) -> Answer:
    """With DecoupledSoftmax. For ranking users, scores are a softmax over labels."""
    return _dexml(world, seed, config or DexmlConfig(), decoupled_softmax, lambda scores: scores.softmax(1))


def dexml_stk(world: World, seed: int, config: DexmlConfig | None = None) -> Answer:
    """With SoftTop-k. For ranking users, scores are the parts of the k places."""
    config = config or DexmlConfig()
    places = config.places
    return _dexml(
        world,
        seed,
        config,
        lambda scores, positive: soft_top_k_loss(scores, positive, places),
        lambda scores: log_soft_top_k(scores, places).exp(),
    )


def _dexml(world: World, seed: int, config: DexmlConfig, loss: Loss, chances: Chances) -> Answer:
    budget = Budget(world.seconds)
    text = text_of(world)
    live = np.flatnonzero(world.labels.live_mask())
    encoder = _Encoder(fresh(text, seed), text.train, _closed(text))
    checked = few(text.validation)

    def batch_loss(rows: Ints, epoch: int) -> Tensor:
        rng = stream(seed, "negatives", epoch, int(rows[0]))
        gold = world.train.gold.gather(rows)
        labels = choose_labels(gold, live, config.max_labels, rng)
        scores = (
            _vectors(encoder.model, encoder.users.gather(rows))
            @ _vectors(encoder.model, encoder.labels.gather(labels)).T
        )
        positive = torch.from_numpy(dense.gold_matrix(gold, len(world.labels))[:, labels].toarray() > 0)
        return loss(scores / TEMPERATURE, positive).mean()

    told = fit(
        encoder.model,
        batch_loss,
        text.train.lengths(),
        config.fit,
        seed,
        budget,
        lambda: validation.recall_of_scores(_scores(encoder, checked, live, chances), world),
    )
    scores = _scores(encoder, text.test, live, chances)
    told |= {"predict_seconds": budget.used() - told["train_seconds"]}
    return replace(dense.answer(scores, world, told), ranked=top(scores, live, SHOWN))


def choose_labels(gold: Ragged, live: Ints, most: int, rng: np.random.Generator) -> Ints:
    """The labels of a step, ascending: all live ones where they fit, else the golds and a draw of the others."""
    if len(live) <= most:
        return live
    golds = np.unique(gold.values).astype(np.int64)
    others = np.setdiff1d(live, golds)
    return np.sort(np.concatenate([golds, rng.choice(others, max(1, most - len(golds)), replace=False)]))


def _closed(text: Text) -> Ragged:
    """The tokens of every label, closed like a prompt."""
    paths, words = text.shop.paths, text.shop.vocabulary
    rows = (paths.path(label) for label in range(len(paths.offsets) - 1))
    return Ragged.of([[*row, words.controls.answer] for row in rows])


def _scores(encoder: _Encoder, prompts: Ragged, live: Ints, chances: Chances) -> Floats:
    """(users, labels): zero for labels that may not be said."""
    scores: Floats = np.zeros((len(prompts), len(encoder.labels)), np.float32)
    with torch.inference_mode():
        cosines = _vectors(encoder.model, prompts) @ _vectors(encoder.model, encoder.labels.gather(live)).T
        scores[:, live] = chances(cosines / TEMPERATURE).numpy()
    return scores


def _vectors(model: Any, rows: Ragged) -> Tensor:
    """(rows, width), each of length one: the state of the last token."""
    order = np.argsort(rows.lengths(), kind="stable")
    parts = [order[at : at + CHUNK] for at in range(0, len(order), CHUNK)]
    found = torch.cat([_last_states(model, [rows[row] for row in part]) for part in parts])
    return normalize(found[torch.from_numpy(np.argsort(order))], dim=1)


def _last_states(model: Any, rows: Sequence[NDArray[np.int32]]) -> Tensor:
    """Padded on the right: causal attention never looks there."""
    tokens = torch.nn.utils.rnn.pad_sequence([torch.from_numpy(row.astype(np.int64)) for row in rows], True)
    last = torch.tensor([len(row) - 1 for row in rows])
    return backbone.states(model, tokens)[torch.arange(len(rows)), last]
