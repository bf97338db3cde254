"""What methods that write labels in tokens share: the backbone, a corpus, training under the clock, and lists."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from merit.baselines import validation
from merit.baselines.budget import Budget
from merit.baselines.fitting import FitConfig, fit
from merit.baselines.world import Answer, Text, World
from merit.core.errors import ConfigError
from merit.core.ragged import Ragged
from merit.core.types import Ints
from merit.data.patches import windows_of
from merit.evaluation.predictions import BUDGET
from merit.generator import backbone
from merit.generator.decoding import DecodeConfig, Decoded, decode
from merit.generator.tokenizer import Vocabulary
from merit.generator.training import loss_of
from merit.labels.trie import Trie
from merit.objective.collate import CollateConfig, Corpus, Objective, check_corpus, collate

CHECKED = 200  # validation users decoded while training
COLLATE = CollateConfig()


@dataclass(frozen=True)
class Speaker:
    """A model and what it may say."""

    model: Any
    words: Vocabulary
    trie: Trie

    def say(self, prompts: Ragged, config: DecodeConfig, seed: int = 0) -> Decoded:
        """Every sample or beam of each prompt, within the trie; the seed counts only where labels are drawn."""
        rows = [prompts[row] for row in range(len(prompts))]
        sep, end = self.words.sep, self.words.end
        return decode(self.model, rows, self.trie, sep, end, config, seed, windows=windows_of(prompts))

    def lists(self, prompts: Ragged, config: DecodeConfig) -> Ragged:
        """The labels of each prompt, one sample or beam after the other."""
        said = self.say(prompts, config).lists()
        return Ragged.of([[label for labels in samples for label in labels] for samples in said])


def text_of(world: World) -> Text:
    """The world in tokens, or a ConfigError where it was made without them."""
    if world.text is None:
        raise ConfigError("This method reads and writes tokens, but the world was made without its text.")
    return world.text


def fresh(text: Text, seed: int) -> Any:
    """The backbone before training, as every method gets it."""
    model = backbone.make(text.backbone, text.shop.vocabulary, seed)
    return backbone.adapt(model, text.backbone, text.shop.vocabulary, seed).train()


def speaker(world: World, seed: int) -> Speaker:
    """An untrained one that may say every live label."""
    text = text_of(world)
    return Speaker(fresh(text, seed), text.shop.vocabulary, text.shop.trie(world.labels.live_mask()))


def corpus_of(prompts: Ragged, gold: Ragged, paths: Ragged, words: Vocabulary) -> Corpus:
    """Prompts and golds without mined labels."""
    nothing = Ragged(np.zeros(len(prompts) + 1, np.int64), np.zeros(0, np.int32))
    corpus = Corpus(prompts, gold, nothing, nothing.values, paths, words.sep, words.end)
    check_corpus(corpus, COLLATE)
    return corpus


def label_corpus(world: World) -> Corpus:
    """The training examples as they are."""
    text = text_of(world)
    paths = text.shop.paths
    return corpus_of(text.train, world.train.gold, Ragged(paths.offsets, paths.tokens), text.shop.vocabulary)


def teach(
    pupil: Speaker, corpus: Corpus, objective: Objective, world: World, config: FitConfig, seed: int, budget: Budget
) -> dict[str, float]:
    """Train by one of the objectives of `merit.objective`."""

    def loss(rows: Ints, epoch: int) -> Any:
        batch = collate(corpus, rows.tolist(), epoch, objective, COLLATE, seed)
        return loss_of(pupil.model, batch, objective.beta)[0]

    prompts = few(text_of(world).validation)
    return fit(pupil.model, loss, corpus.prompts.lengths(), config, seed, budget, lambda: recall(pupil, prompts, world))


def few(prompts: Ragged) -> Ragged:
    """The first ones: enough to see which weights are better, few enough not to slow the training."""
    return prompts.gather(np.arange(min(CHECKED, len(prompts))))


def recall(pupil: Speaker, prompts: Ragged, world: World) -> float:
    """Of the first validation users, whose prompts these are, at a fixed budget."""
    said = pupil.lists(prompts, DecodeConfig(max_labels=validation.BUDGET, fixed_budget=True))
    return validation.recall(said, world.validation.gold.gather(np.arange(len(prompts))))


def spoken(pupil: Speaker, prompts: Ragged, told: dict[str, float], budget: Budget) -> Answer:
    """What greedy decoding says: as long as it likes, and at the budget with END suppressed."""
    free = pupil.lists(prompts, DecodeConfig(max_labels=BUDGET))
    ranked = pupil.lists(prompts, DecodeConfig(max_labels=BUDGET, fixed_budget=True))
    return Answer(ranked, free, told=told | {"predict_seconds": budget.used() - told["train_seconds"]})
