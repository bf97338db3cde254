"""generator: examples and labels → a trained generator; without mined labels it is stage 1, with them stage 2.

The artifact: the model in the Hugging Face format, tokenizer.json, and a log for TensorBoard.
"""

from __future__ import annotations

import shutil
from contextlib import nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

import numpy as np
import polars as pl
from numpy.typing import NDArray
from pydantic import Field, model_validator
from torch.utils.tensorboard import SummaryWriter

from merit.core import artifacts, console, processes
from merit.core.artifacts import Artifact
from merit.core.config import Frozen
from merit.core.errors import ConfigError, DataError
from merit.core.processes import DevicesConfig
from merit.core.ragged import Ragged, column_lists
from merit.core.seeds import Hashes
from merit.core.stage import checkpoints_of
from merit.core.types import Floats, Ints, Split
from merit.data import texts, tokenizer
from merit.data.labelled import LabelledExamples, joined, label_examples
from merit.data.patches import windows_of
from merit.data.prepare import shards
from merit.data.texts import EncodedShop, TextConfig
from merit.generator import backbone
from merit.generator.backbone import BackboneConfig
from merit.generator.decoding import DecodeConfig, decode
from merit.generator.exposure import after_prefixes
from merit.generator.mining import MiningConfig, keep_mistakes
from merit.generator.training import TrainConfig, train
from merit.labels import space
from merit.labels.build import load_vectors
from merit.labels.space import LabelSpace
from merit.labels.token_paths import Trie
from merit.objective.collate import OBJECTIVES, Corpus, Objective

CHECKED_USERS = 200  # validation users decoded during training: enough to see a trend, few enough not to slow it
CHECKED_BUDGET = 10
ONE = DevicesConfig()
TOGETHER = DecodeConfig().batch_size


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
    """All that decides what this stage makes, apart from the seed and the artifacts it reads."""

    backbone: BackboneConfig = BackboneConfig()
    text: TextConfig = TextConfig()
    train: ObjectiveConfig = ObjectiveConfig()
    label_vectors: bool = False
    """Whether tokens that are whole labels start from their label vectors."""


@dataclass(frozen=True)
class Generator:
    """A trained generator and the shop it speaks of."""

    model: Any
    shop: EncodedShop
    labels: LabelSpace
    trie: Trie
    together: int = TOGETHER
    """Prompts decoded at a time. What is said of one does not depend on its company."""

    def decode(self, prompts: Ragged, config: DecodeConfig, seed: int, keys: Hashes | None = None) -> Ragged:
        """All labels of all samples of each prompt, one after the other. `keys` name the prompts, or places do."""
        rows = [prompts[row] for row in range(len(prompts))]
        words = self.shop.vocabulary
        windows, how = windows_of(prompts), config.model_copy(update={"batch_size": self.together})
        said = decode(self.model, rows, self.trie, words.sep, words.end, how, seed, keys=keys, windows=windows)
        return Ragged.of([[label for sample in samples for label in sample] for samples in said.lists()])


def sampling(config: MiningConfig) -> DecodeConfig:
    """How mistakes are provoked: several samples of each prompt."""
    return DecodeConfig(
        mode="sample", samples=config.samples, temperature=config.temperature, max_labels=config.max_labels
    )


def train_generator(
    examples: Artifact,
    labels: Artifact,
    out: Path,
    config: GeneratorConfig,
    seed: int,
    devices: DevicesConfig = ONE,
    mined: Artifact | None = None,
) -> Artifact:
    """Train and write a generator. A run that was stopped goes on from its last checkpoint."""
    checkpoints = checkpoints_of(out)
    inputs = (examples, labels, mined, config, seed, checkpoints)
    if processes.number():
        _train(*inputs, out)
        processes.wait()
        return artifacts.load(out, "generator")
    parents = {"examples": examples, "labels": labels} | ({"mined": mined} if mined else {})
    with artifacts.writing(out, "generator", config=config, seed=seed, parents=parents) as draft:
        draft.summary |= processes.launch(devices, _train, *inputs, draft.path)
    processes.wait()
    shutil.rmtree(checkpoints, ignore_errors=True)
    return artifacts.load(out, "generator")


