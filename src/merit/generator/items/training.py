"""Training of the item generator on all purchases of training users.

A step learns from first positions, by the cross-entropy of the items bought. With `prefixes`, a share of steps reads a
list before, too, and learns from some positions behind it, by the cross-entropy of the labels that are right there,
each counting once. With prefixes of the model's own drawing this is self-correction: what to write next, whatever
already stands there.

On a training purchase the prior is a factor model that has not seen its user (`linear`, folds). Such a model has learnt
from fewer users than the one that serves, so how much of both is trusted is fitted again on validation users.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.random import Generator
from pydantic import Field
from torch import Tensor

from merit.core import console
from merit.core.config import digest
from merit.core.ragged import Ragged, indicators, owners
from merit.core.seeds import stream, torch_stream
from merit.core.tracking import Write
from merit.core.types import Floats, Ints
from merit.generator import checkpoint
from merit.generator.batches import epoch_batches
from merit.generator.items import prefixes
from merit.generator.items.contents import ItemContents
from merit.generator.items.histories import ItemHistories
from merit.generator.items.network import Cache, ItemCandidates, ItemNetwork, label_chances
from merit.generator.items.prefixes import Prefixes
from merit.objective.descent import DescentConfig, backward, descend
from merit.propensity.factor_model import FactorModel
from merit.propensity.negatives import LabelSampler

CHECKED = 2_000  # validation examples


class ItemTrainConfig(DescentConfig):
    """How the network is trained."""

    prefixes: Prefixes = "none"
    """none: a list is written from one state and not read, because it tells the network nothing that it did not know
    (docs/decisions/0019-lists-are-not-read.md); own: prefixes on policy; mixed: the paper's mixture; gold: teacher
    forcing."""
    prefix_share: float = Field(0.2, ge=0, le=1)
    """Of the steps that read prefixes, if any do; the others learn the first position alone, which is much faster."""
    wrong: int = Field(8, ge=0)
    """Labels mixed among the gold ones, with prefixes = "mixed"."""
    steps: int = Field(1_200, ge=1)
    """154,000 purchases: minutes on two cores, enough for all data sets of the grid (docs/decisions/0018-items.md)."""
    batch_size: int = Field(128, ge=1)
    learning_rate: float = Field(1e-3, gt=0)
    weight_decay: float = Field(0.3, ge=0)
    item_decay: float = Field(30.0, ge=0)
    """The same for the vectors that items have beside those of their labels and words: most items are bought rarely."""
    history_dropout: float = Field(0.3, ge=0, lt=1)
    """This share of the items of a history is not read."""
    labels: int = Field(4_096, ge=1)
    """A position behind a list chooses among so many labels; among all live ones where there are no more."""
    items: int = Field(16_384, ge=1)
    """And any position among so many items."""
    places: int = Field(2, ge=1)
    """Of a list that stands before, so many positions are learnt from, drawn anew for every step."""
    checks: int = Field(6, ge=1)
    """Looks at validation users; the weights that predict them best are kept."""
    checkpoint_every: int = Field(200, ge=1)

    @property
    def reads_lists(self) -> bool:
        """Whether what stands in a list changes what is written behind it."""
        return self.prefixes != "none"


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
    bought: Ragged  # items
    prior: FactorPrior

    def __len__(self) -> int:
        return len(self.gold)


class Read(NamedTuple):
    """A batch that the network has read, and among what it chooses."""

    cache: Cache
    mask: Tensor
    vectors: tuple[Tensor, Tensor]  # of items
    offsets: Tensor  # (B, I): repeats and trends of items
    among: ItemCandidates


@dataclass(frozen=True)
class Training:
    """What stays the same from step to step."""

    network: ItemNetwork
    catalogue: ItemContents
    lesson: Lesson
    live: Ints
    config: ItemTrainConfig
    seed: int

    def loss(self, rows: Ints, step: int, prefixed: bool) -> Tensor:
        """The mean over items bought; of labels behind a list, where it is prefixed, as much again."""
        histories, among = self.lesson.histories.gather(rows), self.candidates(self.lesson, rows, step)
        read = self.read(histories, among, self.config.history_dropout)
        items = self.first(read)
        loss = item_loss(items[:, 0], self.lesson.bought.gather(rows), among)
        if not prefixed:
            return loss
        prior, gold = self.lesson.prior.of(histories, rows, among.labels), self.gold(self.lesson, rows, among)
        with torch.no_grad():
            first = self.network.logits(label_chances(items, among), prior)[:, 0]
        logits, right = self.behind(read, prior, first, gold, stream(self.seed, "items-places", step))
        return loss + labels_loss(logits, right, among)

    def read(self, histories: ItemHistories, among: ItemCandidates, dropout: float = 0.0) -> Read:
        """Some histories, without this share of their items."""
        positions, network = histories.positions(), self.network
        offsets = network.offsets(positions, histories.weeks, self.catalogue, among.items)
        if dropout:
            kept = torch.rand(positions.valid.shape) >= dropout
            kept[:, 0] = True
            positions = positions._replace(valid=positions.valid & kept)
        vectors = network.vectors(self.catalogue, among.items)
        return Read(*network.read(positions, self.catalogue), vectors, offsets, among)

    def first(self, read: Read) -> Tensor:
        """(B, 1, I): the logits of items at the position before a list."""
        begin = torch.full((len(read.offsets), 1), prefixes.NONE)
        states, _ = self.network.write(begin, read.cache, read.mask)
        return self.network.item_logits(states, read.vectors, read.offsets)

    def behind(self, read: Read, prior: Tensor, first: Tensor, gold: Tensor, rng: Generator) -> tuple[Tensor, Tensor]:
        """Logits (B, T, C) at some places of a list, behind what stands before, and which labels are right there."""
        network, config, labels = self.network, self.config, torch.from_numpy(read.among.labels)
        columns = prefixes.draw(config.prefixes, first, gold, len(network.step) - 1, config.wrong)
        written = torch.where(columns >= 0, labels[columns.clamp(min=0)], prefixes.NONE)
        begin = torch.full((len(written), 1), prefixes.NONE)
        states, _ = network.write(torch.cat([begin, written], dim=1), read.cache, read.mask)
        places = np.sort(rng.permutation(states.shape[1])[: config.places]).tolist()
        items = network.item_logits(states[:, places], read.vectors, read.offsets)
        logits = network.logits(label_chances(items, read.among), prior)
        said = prefixes.said(columns, len(labels), places)
        return logits.masked_fill(said, -1e9), prefixes.right(config.prefixes, columns, gold, places)

    def gold(self, lesson: Lesson, rows: Ints, among: ItemCandidates) -> Tensor:
        """(B, C): which of the candidates are right."""
        width = int(self.live.max()) + 1
        return torch.from_numpy(indicators(lesson.gold.gather(rows), width)[:, among.labels].toarray() > 0)

    def candidates(self, lesson: Lesson, rows: Ints, step: int) -> ItemCandidates:
        """The items and labels of a step: all, or drawn ones and those that are right."""
        items, labels = self._samplers
        if items.draws >= len(items.live) and labels.draws >= len(labels.live):
            return self._everything
        drawn, weights = items.draw(lesson.bought.take(rows)[0], stream(self.seed, "items", step))
        chosen, label_weights = labels.draw(lesson.gold.take(rows)[0], stream(self.seed, "items-labels", step))
        return ItemCandidates.of(
            self._carries[drawn][:, np.searchsorted(self.live, chosen)], drawn, weights, chosen, label_weights
        )

    def batches(self) -> Iterator[Ints]:
        """Rows of each step, epoch after epoch; those of a batch are of like length."""
        lengths, epoch = self.lesson.histories.lengths(), 0
        while True:
            yield from epoch_batches(lengths, self.config.batch_size, epoch, self.seed)
            epoch += 1

    @cached_property
    def _samplers(self) -> tuple[LabelSampler, LabelSampler]:
        items, config = np.arange(len(self.catalogue.labels)), self.config
        return (
            LabelSampler.of(self.lesson.bought, items, config.items),
            LabelSampler.of(self.lesson.gold, self.live, config.labels),
        )

    @cached_property
    def _everything(self) -> ItemCandidates:
        return ItemCandidates.all(self._carries, self.live)

    @cached_property
    def _carries(self) -> Any:
        return self.catalogue.carries(self.live)


def labels_loss(logits: Tensor, right: Tensor, among: ItemCandidates) -> Tensor:
    """The cross-entropy (B, T, C) of all labels that are right, the mean over them."""
    norm = (logits + among.label_weights).logsumexp(-1)  # (B, T)
    summed = (norm * right.sum(-1)).sum() - logits.masked_fill(~right, 0).sum()
    return summed / right.sum().clamp(min=1)


def item_loss(logits: Tensor, bought: Ragged, among: ItemCandidates) -> Tensor:
    """The cross-entropy (B, I) of the items that are bought, the mean over them."""
    owner, place = torch.from_numpy(owners(bought)), torch.from_numpy(np.searchsorted(among.items, bought.values))
    norm = (logits + among.item_weights).logsumexp(1)
    return (norm[owner] - logits[owner, place]).mean()


def fit(training: Training, judged: Lesson, folder: Path, log: Write = lambda *_: None) -> dict[str, float]:
    """Trains the network in place, with the weights that predict validation users best; the figures of the training.

    Checkpoints go to `folder`; a training that was stopped goes on from the last.
    """
    network, config, steps = training.network, training.config, training.config.steps
    optimizer = torch.optim.AdamW(_groups(network, config), lr=config.learning_rate, betas=(0.9, 0.98))
    identity = f"{digest(config)}-{training.seed}-{len(training.lesson)}"
    file = checkpoint.latest(folder, identity)
    header = checkpoint.restore(file, network, optimizer) if file else {"step": 0, "best": np.inf, "best_step": 0}
    start, best, best_step = int(header["step"]), float(header["best"]), int(header["best_step"])
    checks = {round(steps * (number + 1) / config.checks) for number in range(config.checks)}
    batches = training.batches()
    for _ in range(start):
        next(batches)
    prefixed = stream(training.seed, "items-prefixes").random(steps) < config.prefix_share * config.reads_lists
    network.train()

    def gradients(step: int) -> float:
        rows = next(batches)
        with torch_stream(training.seed, f"items-{step}"):
            loss = training.loss(rows, step, bool(prefixed[step]))
        failure = f"The loss of the generator is not a number at step {step}. Halve item_generator.train.learning_rate."
        return backward(loss, failure)

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
            log("train/loss", loss, step + 1)
            bar(f"loss {np.mean(losses[-50:]):.3f}")
            if step + 1 in checks:
                value = judge(training, judged)
                log("validation/loss", value, step + 1)
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
    fit_trust(training, judged)
    return {"steps": steps, "best_step": best_step, "validation_loss": round(best, 4)}


@torch.no_grad()
def judge(training: Training, judged: Lesson) -> float:
    """The loss of the items that validation users bought."""
    network, total, items = training.network, 0.0, 0
    network.eval()
    for rows in _parts(training, judged):
        among, bought = training.candidates(judged, rows, int(rows[0])), judged.bought.gather(rows)
        logits = training.first(training.read(judged.histories.gather(rows), among))[:, 0]
        total += len(bought.values) * float(item_loss(logits, bought, among))
        items += len(bought.values)
    network.train()
    return total / max(1, items)


def fit_trust(training: Training, judged: Lesson) -> None:
    """Fit α and γ, how much the factor model and the items are trusted, to validation users, in place."""
    network, parts = training.network, []
    with torch.no_grad():
        for rows in _parts(training, judged):
            histories, among = judged.histories.gather(rows), training.candidates(judged, rows, int(rows[0]))
            chances = label_chances(training.first(training.read(histories, among)), among)
            prior, right = judged.prior.of(histories, rows, among.labels), training.gold(judged, rows, among)
            parts.append((chances, prior, right[:, None], among))
    optimizer = torch.optim.LBFGS([network.trust, network.share], max_iter=30, line_search_fn="strong_wolfe")

    def closure() -> Tensor:
        optimizer.zero_grad()
        golds = sum(int(right.sum()) for _, _, right, _ in parts)
        losses = [
            labels_loss(network.logits(chances, prior), right, among) * right.sum() / golds
            for chances, prior, right, among in parts
        ]
        loss = torch.stack(losses).sum()
        loss.backward()  # type: ignore[no-untyped-call]
        return loss

    optimizer.step(closure)  # type: ignore[no-untyped-call]


def _parts(training: Training, judged: Lesson) -> list[Ints]:
    """Validation examples in batches."""
    rows = np.arange(min(len(judged), CHECKED))
    return np.array_split(rows, -(-len(rows) // training.config.batch_size))


def _groups(network: ItemNetwork, config: ItemTrainConfig) -> list[dict[str, object]]:
    """Matrices decay, the vectors of items at a rate of their own; norms, other vectors and the trusts do not."""
    matrices = [value for value in network.parameters() if value.ndim > 1 and value is not network.item]
    return [
        {"params": matrices, "weight_decay": config.weight_decay},
        {"params": [network.item], "weight_decay": config.item_decay},
        {"params": [value for value in network.parameters() if value.ndim <= 1], "weight_decay": 0.0},
    ]
