"""A trained item generator: its artifact, and its lists and states for users.

The artifact: network.safetensors, factors.safetensors (the factor model it starts from), words.json, and curve.json:
the calibrated probability of a label by what the network gave it when it was written. It tells where a list ends.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np
import polars as pl
import torch
from numpy.typing import NDArray
from safetensors.torch import load_file, save_file
from torch import Tensor

from merit.core import artifacts
from merit.core.artifacts import Artifact
from merit.core.config import Frozen
from merit.core.ragged import Ragged, column_lists, offsets_of, pair_keys
from merit.core.seeds import Hashes, derive, mix, torch_stream, unit_interval
from merit.core.stage import checkpoints_of
from merit.core.types import Floats, Ints
from merit.data.corpus import WORDS, purchases_table, read_table
from merit.data.texts import read_shop
from merit.data.title_words import TitleWords
from merit.generator.decoding import DecodeConfig
from merit.generator.items.histories import COLUMNS, ItemHistories
from merit.generator.items.network import Catalogue, ItemNetwork, NetworkConfig
from merit.generator.items.training import ItemTrainConfig, Lesson, Prior, Training, fit
from merit.labels import space
from merit.labels.build import load_vectors
from merit.propensity.calibration import CalibrationCurve, ScoreTally, calibrate
from merit.propensity.factor_model import FactorModel
from merit.propensity.lengths import best_lengths
from merit.propensity.linear import FactorsRun, fold_file, folds_of, load_factors

NETWORK, FACTORS, CURVE = "network.safetensors", "factors.safetensors", "curve.json"
GRID = 1 << 23  # scores of users and labels that are computed at a time


class ItemsConfig(Frozen):
    """The settings of an item generator."""

    network: NetworkConfig = NetworkConfig()
    train: ItemTrainConfig = ItemTrainConfig()

    @property
    def name(self) -> str:
        """What tables call a generator trained like this."""
        return {"own": "self-correction", "mixed": "self-correction (mixture)", "gold": "teacher-forcing"}[
            self.train.prefixes
        ]


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
    catalogue: Catalogue
    prior: Prior
    live: Ints
    corpus: Artifact
    config: ItemsConfig
    curve: CalibrationCurve | None = None
    expected: float = 1.0
    """Labels of a purchase, on average."""

    @property
    def columns(self) -> tuple[str, ...]:
        """What is read of the corpus for a user."""
        return COLUMNS

    def inputs(self, rows: pl.DataFrame) -> ItemHistories:
        """What the network reads of these rows of the corpus."""
        return ItemHistories.of(self.corpus, rows, self.config.network.positions)

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
        for rows in self._blocks(len(inputs), config.width if config.mode == "sample" else 1):
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
        for rows in self._blocks(len(inputs), 1):
            found = self.lists(inputs.gather(rows), labels).states
            values[rows, : found.shape[1]] = found
        return values, np.full(len(inputs), min(labels, len(self.live)), np.int32)

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
        network, samples = self.network, 1 if noise is None else noise.shape[1]
        cache, mask = network.read(inputs.positions(), self.catalogue)
        prior = self.prior.of(inputs, np.arange(len(inputs)), self.live).repeat_interleave(samples, 0)
        cache = [(key.repeat_interleave(samples, 0), value.repeat_interleave(samples, 0)) for key, value in cache]
        mask, factors = mask.repeat_interleave(samples, 0), self._factors()
        said = torch.zeros(prior.shape, dtype=torch.bool)
        token, rows = torch.full((len(prior), 1), -1), torch.arange(len(prior))
        steps = min(most, prior.shape[1] - (int(written.lengths().max(initial=0)) if written else 0))
        for label in _columns(written, self.live, samples) if written else ():  # NONE where a list is shorter
            _, cache = network.write(token, cache, mask)
            said[rows[label >= 0], label[label >= 0]] = True
            token = torch.where(label >= 0, torch.from_numpy(self.live)[label], -1)[:, None]
        chosen, chances, kept = [], [], []
        for step in range(steps):
            states, cache = network.write(token, cache, mask)
            logits = network.logits(states, prior, factors)[:, 0].masked_fill(said, -torch.inf)
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
    def first_chances(self, inputs: ItemHistories) -> Floats:
        """(users, live labels): the probability of each label as the first one."""
        cache, mask = self.network.read(inputs.positions(), self.catalogue)
        prior = self.prior.of(inputs, np.arange(len(inputs)), self.live)
        states, _ = self.network.write(torch.full((len(inputs), 1), -1), cache, mask)
        chances: Floats = self.network.logits(states, prior, self._factors())[:, 0].softmax(1).numpy()
        return chances

    def _first(self, inputs: ItemHistories, most: int) -> Ragged:
        """The most likely first labels of each user."""
        chances = torch.from_numpy(self.first_chances(inputs))
        best = chances.topk(min(most, chances.shape[1])).indices.numpy()
        return Ragged(offsets_of(np.full(len(best), best.shape[1])), self.live[best].ravel().astype(np.int32))

    def _lengths(self, log_probs: Floats) -> Ints:
        assert self.curve is not None
        chances = self.curve.probability(_log_odds(log_probs))
        return best_lengths(chances, np.full(len(chances), self.expected))

    def _factors(self) -> Tensor:
        return label_factors(self.prior.models[0], self.prior.vectors)[torch.from_numpy(self.live)]

    def _blocks(self, users: int, samples: int) -> Iterator[Ints]:
        size = max(1, min(256, GRID // (samples * len(self.live))))
        return (np.arange(at, min(at + size, users)) for at in range(0, users, size))


@torch.no_grad()
def label_factors(model: FactorModel, vectors: Floats) -> Tensor:
    """(C, R): the factors of all labels, of a tenth of the length that random ones would have at full width."""
    factors = model.full_label_factors(model.labels(torch.from_numpy(vectors), torch.arange(len(vectors))))
    scaled: Tensor = factors * (0.1 * factors.shape[1] ** 0.5 / factors.norm(dim=1).mean().clamp(min=1e-6))
    return scaled


def train_items(
    corpus: Artifact, factors: Artifact, labels: Artifact, out: Path, config: ItemsConfig, seed: int
) -> Artifact:
    """The trained item generator. A training that was stopped goes on from its last checkpoint."""
    checkpoints, parents = checkpoints_of(out), {"corpus": corpus, "factors": factors, "labels": labels}
    with artifacts.writing(out, "generator", config=config, seed=seed, parents=parents) as draft:
        vectors, label_space, model = load_vectors(labels), space.load(labels.path), load_factors(factors)
        catalogue = read_catalogue(corpus, len(label_space))
        words = len(json.loads(corpus.file(WORDS).read_text(encoding="utf-8")))
        with torch_stream(seed, "items-weights"):
            network = ItemNetwork(config.network, len(label_space), words, model.factors)
        live = np.flatnonzero(label_space.live_mask())
        folds = FactorsRun.model_validate(factors.manifest.config).folds
        models = [load_factors(factors, fold_file(number)) for number in range(folds)] or [model]

        def lesson(split: str, prior: Prior) -> Lesson:
            rows = read_table(corpus, split, "gold", *(name for name in COLUMNS if name != "gold"))
            return Lesson(ItemHistories.of(corpus, rows, config.network.positions), column_lists(rows["gold"]), prior)

        learnt = lesson(purchases_table(corpus), Prior(models, vectors, folds_of(corpus, max(1, folds), seed)))
        judged = lesson("validation", Prior([model], vectors))
        training = Training(network, catalogue, label_factors(model, vectors), learnt, live, config.train, seed)
        figures = fit(training, judged, checkpoints)
        generator = ItemGenerator(network, catalogue, judged.prior, live, corpus, config)
        curve = _calibrated(generator, judged)
        save_file(network.state_dict(), draft.path / NETWORK)
        save_file(model.state_dict(), draft.path / FACTORS)
        shutil.copyfile(corpus.file(WORDS), draft.path / WORDS)
        expected = float(judged.gold.lengths().mean())
        (draft.path / CURVE).write_text(json.dumps(asdict(curve) | {"expected": expected}), encoding="utf-8")
        draft.summary |= figures | {
            "objective": config.name,
            "parameters": sum(value.numel() for value in network.parameters()),
            "examples": len(learnt),
            "trust": round(float(network.trust.detach()), 3),
        }
    shutil.rmtree(checkpoints, ignore_errors=True)
    return artifacts.load(out, "generator")


def load_items(generator: Artifact, corpus: Artifact, labels: Artifact) -> ItemGenerator:
    """A trained item generator over the corpus it was trained on."""
    config, label_space = ItemsConfig.model_validate(generator.manifest.config), space.load(labels.path)
    weights = load_file(generator.file(NETWORK))
    network = ItemNetwork(config.network, len(weights["label"]), len(weights["word"]), len(weights["correct.weight"]))
    network.load_state_dict(weights)
    factors = load_file(generator.file(FACTORS))
    size, width = factors["of_text"].shape
    model = FactorModel(size, width, factors["trained"], len(factors["word_factors"]))
    model.load_state_dict(factors)
    prior = Prior([model.eval()], load_vectors(labels))
    curve = json.loads(generator.file(CURVE).read_text(encoding="utf-8"))
    expected = float(curve.pop("expected"))
    catalogue = read_catalogue(corpus, len(weights["label"]))
    live = np.flatnonzero(label_space.live_mask())
    return ItemGenerator(network.eval(), catalogue, prior, live, corpus, config, CalibrationCurve(**curve), expected)


def read_catalogue(corpus: Artifact, labels: int) -> Catalogue:
    """Labels and title words of every item; labels newer than the first so many are left out."""
    carried, words = read_shop(corpus).item_labels, json.loads(corpus.file(WORDS).read_text(encoding="utf-8"))
    kept = carried.values < labels
    owner = np.repeat(np.arange(len(carried)), carried.lengths())[kept]
    sizes = np.bincount(owner, minlength=len(carried)).astype(np.int64)
    titles = pl.read_parquet(corpus.file("items.parquet"), columns=["title"])["title"]
    return Catalogue(Ragged(offsets_of(sizes), carried.values[kept]), TitleWords.of(words, titles).of_item)


def _calibrated(generator: ItemGenerator, lesson: Lesson, budget: int = 20) -> CalibrationCurve:
    """The share of written labels that are right, by their probability when they were written."""
    tally = ScoreTally()
    golds = pair_keys(lesson.gold, 1 + int(generator.live.max()))
    for rows in generator._blocks(len(lesson), 1):
        found = generator.lists(lesson.histories.gather(rows), budget)
        keys = rows[:, None] * (1 + int(generator.live.max())) + found.labels
        tally.add(_log_odds(found.log_probs).ravel(), np.isin(keys, golds).ravel())
    return calibrate(tally)


def _log_odds(log_probs: Floats) -> Floats:
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