def _train(
    examples: Artifact,
    labels: Artifact,
    mined: Artifact | None,
    config: GeneratorConfig,
    seed: int,
    checkpoints: Path,
    folder: Path,
) -> dict[str, Any]:
    """One process's part in a training. The main one writes model and log to `folder`, and tells the figures."""
    fresh = _untrained(examples, labels, config, seed)
    shop = fresh.shop
    model = backbone.adapt(fresh.model, config.backbone, shop.vocabulary, seed)
    text = _corpus(read_labelled(examples, "train", shop), mined, shop, config)
    held_out = read_labelled(examples, "validation", shop)
    checked = fresh, held_out, texts.write_inputs(held_out.items, shop, config.text)
    main = not processes.number()
    with SummaryWriter(str(folder / "log")) if main else nullcontext() as log:
        progress = train(
            model,
            text,
            config.train.resolved(),
            config.train,
            seed,
            checkpoints,
            evaluate=lambda _: _validate(*checked, load_vectors(labels), seed),
            log=log,
            patching=config.text.patching,
        )
    if not main:
        return {}
    backbone.save(model, folder)
    shop.vocabulary.tokenizer.save(str(folder / "tokenizer.json"))
    return {
        "objective": config.train.name,
        "parameters": sum(value.numel() for value in model.parameters()),
        "vocabulary": len(shop.vocabulary),
        "examples": len(text),
        "prompt_tokens": round(float(text.prompts.lengths().mean()), 1),
        **_patches(text),
        "steps": progress.step,
        "tokens": progress.tokens,
    }


def load_generator(
    generator: Artifact, examples: Artifact, labels: Artifact, together: int = TOGETHER
) -> tuple[Generator, GeneratorConfig]:
    """A trained generator, ready to decode over a label space (that of its training, or a later version)."""
    shop, known, config = load_shop(generator, examples, labels)
    return load_model(generator, shop, known, config, together), config


def load_shop(
    generator: Artifact, examples: Artifact, labels: Artifact
) -> tuple[EncodedShop, LabelSpace, GeneratorConfig]:
    """What a trained generator speaks of, without its weights."""
    config = GeneratorConfig.model_validate(generator.manifest.config)
    known = space.load(labels.path)
    vocabulary = tokenizer.load(generator.file("tokenizer.json"))
    return read_shop(examples, labels, known, config, vocabulary), known, config


def load_model(
    generator: Artifact, shop: EncodedShop, known: LabelSpace, config: GeneratorConfig, together: int = TOGETHER
) -> Generator:
    """The weights of a trained generator, beside the shop it speaks of."""
    own = config.backbone.model_copy(update={"name": str(generator.path)})
    model = backbone.make(own, shop.vocabulary, seed=0)
    return Generator(model, shop, known, shop.trie(known.live_mask()), together)


def read_examples(
    examples: Artifact, split: Split, generator: Generator, config: GeneratorConfig
) -> tuple[LabelledExamples, Ragged]:
    """The examples of a split and their prompts."""
    found = read_labelled(examples, split, generator.shop)
    return found, texts.write_inputs(found.items, generator.shop, config.text)


def _untrained(examples: Artifact, labels: Artifact, config: GeneratorConfig, seed: int) -> Generator:
    known = space.load(labels.path)
    shop = read_shop(examples, labels, known, config)
    model = backbone.make(config.backbone, shop.vocabulary, seed)
    context = model.config.max_position_embeddings
    backbone.check_room(config.backbone.name, context, config.text.prompt.budget, config.train.max_target)
    if config.label_vectors:
        if config.backbone.name != backbone.TINY:
            raise ConfigError("label_vectors would overwrite what a pretrained backbone knows. Leave it false.")
        backbone.start_from_vectors(model, _whole_labels(shop, known), load_vectors(labels))
    return Generator(model, shop, known, shop.trie(known.live_mask()))


def read_shop(
    examples: Artifact,
    labels: Artifact,
    known: LabelSpace,
    config: GeneratorConfig,
    vocabulary: tokenizer.Vocabulary | None = None,
) -> EncodedShop:
    """The shop in tokens, in a given vocabulary or in the backbone's own."""
    items = pl.read_parquet(examples.file("items.parquet"))
    medoids = pl.read_parquet(labels.file("clusters.parquet"))["name"].to_list()
    words = vocabulary or _vocabulary(items, known, config.backbone)
    return texts.encode_shop(items, known, medoids, words, config.text)


