"""What methods that write labels in tokens share: an untrained generator, its corpus, validation recall, and lists."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from torch import nn

from merit.baselines.fitting import CHOICE_BUDGET, BatchLoss, TimeBudget, TimedFitConfig, fit
from merit.baselines.world import Answer, Text, World
from merit.core.ragged import Ragged
from merit.core.types import Ints
from merit.data.tokenizer import Vocabulary
from merit.evaluation.predictions import BUDGET, recall
from merit.generator import backbone
from merit.generator.decoding import DecodeConfig
from merit.generator.model import Generator
from merit.objective.collate import OBJECTIVES, CollateConfig, Corpus, check_corpus

CHECKED = 200  # validation users decoded while training
COLLATE = CollateConfig()
IN_ORDER = OBJECTIVES["teacher-forcing"]  # the labels are written in the order of the data


def untrained_backbone(text: Text, seed: int) -> Any:
    """The backbone before training, as every method gets it."""
    model = backbone.make(text.backbone, text.shop.vocabulary, seed, text.shop.paths)
    return backbone.adapt(model, text.backbone, text.shop.vocabulary, seed).train()


def untrained(world: World, seed: int) -> Generator:
    """A generator before training that may write every live label."""
    shop = world.text.shop
    return Generator.of(untrained_backbone(world.text, seed), shop, world.labels, world.text.settings)


def label_paths(world: World) -> Ragged:
    """By label: its tokens."""
    return Ragged(world.text.shop.paths.offsets, world.text.shop.paths.tokens)


def corpus_of(prompts: Ragged, gold: Ragged, paths: Ragged, words: Vocabulary) -> Corpus:
    """A checked corpus of prompts and gold labels, without mined labels."""
    nothing = Ragged.empty(len(prompts))
    corpus = Corpus(prompts, gold, nothing, nothing.values, paths, words.sep, words.end)
    check_corpus(corpus, COLLATE)
    return corpus


def label_corpus(world: World) -> Corpus:
    """The training examples as they are."""
    return corpus_of(world.text.train, world.train.gold, label_paths(world), world.text.shop.vocabulary)


def fit_generator(
    generator: Generator,
    world: World,
    loss: BatchLoss,
    lengths: Ints,
    config: TimedFitConfig,
    seed: int,
    budget: TimeBudget,
    guided: Callable[[Ragged], Ragged] = lambda prompts: prompts,
    model: nn.Module | None = None,
) -> dict[str, float]:
    """Summary of a training by the recall of greedy lists of the first validation users, at a fixed budget.

    `guided` writes what the method puts behind prompts; `model` is what is trained, where that is more.
    """
    rows = np.arange(min(CHECKED, len(world.validation)))
    prompts, gold = world.text.validation.gather(rows), world.validation.gold.gather(rows)
    how = DecodeConfig(max_labels=CHOICE_BUDGET, fixed_budget=True)

    def validate() -> float:
        return recall(generator.decode(guided(prompts), how, seed=0), gold)

    return fit(model or generator.model, loss, lengths, config, seed, budget, validate)


def greedy_lists(generator: Generator, prompts: Ragged, free: bool = False) -> Ragged:
    """Lists of greedy decoding: at free length, or at BUDGET labels with END suppressed."""
    return generator.decode(prompts, DecodeConfig(max_labels=BUDGET, fixed_budget=not free), seed=0)


def greedy_answer(generator: Generator, prompts: Ragged, summary: dict[str, float], budget: TimeBudget) -> Answer:
    """Greedy lists of both kinds."""
    free, ranked = greedy_lists(generator, prompts, free=True), greedy_lists(generator, prompts)
    return Answer(ranked, free, summary=budget.with_prediction(summary))
