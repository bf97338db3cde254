"""A trained generator: its settings, its weights beside the shop they were trained on, and decoding with them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Protocol, Self

import numpy as np
import polars as pl
from numpy.typing import NDArray
from pydantic import Field, model_validator

from merit.core import artifacts
from merit.core.artifacts import Artifact
from merit.core.config import Frozen
from merit.core.ragged import Ragged
from merit.core.seeds import Hashes
from merit.core.types import Floats
from merit.data import tokenizer
from merit.data.corpus import input_columns, inputs_of
from merit.data.patches import windows_of, with_windows_of
from merit.data.texts import TOKENIZER, EncodedShop, TextConfig, encode_shop, read_shop, write_inputs
from merit.generator import backbone
from merit.generator.backbone import BackboneConfig
from merit.generator.decoding import DecodeConfig, Decoded, decode
from merit.generator.items.histories import COLUMNS
from merit.generator.items.model import ItemsConfig, load_items
from merit.generator.training import TrainConfig
from merit.labels import space
from merit.labels.space import LabelSpace
from merit.labels.token_paths import Trie
from merit.objective.collate import OBJECTIVES, Objective
from merit.propensity.features import UserFeatures

DECODE_BATCH = DecodeConfig().batch_size


class ObjectiveConfig(TrainConfig):
    """How a generator is trained: what for, and for how long."""

    objective: str = "self-correction"
    """teacher-forcing, permutation-invariance, cross-entropy-invariance or self-correction."""
    beta: float | None = Field(None, ge=0, le=1)
    """Overrides the objective's own temper. Teacher forcing has one right token at a time, and none to temper."""

    @model_validator(mode="before")
    @classmethod
    def _tempered(cls, given: Any) -> Any:
        chosen = OBJECTIVES.get(str(given.get("objective"))) if isinstance(given, dict) else None
        return {key: value for key, value in given.items() if key != "beta"} if chosen and not chosen.sets else given

    @model_validator(mode="after")
    def _known(self) -> Self:
        if self.objective not in OBJECTIVES:
            raise ValueError(f"there is no objective '{self.objective}'; known: {', '.join(OBJECTIVES)}")
        return self

    @property
    def name(self) -> str:
        """What tables call a generator trained like this."""
        return self.objective if self.beta is None else f"{self.objective} (β = {self.beta:g})"

    def resolved(self) -> Objective:
        """The objective by its name, with `beta` in place of its own where that is given."""
        chosen = OBJECTIVES[self.objective]
        return chosen if self.beta is None else chosen.model_copy(update={"beta": self.beta})


class GeneratorConfig(Frozen):
    """The settings of a generator."""

    backbone: BackboneConfig = BackboneConfig()
    text: TextConfig = TextConfig()
    train: ObjectiveConfig = ObjectiveConfig()


class TrainedGenerator(Protocol):
    """What all generators can do. What they read of a user is their own affair."""

    @property
    def name(self) -> str:
        """What tables call it."""

    @property
    def item_labels(self) -> Ragged:
        """By item: its labels."""

    def inputs(self, rows: pl.DataFrame, /) -> Any:
        """What it reads of rows of the corpus, which have its columns (`columns_of`)."""

    def inputs_of(self, items: Ragged, days: Ragged, features: UserFeatures, /) -> Any:
        """What it reads of other histories: items, oldest first, and the days from each to now."""

    def ages(self, days: Ragged, /) -> Ragged:
        """What of these days it reads: equal items of equal ages are read equally."""

    def to(self, device: str, /) -> Self:
        """Itself, on a device."""

    def decode(
        self, inputs: Any, config: DecodeConfig, seed: int, /, keys: Hashes | None = None, written: Ragged | None = None
    ) -> Ragged:
        """All labels of all samples of each user, behind labels that are `written` already."""

    def states(self, inputs: Any, labels: int, /) -> tuple[Floats, NDArray[np.int32]]:
        """(users, labels, width): states that choose the first labels; how many there are."""

    def likely(self, inputs: Any, most: int, /) -> tuple[Ragged, Floats]:
        """By user: likely labels, and the logarithm of how likely each is, over what is left out."""