def _vocabulary(items: pl.DataFrame, known: LabelSpace, config: BackboneConfig) -> tokenizer.Vocabulary:
    """A tiny backbone learns the words of the shop; a pretrained one brings its own."""
    if config.name == backbone.TINY:
        return texts.learn_vocabulary(items, known, config.vocabulary, config.whole_labels)
    return tokenizer.pretrained(backbone.folder(config.name))


def read_labelled(examples: Artifact, split: Split, shop: EncodedShop) -> LabelledExamples:
    """The examples of a split, in labels."""
    with console.spinner(f"reading the {split} examples"):
        return joined(
            label_examples(part.users, part.events, part.examples, split, shop.item_labels) for part in shards(examples)
        )


def _corpus(examples: LabelledExamples, mined: Artifact | None, shop: EncodedShop, config: GeneratorConfig) -> Corpus:
    some, wrong, counts = _mined(mined, len(examples))
    items, gold = examples.items.gather(some), examples.gold.gather(some)
    how, patching = config.text.prompt, config.text.patching
    return Corpus(
        prompts=texts.write_prompts(items, shop, config.text),
        gold=gold,
        mined=wrong,
        mined_counts=counts,
        paths=Ragged(shop.paths.offsets, shop.paths.tokens),
        sep=shop.vocabulary.sep,
        end=shop.vocabulary.end,
        patched=texts.write_patched(items, shop, how, patching) if patching else None,
    )


def _patches(text: Corpus) -> dict[str, float]:
    """How much is read in patches: positions paid for, tokens behind them, and the share of examples with any."""
    if text.patched is None:
        return {}
    saved = len(text.patched.windows.tokens.values) - len(text.patched.windows)
    return {
        "patched_positions": round(float(text.patched.lengths().mean()), 1),
        "patched_tokens": round((len(text.patched.values) + saved) / len(text), 1),
        "patched_examples": round(float(text.patched.some().mean()), 3),
    }


def _mined(mined: Artifact | None, examples: int) -> tuple[Ints, Ragged, NDArray[np.int32]]:
    """Which examples are learnt from, their mined labels, and how many samples said each.

    Where mistakes were mined, from those that were asked about.
    """
    if mined is None:
        return (
            np.arange(examples),
            Ragged(np.zeros(examples + 1, np.int64), np.zeros(0, np.int32)),
            np.zeros(0, np.int32),
        )
    table = pl.read_parquet(mined.file("mined.parquet"))
    if len(table) != examples:
        raise DataError(f"{mined.path} was mined from {len(table)} examples, but there are {examples}. Mine again.")
    some = table.filter("asked")
    labels, counts = (column_lists(some[name]) for name in ("labels", "counts"))
    return np.flatnonzero(table["asked"].to_numpy()), labels, counts.values


def _whole_labels(shop: EncodedShop, known: LabelSpace) -> dict[int, int]:
    """Token id → label id, for labels that are a single token."""
    single = np.flatnonzero(np.diff(shop.paths.offsets) == 1)
    return {int(shop.paths.tokens[shop.paths.offsets[label]]): int(label) for label in single[::-1]}


def _validate(
    generator: Generator, examples: LabelledExamples, prompts: Ragged, vectors: Floats, seed: int
) -> dict[str, float]:
    """Figures of some validation users: recall at a fixed budget, and how much less is found after mistakes."""
    some = np.arange(min(CHECKED_USERS, len(examples)))
    asked, gold, later = (lists.gather(some) for lists in (prompts, examples.gold, examples.later))
    said = generator.decode(asked, DecodeConfig(max_labels=CHECKED_BUDGET, fixed_budget=True), seed)
    mining = MiningConfig()
    mined = keep_mistakes(generator.decode(asked, sampling(mining), seed), gold, later, vectors, mining)
    after_gold, after_mistakes, left = after_prefixes(generator, gold, asked, mined, seed)
    bias = _recall(after_gold, left) - _recall(after_mistakes, left)
    return {"recall": _recall(said, gold), "exposure_bias": bias}


def _recall(said: Ragged, gold: Ragged) -> float:
    """The share of all golds that were said word for word."""
    found = [len(np.intersect1d(said[row], gold[row])) for row in range(len(gold))]
    return sum(found) / max(1, len(gold.values))
