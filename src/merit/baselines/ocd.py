"""Order-free optimal completion distillation (Tsai & Lee 2020): the nearest ancestor of self-correction.

In every step the model samples labels for the examples of the batch, and at each position of the sample all gold labels
that are still missing are right, alike (β = 0); when none is, END. So it learns on its samples as prefixes, as
self-correction does, but draws them anew while it trains instead of mixing mined labels among the gold ones. The
original's second decoder (binary relevance) is left out: it is an ensemble member, not part of the objective.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import torch
from numpy.typing import NDArray
from pydantic import Field
from torch import Tensor

from merit.baselines.fitting import TimeBudget, TimedFitConfig
from merit.baselines.generative import IN_ORDER, corpus_of, fit_generator, greedy_answer, label_corpus, untrained
from merit.baselines.world import Answer, World
from merit.core.config import Frozen
from merit.core.ragged import Ragged
from merit.core.seeds import stream
from merit.core.types import Ints
from merit.data.tokenizer import Vocabulary
from merit.generator.decoding import DecodeConfig
from merit.generator.model import Generator
from merit.generator.training import loss_of
from merit.objective.collate import Batch, CollateConfig, Corpus, collate
from merit.objective.targets import target_sequence


class OcdConfig(Frozen):
    """How the model samples labels in each step, and how it is trained on them."""

    max_labels: int = Field(8, ge=1)
    """Of a sampled sequence: an untrained model would not stop by itself."""
    temperature: float = Field(1.0, gt=0)
    fit: TimedFitConfig = TimedFitConfig()


def ocd(world: World, seed: int, config: OcdConfig | None = None) -> Answer:
    """Greedy lists of the model that learned on its samples."""
    config = config or OcdConfig()
    budget = TimeBudget(world.seconds)
    generator, corpus, text = untrained(world, seed), label_corpus(world), world.text
    draws = stream(seed, "ocd")  # of one seed for each step

    def loss(rows: Ints, epoch: int) -> Tensor:
        samples = sampled(generator, corpus.prompts.gather(rows), config, int(draws.integers(2**31)))
        return loss_of(generator.model, batch_of(samples, rows, corpus, text.shop.vocabulary), beta=0.0)[0]

    summary = fit_generator(generator, world, loss, corpus.prompts.lengths(), config.fit, seed, budget)
    return greedy_answer(generator, text.test, summary, budget)


def sampled(generator: Generator, prompts: Ragged, config: OcdConfig, seed: int) -> Ragged:
    """One sample of labels for each prompt."""
    how = DecodeConfig(mode="sample", temperature=config.temperature, max_labels=config.max_labels)
    return replace(generator, batch_size=len(prompts)).decode(prompts, how, seed)


def batch_of(samples: Ragged, rows: Ints, corpus: Corpus, words: Vocabulary) -> Batch:
    """The sampled labels as input, and at each of their positions the tokens that would have been right."""
    inputs = corpus_of(corpus.prompts.gather(rows), samples, corpus.paths, words)
    room = int((corpus.paths.lengths()[samples.values] + 1).sum())  # nothing is cut
    batch = collate(inputs, list(range(len(rows))), 0, IN_ORDER, CollateConfig(max_target=max(4, room)), 0)
    valid = [ids for line, row in enumerate(rows) for ids in _valid(samples[line], corpus.gold[int(row)], corpus)]
    return replace(batch, valid_ids=torch.nn.utils.rnn.pad_sequence(valid, True, -1))


def _valid(sample: NDArray[np.int32], gold: NDArray[np.int32], corpus: Corpus) -> list[Tensor]:
    labels, golds = ([tuple(corpus.paths[int(label)].tolist()) for label in part] for part in (sample, gold))
    _, valid = target_sequence(labels, golds, corpus.sep, corpus.end)
    return [torch.tensor(sorted(ids)) for ids in valid]
