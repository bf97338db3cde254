"""Training of the item generator on all purchases of training users.

The loss of a position is the cross-entropy of the labels that are right there, each gold label counting once. At first
positions this is a regression of what is bought on what came before; behind prefixes of the model's own drawing it is
self-correction: what to write next, whatever already stands there.

On a training purchase the model starts from a factor model that has not seen its user (`linear`, folds).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import numpy as np
import torch
from pydantic import Field
from torch import Tensor

from merit.core import console
from merit.core.config import digest
from merit.core.ragged import Ragged, indicators
from merit.core.seeds import stream, torch_stream
from merit.core.types import Floats, Ints
from merit.generator import checkpoint
from merit.generator.batches import epoch_batches
from merit.generator.items import prefixes
from merit.generator.items.histories import ItemHistories
from merit.generator.items.network import ItemContents, ItemNetwork
from merit.generator.items.prefixes import Prefixes
from merit.objective.descent import DescentConfig, backward, descend
from merit.propensity.factor_model import FactorModel
from merit.propensity.negatives import LabelSampler

CHECKED = 2_000  # validation examples


class ItemTrainConfig(DescentConfig):
    """How the network is trained."""

    prefixes: Prefixes = "own"
    """own: prefixes on policy; mixed: the paper's mixture; gold: teacher forcing."""
    prefix_share: float = Field(0.3, ge=0, le=1)
    """Of the steps that read prefixes; the others learn the first label alone, which is much faster."""
    wrong: int = Field(8, ge=0)
    """Labels mixed among the gold ones, with prefixes = "mixed"."""
    epochs: float = Field(3.0, gt=0)
    batch_size: int = Field(128, ge=1)
    learning_rate: float = Field(1e-3, gt=0)
    weight_decay: float = Field(0.3, ge=0)
    history_dropout: float = Field(0.3, ge=0, lt=1)
    """This share of the items of a history is not read."""
    labels: int = Field(4_096, ge=1)
    """A step chooses among so many labels; among all live ones where there are no more."""
    checks: int = Field(6, ge=1)
    """Looks at validation users; the weights that predict them best are kept."""
    checkpoint_every: int = Field(200, ge=1)


@dataclass(frozen=True)
class FactorPrior:
    """Factor models, and which of them scores a row."""

    models: Sequence[FactorModel]
    vectors: Floats
    fold: Ints | None = None
    """By row: which of the models; without it the only one."""

    @torch.no_grad()
    def of(self, histories: ItemHistories, rows: Ints, labels: Ints) -> Tensor:
        """(B, C): log-odds of these labels (ascending) for rows, whose histories are given."""
        texts = torch.from_numpy(self.vectors[labels])
        fold = np.zeros(len(rows), np.int64) if self.fold is None else self.fold[rows]
        scores = torch.empty(len(rows), len(labels))
        for number in np.unique(fold):
            part = np.flatnonzero(fold == number)
            scores[part] = self.models[number].grid(histories.features.gather(part), texts, labels)
        return scores


@dataclass(frozen=True)
class Lesson:
    """Purchases to learn from, or to be judged by."""

    histories: ItemHistories
    gold: Ragged
    prior: FactorPrior

    def __len__(self) -> int:
        return len(self.gold)


@dataclass(frozen=True)
class Outputs:
    """Labels among which a step chooses."""

    labels: Ints  # ascending
    log_weights: Tensor  # (C,): how many labels each stands for
    factors: Tensor  # (C, R)

    @staticmethod
    def of(labels: Ints, weights: Floats, factors: Tensor) -> Outputs:
        """Drawn labels; gold ones that were not drawn stand for themselves."""
        return Outputs(labels, torch.from_numpy(np.maximum(weights, 1.0)).log(), factors[torch.from_numpy(labels)])


