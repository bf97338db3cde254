"""What methods that write labels in tokens share: an untrained generator, its corpus, validation recall, and lists."""

from __future__ import annotations

from typing import Any

import numpy as np

from merit.baselines import fitting
from merit.baselines.fitting import TimeBudget
from merit.baselines.world import Answer, Text, World
from merit.core.ragged import Ragged
from merit.data.tokenizer import Vocabulary
from merit.evaluation import predictions
from merit.evaluation.predictions import BUDGET
from merit.generator import backbone
from merit.generator.decoding import DecodeConfig
from merit.generator.model import Generator
from merit.objective.collate import OBJECTIVES, CollateConfig, Corpus, check_corpus

CHECKED = 200  # validation users decoded while training
COLLATE = CollateConfig()
IN_ORDER = OBJECTIVES["teacher-forcing"]  # the labels are written in the order of the data


def untrained_backbone(text: Text, seed: int) -> Any:
    """The backbone before training, as every method gets it."""
    model = backbone.make(text.backbone, text.shop.vocabulary, seed)
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
    nothing = Ragged.of([[]] * len(prompts))
    corpus = Corpus(prompts, gold, nothing, nothing.values, paths, words.sep, words.end)
    check_corpus(corpus, COLLATE)
    return corpus


def label_corpus(world: World) -> Corpus:
    """The training examples as they are."""
    return corpus_of(world.text.train, world.train.gold, label_paths(world), world.text.shop.vocabulary)


def first_few(prompts: Ragged) -> Ragged:
    """The first prompts: enough to compare weights by, few enough not to slow the training."""
    return prompts.gather(np.arange(min(CHECKED, len(prompts))))


def recall(generator: Generator, prompts: Ragged, world: World) -> float:
    """Recall of greedy lists at a fixed budget. `prompts` are those of the first validation users."""
    how = DecodeConfig(max_labels=fitting.CHOICE_BUDGET, fixed_budget=True)
    return predictions.recall(
        generator.decode(prompts, how, seed=0), world.validation.gold.gather(np.arange(len(prompts)))
    )


def greedy_answer(generator: Generator, prompts: Ragged, summary: dict[str, float], budget: TimeBudget) -> Answer:
    """Lists of greedy decoding: at free length, and at BUDGET labels with END suppressed."""
    free, ranked = (
        generator.decode(prompts, DecodeConfig(max_labels=BUDGET, fixed_budget=fixed), seed=0)
        for fixed in (False, True)
    )
    return Answer(ranked, free, summary=budget.with_prediction(summary))
