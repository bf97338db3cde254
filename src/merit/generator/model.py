"""A trained generator: its settings, its weights beside the shop they were trained on, and decoding with them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Self

import numpy as np
import polars as pl
from numpy.typing import NDArray
from pydantic import Field, model_validator

from merit.core.artifacts import Artifact
from merit.core.config import Frozen
from merit.core.ragged import Ragged
from merit.core.seeds import Hashes
from merit.core.types import Floats
from merit.data import tokenizer
from merit.data.patches import windows_of
from merit.data.texts import TOKENIZER, EncodedShop, TextConfig, encode_shop, read_shop, write_inputs
from merit.generator import backbone
from merit.generator.backbone import BackboneConfig
from merit.generator.decoding import DecodeConfig, Decoded, decode
from merit.generator.training import TrainConfig
from merit.labels import space
from merit.labels.space import LabelSpace
from merit.labels.token_paths import Trie
from merit.objective.collate import OBJECTIVES, Objective

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
    label_vectors: bool = False
    """Whether tokens that are whole labels start from their label vectors."""


@dataclass(frozen=True)
class Generator:
    """A generator and the shop it was trained on."""

    model: Any
    shop: EncodedShop
    labels: LabelSpace
    trie: Trie
    text: TextConfig
    batch_size: int = DECODE_BATCH
    """Prompts decoded at a time. The labels of a prompt do not depend on the others of its batch."""

    @staticmethod
    def of(
        model: Any, shop: EncodedShop, labels: LabelSpace, text: TextConfig, batch_size: int = DECODE_BATCH
    ) -> Generator:
        """A generator that decodes the live labels of a space."""
        return Generator(model, shop, labels, shop.trie(labels.live_mask()), text, batch_size)

    def prompts(self, histories: Ragged) -> Ragged:
        """The prompts of histories, which are items in order of time."""
        return write_inputs(histories, self.shop, self.text)

    def decode(self, prompts: Ragged, config: DecodeConfig, seed: int, keys: Hashes | None = None) -> Ragged:
        """All labels of all samples of each prompt. Samples are drawn by `keys`, or by the rows of the prompts."""
        samples = self._decoded(prompts, config, seed, keys=keys).lists()
        return Ragged.of([[label for sample in row for label in sample] for row in samples])

    def states(self, prompts: Ragged, labels: int) -> tuple[Floats, NDArray[np.int32]]:
        """(prompts, labels, width): states at the classification positions of the first labels; how many there are."""
        config = DecodeConfig(max_labels=labels, fixed_budget=True)
        decoded = self._decoded(prompts, config, seed=0, states=labels)
        return decoded.states[:, 0], decoded.counts[:, 0]

    def _decoded(self, prompts: Ragged, config: DecodeConfig, seed: int, **more: Any) -> Decoded:
        rows, words = [prompts[row] for row in range(len(prompts))], self.shop.vocabulary
        batched, windows = config.model_copy(update={"batch_size": self.batch_size}), windows_of(prompts)
        return decode(self.model, rows, self.trie, words.sep, words.end, batched, seed, windows=windows, **more)


def load_generator(
    generator: Artifact, corpus: Artifact, labels: Artifact, batch_size: int = DECODE_BATCH
) -> Generator:
    """A trained generator over the corpus it was trained on."""
    return load_weights(generator, read_shop(corpus), space.load(labels.path), batch_size)


def load_over_items(generator: Artifact, items: pl.DataFrame, labels: Artifact) -> Generator:
    """A trained generator over some items and its label space, or a later version of that space."""
    words, label_space = tokenizer.load(generator.file(TOKENIZER)), space.load(labels.path)
    shop = encode_shop(items, labels, label_space, words, settings_of(generator).text)
    return load_weights(generator, shop, label_space)


def load_weights(
    generator: Artifact, shop: EncodedShop, labels: LabelSpace, batch_size: int = DECODE_BATCH
) -> Generator:
    """The weights of a trained generator, beside the shop."""
    config = settings_of(generator)
    weights = config.backbone.model_copy(update={"name": str(generator.path)})
    return Generator.of(backbone.make(weights, shop.vocabulary, seed=0), shop, labels, config.text, batch_size)


def settings_of(generator: Artifact) -> GeneratorConfig:
    """The settings that a generator was trained with."""
    return GeneratorConfig.model_validate(generator.manifest.config)
