"""A trained item generator: its artifact, and its lists and states for users.

The artifact: network.safetensors, factors.safetensors (the factor model it starts from), words.json, trends.npy (of
items at the end of the data), and curve.json: the calibrated probability of a label by what the network gave it when
it was written, which tells where a list ends.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import polars as pl
import torch
from numpy.typing import NDArray
from safetensors.torch import load_file
from torch import Tensor

from merit.core import artifacts
from merit.core.artifacts import Artifact
from merit.core.config import Frozen
from merit.core.ragged import Ragged, offsets_of
from merit.core.seeds import Hashes, derive, mix, unit_interval
from merit.core.types import Floats, Ints
from merit.data.corpus import item_trends, read_words
from merit.data.trends import ItemTrends
from merit.generator.decoding import DecodeConfig
from merit.generator.items.contents import (
    CURVE,
    FACTORS,
    ITEM_TRENDS,
    LIKELY,
    NETWORK,
    ItemContents,
    age_steps,
    catalogue_of,
)
from merit.generator.items.histories import ItemHistories
from merit.generator.items.network import (
    Cache,
    ItemCandidates,
    ItemNetwork,
    NetworkConfig,
    label_chances,
    product,
)
from merit.generator.items.prefixes import Prefixes
from merit.generator.items.training import FactorPrior, ItemTrainConfig
from merit.labels import space
from merit.labels.build import load_vectors
from merit.propensity.calibration import CalibrationCurve
from merit.propensity.factor_model import FactorModel
from merit.propensity.features import UserFeatures
from merit.propensity.lengths import best_lengths

NAMES: dict[Prefixes, str] = {
    "none": "item generator",
    "own": "self-correction on policy",
    "mixed": "self-correction on the mixture",
    "gold": "teacher forcing on items",
}
GRID = 1 << 23  # scores of users and labels, or users and items, that are computed at a time


class ItemsConfig(Frozen):
    """The settings of an item generator."""

    network: NetworkConfig = NetworkConfig()
    train: ItemTrainConfig = ItemTrainConfig()

    @property
    def name(self) -> str:
        """What tables call a generator trained like this."""
        return NAMES[self.train.prefixes]


@dataclass(frozen=True)
class ItemLists:
    """A row for each user and sample."""

    labels: Ints  # (n, T), in the order written
    log_probs: Floats  # (n, T)
    states: Floats  # (n, T, width): those that chose the labels


@dataclass(frozen=True)
class ItemGenerator:
    """A network over the items of a shop."""

    network: ItemNetwork
    catalogue: ItemContents
    prior: FactorPrior
    live: Ints
    config: ItemsConfig
    corpus: Artifact | None = None
    """Whose rows it reads."""
    curve: CalibrationCurve | None = None
    expected: float = 1.0
    """Labels of a purchase, on average."""

    @property
    def name(self) -> str:
        """What tables call it."""
        return self.config.name

    @property
    def item_labels(self) -> Ragged:
        """By item: its labels."""
        return self.catalogue.labels

    def inputs(self, rows: pl.DataFrame) -> ItemHistories:
        """What the network reads of these rows of the corpus."""
        assert self.corpus is not None
        return ItemHistories.of(self.corpus, rows, self.config.network.positions)

    def inputs_of(self, items: Ragged, days: Ragged, features: UserFeatures) -> ItemHistories:
        """What it reads of users who are not in the corpus: their items, oldest first, with the days since."""
        most = self.config.network.positions
        return ItemHistories(items.tail(most), days.tail(most), features)

    def ages(self, days: Ragged) -> Ragged:
        """What it reads of the days since each item of a history."""
        read = days.tail(self.config.network.positions)
        return Ragged(read.offsets, age_steps(read.values).astype(np.int32))

    def to(self, device: str) -> ItemGenerator:
        """Itself: so small a network stays on the CPU, beside the factor model."""
        return self

    def decode(
        self,
        inputs: ItemHistories,
        config: DecodeConfig,
        seed: int,
        keys: Hashes | None = None,
        written: Ragged | None = None,
    ) -> Ragged:
        """All labels of all samples of each user, behind labels that are `written` already."""
        lists = Ragged.empty(0)
        parts = []
        for rows in self.blocks(len(inputs), config.width if config.mode == "sample" else 1):
            before = written.gather(rows) if written else None
            noise = None
            if config.mode == "sample":
                names = rows.astype(np.uint64) if keys is None else keys[rows]
                noise = _noise(names, config, seed)
            if config.mode == "beam":
                parts.append(self._first(inputs.gather(rows), config.beams))
                continue
            found = self.lists(inputs.gather(rows), config.max_labels, noise, config.temperature, before)
            sizes = np.full(len(found.labels), found.labels.shape[1])
            if not config.fixed_budget and self.curve:
                sizes = np.maximum(self._lengths(found.log_probs), min(config.min_labels, config.max_labels))
            kept = np.arange(found.labels.shape[1]) < sizes[:, None]
            per_user = np.bincount(np.arange(len(sizes)) // config.width, weights=sizes).astype(np.int64)
            parts.append(Ragged(offsets_of(per_user), found.labels[kept].astype(np.int32)))
        for part in parts:
            values = np.concatenate([lists.values, part.values])
            lists = Ragged(offsets_of(np.concatenate([lists.lengths(), part.lengths()])), values)
        return lists

    def states(self, inputs: ItemHistories, labels: int) -> tuple[Floats, NDArray[np.int32]]:
        """(users, labels, width): states at the classification positions of the first labels; how many there are."""
        width = self.config.network.width
        values = np.zeros((len(inputs), labels, width), np.float32)
        for rows in self.blocks(len(inputs), 1):
            found = self.lists(inputs.gather(rows), labels).states
            values[rows, : found.shape[1]] = found
        return values, np.full(len(inputs), min(labels, len(self.live)), np.int32)

    @torch.inference_mode()
    def likely(self, inputs: ItemHistories, most: int) -> tuple[Ragged, Floats]:
        """By user: the labels that the next item most likely carries, and the logarithm of how likely over LIKELY."""
        labels, values, sizes = [], [], []
        for rows in self.blocks(len(inputs), 1):
            items, _ = self._first_items(inputs.gather(rows))
            chances, columns = label_chances(items, self._candidates)[:, 0].topk(min(most, len(self.live)))
            kept = chances > LIKELY
            labels.append(self.live[columns[kept].numpy()])
            values.append((chances[kept] / LIKELY).log().numpy())
            sizes.append(kept.sum(1).numpy())
        lists = Ragged(offsets_of(np.concatenate(sizes)), np.concatenate(labels).astype(np.int32))
        return lists, np.concatenate(values)

    @torch.inference_mode()
    def lists(
        self,
        inputs: ItemHistories,
        most: int,
        noise: Tensor | None = None,
        temperature: float = 1.0,
        written: Ragged | None = None,
    ) -> ItemLists:
        """So many labels of each user: always the best next one, or one drawn by `noise` (users, samples, labels)."""
        network, samples, among = self.network, 1 if noise is None else noise.shape[1], self._candidates
        cache, mask, offsets = self._read(inputs)
        prior = self.prior.of(inputs, np.arange(len(inputs)), self.live).repeat_interleave(samples, 0)
        cache = [(key.repeat_interleave(samples, 0), value.repeat_interleave(samples, 0)) for key, value in cache]
        mask, offsets = mask.repeat_interleave(samples, 0), offsets.repeat_interleave(samples, 0)
        said = torch.zeros(prior.shape, dtype=torch.bool)
        token, rows = torch.full((len(prior), 1), -1), torch.arange(len(prior))
        steps = min(most, prior.shape[1] - (int(written.lengths().max(initial=0)) if written else 0))
        reads = self.config.train.reads_lists
        for label in _columns(written, self.live, samples) if written else ():  # NONE where a list is shorter
            said[rows[label >= 0], label[label >= 0]] = True
            if reads:
                _, cache = network.write(token, cache, mask)
                token = torch.where(label >= 0, torch.from_numpy(self.live)[label], -1)[:, None]
        chosen, chances, kept = [], [], []
        for step in range(steps):
            if reads or not step:
                states, cache = network.write(token, cache, mask)
                by_items = label_chances(network.item_logits(states, self._vectors, offsets), among)
                scores = network.logits(by_items, prior)[:, 0]
            logits = scores.masked_fill(said, -torch.inf)
            if noise is None:
                column = logits.argmax(1)
            else:
                reached = (logits / temperature).softmax(1).cumsum(1, dtype=torch.float64)
                column = torch.searchsorted(reached, noise.flatten(0, 1)[:, step : step + 1] * reached[:, -1:])[:, 0]
                column = column.clamp(max=logits.shape[1] - 1)
            chances.append(logits.log_softmax(1)[rows, column])
            chosen.append(column)
            kept.append(states[:, 0])
            said[rows, column] = True
            token = torch.from_numpy(self.live)[column][:, None]
        columns = torch.stack(chosen, 1).numpy()
        return ItemLists(self.live[columns], torch.stack(chances, 1).numpy(), torch.stack(kept, 1).numpy())

    @torch.inference_mode()
    def likelihood(self, inputs: ItemHistories) -> Callable[[Ints], Floats]:
        """A function that gives the probability of labels (ascending) as the first one of each user, zero if blocked.

        (users, labels): what is kept is a state and two norms of each user, whatever the number of labels.
        """
        parts = [inputs.gather(rows) for rows in self.blocks(len(inputs), 1)]
        norms = torch.cat([self._first_norms(part) for part in parts])

        @torch.inference_mode()
        def chances(labels: Ints) -> Floats:
            live = np.flatnonzero(np.isin(labels, self.live))
            grid = np.zeros((len(inputs), len(labels)), np.float32)
            among, start = self._among(labels[live]), 0
            for part in parts:
                rows = slice(start, start + len(part))
                grid[rows, live] = (self._first_logits(part, among) - norms[rows, None]).exp().numpy()
                start = rows.stop
            return grid

        return chances

    def _first_norms(self, inputs: ItemHistories) -> Tensor:
        """(users,): the logarithm of the sum over all live labels."""
        return self._first_logits(inputs, self._candidates).logsumexp(1)

    def _first_logits(self, inputs: ItemHistories, among: ItemCandidates) -> Tensor:
        """(users, labels): of the first position. All items are in the norm, whatever labels are asked for."""
        items, norm = self._first_items(inputs)
        chances = (items[:, 0, among.items] - norm).exp()
        by_items = product(among.carried, chances.T).T
        prior = self.prior.of(inputs, np.arange(len(inputs)), among.labels)
        return self.network.logits(by_items[:, None], prior)[:, 0]

    def _first_items(self, inputs: ItemHistories) -> tuple[Tensor, Tensor]:
        """(users, 1, items): the logits of items at the first position; (users, 1): their norm."""
        cache, mask, offsets = self._read(inputs)
        states, _ = self.network.write(torch.full((len(inputs), 1), -1), cache, mask)
        items = self.network.item_logits(states, self._vectors, offsets)
        return items, items.logsumexp(-1)

    def _read(self, inputs: ItemHistories) -> tuple[Cache, Tensor, Tensor]:
        """Keys and values, their mask, and (users, items) what repeats and trends add."""
        positions = inputs.positions()
        offsets = self.network.offsets(positions, inputs.weeks, self.catalogue, self._candidates.items)
        return *self.network.read(positions, self.catalogue), offsets

    def _among(self, labels: Ints) -> ItemCandidates:
        """These labels, and the items that carry any of them."""
        carries = self.catalogue.carries(labels)
        items = np.flatnonzero(np.diff(carries.indptr))
        ones = [np.ones(len(rows), np.float32) for rows in (items, labels)]
        return ItemCandidates.of(carries[items], items, ones[0], labels, ones[1])

    @cached_property
    def _candidates(self) -> ItemCandidates:
        return ItemCandidates.all(self.catalogue.carries(self.live), self.live)

    @cached_property
    def _vectors(self) -> tuple[Tensor, Tensor]:
        with torch.inference_mode():
            return self.network.vectors(self.catalogue, self._candidates.items)

    def _first(self, inputs: ItemHistories, most: int) -> Ragged:
        """The most likely first labels of each user."""
        chances = torch.from_numpy(self.likelihood(inputs)(self.live))
        best = chances.topk(min(most, chances.shape[1])).indices.numpy()
        return Ragged(offsets_of(np.full(len(best), best.shape[1])), self.live[best].ravel().astype(np.int32))

    def _lengths(self, log_probs: Floats) -> Ints:
        assert self.curve is not None
        chances = self.curve.probability(log_odds(log_probs))
        return best_lengths(chances, np.full(len(chances), self.expected))

    def blocks(self, users: int, samples: int) -> Iterator[Ints]:
        """Rows that are decoded at a time."""
        size = max(1, min(256, GRID // (samples * max(len(self.live), len(self.item_labels)))))
        return (np.arange(at, min(at + size, users)) for at in range(0, users, size))


@artifacts.opens
def load_items(
    generator: Artifact, corpus: Artifact | None, labels: Artifact, items: pl.DataFrame | None = None
) -> ItemGenerator:
    """A trained item generator over the corpus it was trained on, or over some items."""
    config, label_space = ItemsConfig.model_validate(generator.manifest.config), space.load(labels.path)
    factors = load_file(generator.file(FACTORS))
    size, width = factors["of_text"].shape
    model = FactorModel(size, width, factors["trained"], len(factors["word_factors"]))
    model.load_state_dict(factors)
    weights = load_file(generator.file(NETWORK))
    network = ItemNetwork(config.network, len(weights["label"]), len(weights["word"]), len(weights["item"]))
    network.load_state_dict(weights)
    prior = FactorPrior([model.eval()], load_vectors(labels))
    curve = json.loads(generator.file(CURVE).read_text(encoding="utf-8"))
    expected = float(curve.pop("expected"))
    if items is None:
        assert corpus is not None
        items, trends = pl.read_parquet(corpus.file("items.parquet")), item_trends(corpus)
    else:
        trends = ItemTrends(np.load(generator.file(ITEM_TRENDS), allow_pickle=False))
    words = read_words(generator)
    catalogue = catalogue_of(items, label_space, words, trends, len(weights["label"]))
    live = np.flatnonzero(label_space.live_mask())
    return ItemGenerator(network.eval(), catalogue, prior, live, config, corpus, CalibrationCurve(**curve), expected)


def log_odds(log_probs: Floats) -> Floats:
    """The log-odds of probabilities, given by their logarithms."""
    odds: Floats = log_probs - np.log(-np.expm1(np.minimum(log_probs, -1e-6)))
    return odds


def _noise(names: Hashes, config: DecodeConfig, seed: int) -> Tensor:
    """(users, samples, labels): a uniform number for every draw."""
    samples, steps = (np.arange(size, dtype=np.uint64) for size in (config.samples, config.max_labels))
    streams = mix(derive(names, seed, "decode")[:, None], samples)
    return torch.from_numpy(unit_interval(mix(streams[..., None], steps)))


def _columns(written: Ragged, live: Ints, samples: int) -> Iterator[Tensor]:
    """Label after label of the lists, as columns among the live ones; -1 where a list is shorter."""
    padded = written.padded()
    columns = np.where(padded >= 0, np.searchsorted(live, np.maximum(padded, 0)), -1)
    return (torch.from_numpy(column).repeat_interleave(samples) for column in columns.T)
