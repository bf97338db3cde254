"""Histories of items → the vectors of users who have them, by the model's own weights.

    encoder = open_encoder(model, labels)             # the quick preset: without torch
    encoded = encoder.encode(items, days)             # a row for each history

One path for all who ask about histories that are not stored: explanations, and new histories on demand.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, NamedTuple, Protocol

import numpy as np
import polars as pl
from numpy.typing import NDArray
from safetensors.numpy import load_file

from merit.core import artifacts, extras
from merit.core.artifacts import Artifact
from merit.core.errors import MissingArtifact
from merit.core.ragged import Ragged, offsets_of, owners
from merit.core.types import Floats, Ints
from merit.data.corpus import read_words
from merit.data.title_words import TitleWords
from merit.generator.items.reader import ItemReader, load_reader
from merit.labels import space
from merit.propensity.factor_scorer import FactorWeights
from merit.propensity.features import LikelyLabels, States, UserFeatures, no_states
from merit.propensity.quick import MODEL as SCORER

QUICK = "quick"


class Encoded(NamedTuple):
    """Users with these histories, a row for each."""

    vectors: Floats  # (users, width)
    history: Ragged  # labels, ascending
    times: NDArray[np.int32]  # beside history.values
    likely: LikelyLabels
    likely_weight: float = 0.0


class HistoryEncoder(Protocol):
    """What makes vectors of histories."""

    def encode(self, items: Ragged, days: Ragged, named: Ragged | None = None) -> Encoded:
        """Of items, oldest first, and the days since each; `named` are labels besides, those of titles."""

    def ages(self, days: Ragged) -> Ragged:
        """What is read of the days, so that the same items and ages are encoded the same."""


def preset_of(model: Artifact) -> str:
    """The preset that made a model."""
    return str(model.manifest.summary.get("preset", "standard"))


def needs_torch(model: Artifact) -> bool:
    """Whether histories are read in torch: by a generator that reads text, or for a scorer of states."""
    if preset_of(model) == QUICK or not model.file("generator").exists():
        return False
    folders = {"generator": "generator", "propensity": "propensity"}
    generator, propensity = (
        artifacts.load(model.file(name), kind, verify=False).manifest.config for name, kind in folders.items()
    )
    return "network" not in generator or bool(propensity["model"]["states"])


@artifacts.opens
def open_encoder(model: Artifact, labels: Artifact) -> HistoryEncoder:
    """The encoder of a model over its label space, or over a later version."""
    catalogue = pl.read_parquet(model.file("items.parquet"))
    propensity = artifacts.load(model.file("propensity"), "propensity", verify=False)
    arrays = load_file(propensity.file(SCORER))
    if preset_of(model) == QUICK:
        item_labels = Ragged(*space.item_labels(space.load(labels.path), catalogue))
        return QuickEncoder(FactorWeights.of(arrays), item_labels)
    if not (folder := model.file("generator")).exists():
        raise MissingArtifact(
            f"{model.path} has no generator, which reads histories. Make the model again with `merit run`."
        )
    generator = artifacts.load(folder, "generator", verify=False)
    title_words = TitleWords.of(read_words(propensity), catalogue["title"])
    if not needs_torch(model):
        reader, likely = load_reader(generator, labels, catalogue), int(propensity.manifest.summary["likely"])
        return ItemsEncoder(reader, FactorWeights.of(arrays), title_words, likely, float(arrays["likely_weight"]))
    with extras.needed_by("A generator that reads text, or a scorer of states,"):
        from merit.generator.model import load_over_items
        from merit.propensity.train import load_scorer

    over_items = load_over_items(generator, catalogue, labels)
    return GeneratorEncoder(over_items, load_scorer(propensity, labels), title_words)


@dataclass(frozen=True)
class QuickEncoder:
    """That of the quick preset: the factors of the labels in a history, added up."""

    weights: FactorWeights
    item_labels: Ragged

    def encode(self, items: Ragged, days: Ragged, named: Ragged | None = None) -> Encoded:
        """Days count for nothing here."""
        history, times = count_labels(items, self.item_labels, named)
        features = UserFeatures(no_states(len(items)), history, times)
        none = LikelyLabels(Ragged.empty(len(items)), np.zeros(0, np.float32))
        return Encoded(self.weights.users(features), history, times, none)

    def ages(self, days: Ragged) -> Ragged:
        """Nothing."""
        return Ragged.empty(len(days))


@dataclass(frozen=True)
class ItemsEncoder:
    """That of the standard preset: factors of labels and title words, and what its generator finds likely."""

    reader: ItemReader
    weights: FactorWeights
    words: TitleWords
    likely: int
    """Likely labels that are read, at most."""
    likely_weight: float

    def encode(self, items: Ragged, days: Ragged, named: Ragged | None = None) -> Encoded:
        """In numpy, block by block."""
        history, times = count_labels(items, self.reader.catalogue.labels, named)
        features = UserFeatures(no_states(len(items)), history, times, self.words.in_histories(items))
        likely = self.reader.likely(items, days, self.likely)
        return Encoded(self.weights.users(features), history, times, likely, self.likely_weight)

    def ages(self, days: Ragged) -> Ragged:
        """Those of the generator."""
        return self.reader.ages(days)


@dataclass(frozen=True)
class GeneratorEncoder:
    """That of a generator that reads text, or of a scorer of its states, in torch."""

    generator: Any
    scorer: Any
    words: TitleWords

    def encode(self, items: Ragged, days: Ragged, named: Ragged | None = None) -> Encoded:
        """All histories in one batch."""
        history, times = count_labels(items, self.generator.item_labels, named)
        features = UserFeatures(no_states(len(items)), history, times, self.words.in_histories(items))
        inputs, model = self.generator.inputs_of(items, days, features), self.scorer.model
        if model.reads_states:
            values, counts = self.generator.states(inputs, self.scorer.labels)
            features = replace(features, states=States(values.astype(np.float16), counts))
        likely = LikelyLabels(*self.generator.likely(inputs, self.scorer.likely))
        return Encoded(self.scorer.vectors(features).numpy(), history, times, likely, model.likely_weight.item())

    def ages(self, days: Ragged) -> Ragged:
        """Those of the generator."""
        ages: Ragged = self.generator.ages(days)
        return ages


def count_labels(items: Ragged, item_labels: Ragged, named: Ragged | None = None) -> tuple[Ragged, NDArray[np.int32]]:
    """The labels of each history, each once and ascending, and how often."""
    labels, sizes = item_labels.take(items.values)
    owner: Ints = np.repeat(owners(items), sizes)
    if named is not None:
        owner, labels = np.concatenate([owner, owners(named)]), np.concatenate([labels, named.values])
    width = 1 + int(labels.max(initial=0))
    keys, times = np.unique(owner * width + labels, return_counts=True)
    history = Ragged(offsets_of(np.bincount(keys // width, minlength=len(items))), (keys % width).astype(np.int32))
    return history, times.astype(np.int32)
