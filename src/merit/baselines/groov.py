"""GROOV (Simig et al. 2022): labels as a set in tokens, ranked by the beams they are in.

Its objective is our permutation invariance (pooled, gold only). A label's score is the probability of all beams that
contain it. Constrained decoding keeps to the label trie; open vocabulary, the point of GROOV, writes any tokens, and
texts that are no live label are counted and left out.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from pydantic import Field
from torch import Tensor

from merit.baselines.fitting import TimeBudget, TimedFitConfig
from merit.baselines.generative import COLLATE, fit_generator, greedy_lists, label_corpus, untrained
from merit.baselines.world import Answer, World
from merit.core.config import Frozen
from merit.core.ragged import Ragged, matrix
from merit.core.types import Floats, Ints
from merit.evaluation.predictions import filled
from merit.generator.decoding import DecodeConfig, decode
from merit.generator.model import Generator
from merit.generator.training import loss_of
from merit.objective.collate import OBJECTIVES, collate

OBJECTIVE = OBJECTIVES["permutation-invariance"]

Beams = list[list[int]]  # the labels of each beam of a user, best beam first


class GroovConfig(Frozen):
    """Training and beam search; a beam ends at `max_labels` in the trie, at `max_tokens` without it."""

    beams: int = Field(5, ge=1)
    max_labels: int = Field(12, ge=1)
    """Of a beam."""
    max_tokens: int = Field(64, ge=1)
    """Of a beam in open vocabulary, where no trie counts labels."""
    batch_size: int = Field(64, ge=1)
    fit: TimedFitConfig = TimedFitConfig()


def groov(world: World, seed: int, config: GroovConfig | None = None) -> Answer:
    """Constrained to live labels."""
    return _groov(world, seed, config or GroovConfig(), _constrained)


def groov_open(world: World, seed: int, config: GroovConfig | None = None) -> Answer:
    """Open vocabulary. `invented` in the summary is the share of written labels that are not in the label space."""
    return _groov(world, seed, config or GroovConfig(), _open)


Search = Callable[[Generator, World, GroovConfig], tuple[list[Beams], Floats, dict[str, float]]]


def _groov(world: World, seed: int, config: GroovConfig, search: Search) -> Answer:
    budget = TimeBudget(world.seconds)
    generator, corpus = untrained(world, seed), label_corpus(world)

    def loss(rows: Ints, epoch: int) -> Tensor:
        batch = collate(corpus, rows.tolist(), epoch, OBJECTIVE, COLLATE, seed)
        return loss_of(generator.model, batch, OBJECTIVE.beta)[0]

    summary = fit_generator(generator, world, loss, corpus.prompts.lengths(), config.fit, seed, budget)
    beams, probabilities, invented = search(generator, world, config)
    labels, sums = beam_sums(beams, probabilities)
    scores = matrix(labels, sums, len(world.labels)).tocsc()
    return Answer(
        ranked=filled(labels, greedy_lists(generator, world.text.test)),
        free=Ragged.of([user[0] for user in beams]),
        scores=lambda block: scores[:, block].toarray(),
        summary=budget.with_prediction(summary | invented),
    )


def beam_sums(users: Sequence[Beams], probabilities: Floats) -> tuple[Ragged, Floats]:
    """The labels in any beam of each user, the highest sum of beam probabilities first; and the sums beside them.

    `probabilities` (users, beams). Of equal sums the label that was written first comes first.
    """
    rows, values = [], []
    for beams, chances in zip(users, probabilities, strict=True):
        sums: dict[int, float] = {}
        for labels, chance in zip(beams, chances, strict=True):
            for label in labels:
                sums[label] = sums.get(label, 0.0) + float(chance)
        ranked = sorted(sums, key=lambda label: -sums[label])  # stable: insertion order decides ties
        rows.append(ranked)
        values += [sums[label] for label in ranked]
    return Ragged.of(rows), np.array(values, dtype=np.float32)


def _constrained(
    generator: Generator, world: World, config: GroovConfig
) -> tuple[list[Beams], Floats, dict[str, float]]:
    how = DecodeConfig(mode="beam", beams=config.beams, max_labels=config.max_labels, batch_size=config.batch_size)
    prompts, words = world.text.test, world.text.shop.vocabulary
    rows = [prompts[row] for row in range(len(prompts))]
    decoded = decode(generator.model, rows, generator.trie, words.sep, words.end, how)
    return decoded.lists(), np.exp(decoded.scores), {}


def _open(generator: Generator, world: World, config: GroovConfig) -> tuple[list[Beams], Floats, dict[str, float]]:
    prompts = world.text.test
    order = np.argsort(prompts.lengths(), kind="stable")
    read = _Reader(world)
    users: list[Beams] = [[] for _ in range(len(prompts))]
    probabilities: Floats = np.zeros((len(prompts), config.beams), np.float32)
    for start in range(0, len(order), config.batch_size):
        rows = order[start : start + config.batch_size]
        written, logs = _written(generator, prompts.gather(rows), config)
        probabilities[rows] = np.exp(logs)
        for row, beams in zip(rows, written, strict=True):
            users[row] = [read.labels(tokens) for tokens in beams]
    return users, probabilities, {"invented": read.invented / max(1, read.spelt)}


class _Reader:
    """Tokens → live labels. A label may be spelt in other tokens than those of its path: its text decides."""

    def __init__(self, world: World) -> None:
        shop = world.text.shop
        self.words, self.space, self.live = shop.vocabulary, world.labels, world.labels.live_mask()
        self.spelling = {shop.paths.path(int(label)): int(label) for label in shop.paths.kept}
        self.spelt = self.invented = 0

    def labels(self, tokens: list[int]) -> list[int]:
        """The different live labels of one beam, in the order written; an unfinished last one does not count."""
        labels = [self._label(spelling) for spelling in _spellings(tokens, self.words.sep, self.words.end)]
        self.spelt += len(labels)
        self.invented += labels.count(-1)
        return [label for label in dict.fromkeys(labels) if label >= 0]

    def _label(self, spelling: tuple[int, ...]) -> int:
        if spelling not in self.spelling:
            self.spelling[spelling] = int(self.space.find([self.words.tokenizer.decode(list(spelling))])[0])
        label = self.spelling[spelling]
        return label if label >= 0 and self.live[label] else -1


def _spellings(tokens: list[int], sep: int, end: int) -> list[tuple[int, ...]]:
    """The tokens between terminators; nothing after END, and nothing that was not terminated."""
    spellings, start = [], 0
    for place, token in enumerate(tokens):
        if token in (sep, end):
            spellings.append(tuple(tokens[start:place]))
            start = place + 1
        if token == end:
            break
    return [spelling for spelling in spellings if spelling]


def _written(generator: Generator, prompts: Ragged, config: GroovConfig) -> tuple[list[list[list[int]]], NDArray[Any]]:
    """Tokens of each prompt's beams, and the log-probability of each. Prompts are padded on the left."""
    width, words = int(prompts.lengths().max()), generator.shop.vocabulary
    real = np.arange(width) >= width - prompts.lengths()[:, None]
    tokens: Ints = np.full(real.shape, words.pad)
    tokens[real] = prompts.values
    with torch.inference_mode():
        out = generator.model.generate(
            input_ids=torch.from_numpy(tokens),
            attention_mask=torch.from_numpy(real + 0),
            num_beams=config.beams,
            num_return_sequences=config.beams,
            max_new_tokens=config.max_tokens,
            length_penalty=0.0,  # the score of a beam is then its log-probability
            do_sample=False,
            eos_token_id=words.end,
            pad_token_id=words.pad,
            output_scores=True,
            return_dict_in_generate=True,
        )
    shape = (len(prompts), config.beams)
    return out.sequences[:, width:].reshape(*shape, -1).tolist(), out.sequences_scores.reshape(shape).numpy()