@dataclass(frozen=True)
class Generator:
    """A language model and the shop it was trained on."""

    model: Any
    shop: EncodedShop
    labels: LabelSpace
    trie: Trie
    text: TextConfig
    batch_size: int = DECODE_BATCH
    """Prompts decoded at a time. The labels of a prompt do not depend on the others of its batch."""

    @staticmethod
    def of(
        model: Any,
        shop: EncodedShop,
        labels: LabelSpace,
        text: TextConfig,
        batch_size: int = DECODE_BATCH,
        name: str = "",
    ) -> Generator:
        """A generator that decodes the live labels of a space."""
        return Generator(model, shop, labels, shop.trie(labels.live_mask()), text, batch_size, name)

    name: str = ""
    """What tables call it."""

    @property
    def item_labels(self) -> Ragged:
        """By item: its live labels."""
        return self.shop.item_labels

    def inputs(self, rows: pl.DataFrame) -> Ragged:
        """The prompts of these rows of the corpus."""
        return inputs_of(rows)

    def inputs_of(self, items: Ragged, days: Ragged, features: UserFeatures) -> Ragged:
        """The prompts of histories, which are items in order of time; text tells of no more than these."""
        return write_inputs(items, self.shop, self.text)

    def ages(self, days: Ragged) -> Ragged:
        """Nothing: text tells of no times."""
        return Ragged.empty(len(days))

    def to(self, device: str) -> Generator:
        """Itself, with its weights on that device."""
        self.model.to(device)
        return self

    def decode(
        self,
        prompts: Ragged,
        config: DecodeConfig,
        seed: int,
        keys: Hashes | None = None,
        written: Ragged | None = None,
    ) -> Ragged:
        """All labels of all samples of each prompt, behind labels that are `written` already.

        Samples are drawn by `keys`, or by the rows of the prompts.
        """
        if written is not None:
            prompts = self._continued(prompts, written)
        samples = self._decoded(prompts, config, seed, keys=keys).lists()
        return Ragged.of([[label for sample in row for label in sample] for row in samples])

    def states(self, prompts: Ragged, labels: int) -> tuple[Floats, NDArray[np.int32]]:
        """(prompts, labels, width): states at the classification positions of the first labels; how many there are."""
        config = DecodeConfig(max_labels=labels, fixed_budget=True)
        decoded = self._decoded(prompts, config, seed=0, states=labels)
        return decoded.states[:, 0], decoded.counts[:, 0]

    def likely(self, prompts: Ragged, most: int) -> tuple[Ragged, Floats]:
        """None: a language model knows how likely a first token is, and not a label."""
        return Ragged.empty(len(prompts)), np.zeros(0, np.float32)

    def _continued(self, prompts: Ragged, written: Ragged) -> Ragged:
        """Prompts with these labels behind them, as the generator itself would have written them."""
        paths, sep = self.shop.paths, self.shop.vocabulary.sep
        tokens = [
            [token for label in written[row] for token in (*paths.path(label), sep)] for row in range(len(written))
        ]
        return with_windows_of(prompts, Ragged.of([[*prompts[row], *behind] for row, behind in enumerate(tokens)]))

    def _decoded(self, prompts: Ragged, config: DecodeConfig, seed: int, **more: Any) -> Decoded:
        rows, words = [prompts[row] for row in range(len(prompts))], self.shop.vocabulary
        batched, windows = config.model_copy(update={"batch_size": self.batch_size}), windows_of(prompts)
        return decode(self.model, rows, self.trie, words.sep, words.end, batched, seed, windows=windows, **more)


@artifacts.opens
def load_generator(
    generator: Artifact, corpus: Artifact, labels: Artifact, batch_size: int = DECODE_BATCH
) -> TrainedGenerator:
    """A trained generator over the corpus it was trained on."""
    if reads_items(generator):
        return load_items(generator, corpus, labels)
    return load_weights(generator, read_shop(corpus), space.load(labels.path), batch_size)


@artifacts.opens
def load_over_items(generator: Artifact, items: pl.DataFrame, labels: Artifact) -> TrainedGenerator:
    """A trained generator over some items and its label space, or a later version of that space."""
    if reads_items(generator):
        return load_items(generator, None, labels, items)
    words, label_space = tokenizer.load(generator.file(TOKENIZER)), space.load(labels.path)
    shop = encode_shop(items, labels, label_space, words, settings_of(generator).text)
    return load_weights(generator, shop, label_space)


@artifacts.opens
def load_weights(
    generator: Artifact, shop: EncodedShop, labels: LabelSpace, batch_size: int = DECODE_BATCH
) -> Generator:
    """The weights of a trained generator, beside the shop."""
    config = settings_of(generator)
    weights = config.backbone.model_copy(update={"name": str(generator.path)})
    model = backbone.make(weights, shop.vocabulary, seed=0)
    return Generator.of(model, shop, labels, config.text, batch_size, config.train.name)


def reads_items(generator: Artifact) -> bool:
    """Whether it is a network over items, and not a language model."""
    return "network" in generator.manifest.config


def columns_of(generator: Artifact, corpus: Artifact) -> Sequence[str]:
    """The columns of the corpus that a generator reads."""
    return COLUMNS if reads_items(generator) else input_columns(corpus)


def settings_of(generator: Artifact) -> GeneratorConfig:
    """The settings that a language model was trained with."""
    return GeneratorConfig.model_validate(generator.manifest.config)


def name_of(generator: Artifact) -> str:
    """What tables call a trained generator."""
    if reads_items(generator):
        return ItemsConfig.model_validate(generator.manifest.config).name
    return settings_of(generator).train.name