@dataclass(frozen=True)
class Training:
    """What stays the same from step to step."""

    network: ItemNetwork
    catalogue: ItemContents
    factors: Tensor  # (labels, R)
    lesson: Lesson
    live: Ints
    config: ItemTrainConfig
    seed: int

    @cached_property
    def sampler(self) -> LabelSampler:
        """Draws the labels of a step."""
        return LabelSampler.of(self.lesson.gold, self.live, self.config.labels)

    @property
    def steps(self) -> int:
        """Of the whole training."""
        return max(1, round(self.config.epochs * len(self.lesson) / self.config.batch_size))

    def loss(self, lesson: Lesson, rows: Ints, outputs: Outputs, prefixed: bool) -> Tensor:
        """The mean over positions and gold labels."""
        part, labels = lesson.histories.gather(rows), outputs.labels
        positions = part.positions()
        if self.network.training and self.config.history_dropout:
            kept = torch.rand(positions.valid.shape) >= self.config.history_dropout
            kept[:, 0] = True
            positions = positions._replace(valid=positions.valid & kept)
        cache, mask = self.network.read(positions, self.catalogue)
        prior = lesson.prior.of(part, rows, labels)
        gold = torch.from_numpy(indicators(lesson.gold.gather(rows), int(self.live.max()) + 1)[:, labels].toarray() > 0)
        begin = torch.full((len(rows), 1), prefixes.NONE)
        if prefixed:
            with torch.no_grad():
                first = self.network.logits(self.network.write(begin, cache, mask)[0], prior, outputs.factors)[:, 0]
            most = len(self.network.step) - 1
            columns = prefixes.draw(self.config.prefixes, first, gold, most, self.config.wrong)
        else:
            columns = begin[:, :0]
        read = torch.where(columns >= 0, torch.from_numpy(labels)[columns.clamp(min=0)], prefixes.NONE)
        states, _ = self.network.write(torch.cat([begin, read], dim=1), cache, mask)
        logits = self.network.logits(states, prior, outputs.factors)
        logits = logits.masked_fill(prefixes.said(columns, len(labels)), -1e9)
        right = prefixes.right(self.config.prefixes, columns, gold) if prefixed else gold[:, None]
        norm = (logits + outputs.log_weights).logsumexp(-1)  # (B, T)
        return (norm * right.sum(-1)).sub(logits.masked_fill(~right, 0).sum(-1)).sum() / right.sum().clamp(min=1)

    def drawn(self, gold: Ragged, rows: Ints, step: int) -> Outputs:
        """The labels of a step."""
        labels, weights = self.sampler.draw(gold.take(rows)[0], stream(self.seed, "items-labels", step))
        return Outputs.of(labels, weights, self.factors)

    def batches(self) -> Iterator[Ints]:
        """Rows of each step, epoch after epoch; those of a batch are of like length."""
        lengths, epoch = self.lesson.histories.lengths(), 0
        while True:
            yield from epoch_batches(lengths, self.config.batch_size, epoch, self.seed)
            epoch += 1


def fit(training: Training, judged: Lesson, folder: Path) -> dict[str, float]:
    """Trains the network in place, with the weights that predict validation users best; the figures of the training.

    Checkpoints go to `folder`; a training that was stopped goes on from the last.
    """
    network, config, steps = training.network, training.config, training.steps
    optimizer = torch.optim.AdamW(_groups(network, config), lr=config.learning_rate, betas=(0.9, 0.98))
    identity = f"{digest(config)}-{training.seed}-{len(training.lesson)}"
    file = checkpoint.latest(folder, identity)
    header = checkpoint.restore(file, network, optimizer) if file else {"step": 0, "best": np.inf, "best_step": 0}
    start, best, best_step = int(header["step"]), float(header["best"]), int(header["best_step"])
    checks = {round(steps * (number + 1) / config.checks) for number in range(config.checks)}
    batches = training.batches()
    for _ in range(start):
        next(batches)
    share = stream(training.seed, "items-prefixes").random(steps) < config.prefix_share
    network.train()

    def gradients(step: int) -> float:
        rows = next(batches)
        with torch_stream(training.seed, f"items-{step}"):
            loss = training.loss(
                training.lesson, rows, training.drawn(training.lesson.gold, rows, step), bool(share[step])
            )
        return backward(
            loss, f"The loss of the generator is not a number at step {step}. Halve items.train.learning_rate."
        )

    def rate(step: int) -> float:
        warm = max(1, round(config.warmup * steps))
        late = config.rate_after_warmup((step - warm) / max(1, steps - warm))
        return config.learning_rate * (step + 1) / warm if step < warm else late

    def clip() -> object:
        return torch.nn.utils.clip_grad_norm_(network.parameters(), config.clip)

    losses: list[float] = []
    with console.steps("training the generator", steps, start) as bar:
        for step, loss in descend(optimizer, range(start, steps), gradients, clip, rate):
            losses.append(loss)
            bar(f"loss {np.mean(losses[-50:]):.3f}")
            if step + 1 in checks:
                value = judge(training, judged)
                if value < best:
                    best, best_step = value, step + 1
                    progress = {"step": step + 1, "digest": identity}
                    checkpoint.save(folder / "best.safetensors", network, None, progress)
            if (step + 1) % config.checkpoint_every == 0:
                progress = {"step": step + 1, "best": best, "best_step": best_step, "digest": identity}
                checkpoint.save(folder / f"step-{step + 1:07}.safetensors", network, optimizer, progress)
    if best_step:
        checkpoint.restore(folder / "best.safetensors", network, None)
    network.eval()
    return {"steps": steps, "best_step": best_step, "validation_loss": round(best, 4)}


@torch.no_grad()
def judge(training: Training, lesson: Lesson) -> float:
    """The loss of the first label on examples of validation users."""
    network, rows = training.network, np.arange(min(len(lesson), CHECKED))
    network.eval()
    total = 0.0
    for part in np.array_split(rows, -(-len(rows) // training.config.batch_size)):
        outputs = training.drawn(lesson.gold, part, int(part[0]))
        golds = int(lesson.gold.sizes(part).sum())
        total += golds * float(training.loss(lesson, part, outputs, prefixed=False))
    network.train()
    return total / max(1, int(lesson.gold.sizes(rows).sum()))


def _groups(network: ItemNetwork, config: ItemTrainConfig) -> list[dict[str, object]]:
    """Matrices decay; norms, other vectors and the trust in the factor model do not."""
    weights = list(network.parameters())
    return [
        {"params": [value for value in weights if value.ndim > 1], "weight_decay": config.weight_decay},
        {"params": [value for value in weights if value.ndim <= 1], "weight_decay": 0.0},
    ]
