"""Order-free optimal completion distillation (Tsai & Lee 2020): the nearest ancestor of self-correction.

In every step the model writes labels of its own for the examples of the batch, and at each position of what it wrote
all gold labels that are still missing are right, alike (β = 0); when none is, END. So it learns on its own prefixes,
as self-correction does, but draws them anew while it trains instead of mixing mined labels among the gold ones. The
original's second decoder (binary relevance) is left out: it is an ensemble member, not part of the objective.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import torch
from pydantic import Field

from merit.baselines.budget import Budget
from merit.baselines.fitting import FitConfig, fit
from merit.baselines.generative import Speaker, corpus_of, few, label_corpus, recall, speaker, spoken, text_of
from merit.baselines.world import Answer, World
from merit.core.config import Frozen
from merit.core.ragged import Ragged
from merit.core.seeds import stream
from merit.core.types import Ints
from merit.generator.decoding import DecodeConfig
from merit.generator.training import loss_of
from merit.objective.collate import Batch, CollateConfig, Corpus, Objective, collate
from merit.objective.targets import Label, target_sequence

IN_ORDER = Objective(sets=False)  # the labels are read in the order they were written


class OcdConfig(Frozen):
    """How the model draws labels of its own in each step, and how it is trained on them."""

    max_labels: int = Field(8, ge=1)
    """Of a sampled sequence: an untrained model would not stop by itself."""
    temperature: float = Field(1.0, gt=0)
    fit: FitConfig = FitConfig()


def ocd(world: World, seed: int, config: OcdConfig | None = None) -> Answer:
    """Greedy lists of the model that learned on its own prefixes; a world without text is refused."""
    config = config or OcdConfig()
    budget = Budget(world.seconds)
    pupil, corpus, prompts = speaker(world, seed), label_corpus(world), text_of(world)
    draws = stream(seed, "ocd")  # of one seed for each step

    def loss(rows: Ints, epoch: int) -> Any:
        own = sampled(pupil, corpus.prompts.gather(rows), config, int(draws.integers(2**31)))
        return loss_of(pupil.model, batch_of(own, rows, corpus, pupil), beta=0.0)[0]

    told = fit(
        pupil.model,
        loss,
        corpus.prompts.lengths(),
        config.fit,
        seed,
        budget,
        lambda: recall(pupil, few(prompts.validation), world),
    )
    return spoken(pupil, prompts.test, told, budget)


def sampled(pupil: Speaker, prompts: Ragged, config: OcdConfig, seed: int) -> Ragged:
    """What the model writes now, one sample of each prompt."""
    how = DecodeConfig(
        mode="sample", temperature=config.temperature, max_labels=config.max_labels, batch_size=len(prompts)
    )
    return Ragged.of([samples[0] for samples in pupil.say(prompts, how, seed).lists()])


def batch_of(own: Ragged, rows: Ints, corpus: Corpus, pupil: Speaker) -> Batch:
    """The sampled labels as input, and at each of their positions what would have been right."""
    given = corpus_of(corpus.prompts.gather(rows), own, corpus.paths, pupil.words)
    room = int((corpus.paths.lengths()[own.values] + 1).sum())  # nothing is cut
    batch = collate(given, list(range(len(rows))), 0, IN_ORDER, CollateConfig(max_target=max(4, room)), 0)
    valid = [each for line in range(len(rows)) for each in _right(own[line], corpus.gold[int(rows[line])], corpus)]
    return replace(batch, valid_ids=torch.nn.utils.rnn.pad_sequence(valid, True, -1))


def _right(own: Any, gold: Any, corpus: Corpus) -> list[torch.Tensor]:
    labels, golds = ([_path(label, corpus) for label in each] for each in (own, gold))
    _, valid = target_sequence(labels, golds, corpus.sep, corpus.end)
    return [torch.tensor(sorted(each)) for each in valid]


def _path(label: int, corpus: Corpus) -> Label:
    return tuple(corpus.paths[int(label)].tolist())
