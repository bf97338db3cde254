"""generator: a corpus → a trained generator; without mined labels it is stage 1, with them stage 2.

The artifact: the model in the Hugging Face format, tokenizer.json, and a log of losses and evaluations.
"""

from __future__ import annotations

import shutil
from collections.abc import Sequence
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl

from merit.core import artifacts, console, processes, tracking
from merit.core.artifacts import Artifact
from merit.core.processes import DevicesConfig
from merit.core.ragged import Ragged, column_lists
from merit.core.stage import checkpoints_of
from merit.core.tracking import Tracker
from merit.core.types import Floats
from merit.data.corpus import inputs_of, read_inputs, read_table
from merit.data.patches import Patched
from merit.data.texts import TOKENIZER, EncodedShop, read_shop
from merit.evaluation.predictions import recall
from merit.generator import backbone
from merit.generator.decoding import DecodeConfig
from merit.generator.exposure import after_prefixes
from merit.generator.mining import MiningConfig, keep_mistakes, read_mined, sampling
from merit.generator.model import Generator, GeneratorConfig
from merit.generator.training import train
from merit.labels import space
from merit.labels.build import load_vectors
from merit.objective.collate import Corpus

CHECKED_USERS = 200  # validation users decoded during training: enough to see a trend, few enough not to slow it
CHECKED_BUDGET = 10
ONE = DevicesConfig()


def train_generator(
    corpus: Artifact,
    labels: Artifact,
    out: Path,
    config: GeneratorConfig,
    seed: int,
    devices: DevicesConfig = ONE,
    mined: Artifact | None = None,
    trackers: Sequence[Tracker] = (),
) -> Artifact:
    """The trained generator. A training that was stopped goes on from its last checkpoint."""
    checkpoints = checkpoints_of(out)
    inputs = (corpus, labels, mined, config, seed, checkpoints, trackers, out.name)
    if processes.number():
        _train(*inputs, out)
        processes.wait()
        return artifacts.load(out, "generator")
    parents = {"corpus": corpus, "labels": labels} | ({"mined": mined} if mined else {})
    with artifacts.writing(out, "generator", config=config, seed=seed, parents=parents) as draft:
        draft.summary |= processes.launch(devices, _train, *inputs, draft.path)
    processes.wait()
    shutil.rmtree(checkpoints, ignore_errors=True)
    return artifacts.load(out, "generator")


def _train(
    corpus: Artifact,
    labels: Artifact,
    mined: Artifact | None,
    config: GeneratorConfig,
    seed: int,
    checkpoints: Path,
    trackers: Sequence[Tracker],
    name: str,
    folder: Path,
) -> dict[str, Any]:
    """Train in one of the processes. The main one writes model and log to `folder` and returns the summary."""
    with console.spinner("reading the corpus"):
        vectors = load_vectors(labels)
        generator = _untrained(corpus, labels, config, seed)
        words = generator.shop.vocabulary
        text = _training_corpus(corpus, mined, generator.shop)
        validation = read_table(corpus, "validation"), read_inputs(corpus, "validation")
    model = backbone.adapt(generator.model, config.backbone, words, seed)
    main = not processes.number()
    with tracking.open_log(folder, name, trackers) if main else nullcontext() as log:
        progress = train(
            model,
            text,
            config.train.resolved(),
            config.train,
            seed,
            checkpoints,
            evaluate=lambda _: _validate(generator, *validation, vectors, seed),
            log=log,
            patching=config.text.patching,
        )
    if not main:
        return {}
    backbone.save(model, folder)
    shutil.copyfile(corpus.file(TOKENIZER), folder / TOKENIZER)
    return {
        "objective": config.train.name,
        "parameters": sum(value.numel() for value in model.parameters()),
        "vocabulary": len(words),
        "examples": len(text),
        "prompt_tokens": round(float(text.prompts.lengths().mean()), 1),
        **_patches(text),
        "steps": progress.step,
        "tokens": progress.tokens,
    }


def _untrained(corpus: Artifact, labels: Artifact, config: GeneratorConfig, seed: int) -> Generator:
    shop = read_shop(corpus)
    model = backbone.make(config.backbone, shop.vocabulary, seed, shop.paths)
    context = model.config.max_position_embeddings
    backbone.check_room(config.backbone.name, context, config.text.prompt.budget, config.train.max_target)
    return Generator.of(model, shop, space.load(labels.path), config.text)


def _training_corpus(corpus: Artifact, mined: Artifact | None, shop: EncodedShop) -> Corpus:
    """The examples to learn from: where labels were mined, those that were sampled for it."""
    table = read_table(corpus, "train")
    wrong, counts = Ragged.empty(len(table)), Ragged.empty(len(table))
    if mined:
        sampled = read_mined(mined, len(table))
        table, sampled = table.filter(sampled["sampled"]), sampled.filter("sampled")
        wrong, counts = (column_lists(sampled[name]) for name in ("labels", "counts"))
    patched = inputs_of(table)
    return Corpus(
        prompts=column_lists(table["prompt"]),
        gold=column_lists(table["gold"]),
        mined=wrong,
        mined_counts=counts.values,
        paths=Ragged(shop.paths.offsets, shop.paths.tokens),
        sep=shop.vocabulary.sep,
        end=shop.vocabulary.end,
        patched=patched if isinstance(patched, Patched) else None,
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


def _validate(
    generator: Generator, table: pl.DataFrame, inputs: Ragged, vectors: Floats, seed: int
) -> dict[str, float]:
    """Metrics of some validation users: recall at a fixed budget, and how much of it is lost after mistakes."""
    rows = np.arange(min(CHECKED_USERS, len(table)))
    gold, later = (column_lists(table[name][: len(rows)]) for name in ("gold", "later"))
    prompts = inputs.gather(rows)
    labels = generator.decode(prompts, DecodeConfig(max_labels=CHECKED_BUDGET, fixed_budget=True), seed)
    mining = MiningConfig()
    mined = keep_mistakes(generator.decode(prompts, sampling(mining), seed), gold, later, vectors, mining)
    after_gold, after_mistakes, left = after_prefixes(generator, gold, prompts, mined, seed)
    bias = recall(after_gold, left) - recall(after_mistakes, left)
    return {"recall": recall(labels, gold), "exposure_bias": bias}
