"""GROOV (Simig et al. 2022): labels as a set in tokens, ranked by the beams they are in.

Its objective is our permutation invariance (pooled, gold only). A label's score is the probability of all beams that
contain it. Constrained decoding keeps to the label trie; open vocabulary, the point of GROOV, writes what it likes, and
what is no live label is counted and left out.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from pydantic import Field

from merit.baselines.budget import Budget
from merit.baselines.fitting import FitConfig
from merit.baselines.generative import Speaker, label_corpus, speaker, teach, text_of
from merit.baselines.world import Answer, World
from merit.core.config import Frozen
from merit.core.ragged import Ragged, matrix
from merit.core.types import Floats, Ints
from merit.evaluation.predictions import BUDGET
from merit.generator.decoding import DecodeConfig
from merit.objective.collate import OBJECTIVES

Beams = list[list[int]]  # the labels of each beam of a user, best beam first


class GroovConfig(Frozen):
    """Training and beam search; a beam ends at `max_labels` in the trie, at `max_tokens` without it."""

    beams: int = Field(5, ge=1)
    max_labels: int = Field(12, ge=1)
    """Of a beam."""
    max_tokens: int = Field(64, ge=1)
    """Of a beam in open vocabulary, where no trie counts labels."""
    batch_size: int = Field(64, ge=1)
    fit: FitConfig = FitConfig()


def groov(world: World, seed: int, config: GroovConfig | None = None) -> Answer:
    """Constrained to live labels."""
    return _groov(world, seed, config or GroovConfig(), _constrained)


def groov_open(world: World, seed: int, config: GroovConfig | None = None) -> Answer:
    """Open vocabulary. `told` has the share of written labels that are none of the space."""
    return _groov(world, seed, config or GroovConfig(), _open)


Search = Callable[[Speaker, World, GroovConfig], tuple[list[Beams], Floats, dict[str, float]]]


def _groov(world: World, seed: int, config: GroovConfig, search: Search) -> Answer:
    budget = Budget(world.seconds)
    pupil = speaker(world, seed)
    told = teach(pupil, label_corpus(world), OBJECTIVES["permutation-invariance"], world, config.fit, seed, budget)
    said, chances, more = search(pupil, world, config)
    longer = pupil.lists(text_of(world).test, DecodeConfig(max_labels=BUDGET, fixed_budget=True))
    labels, masses = beam_sums(said, chances)
    scores = matrix(labels, masses, len(world.labels)).tocsc()
    told |= more | {"predict_seconds": budget.used() - told["train_seconds"]}
    return Answer(
        ranked=filled(labels, longer),
        free=Ragged.of([beams[0] for beams in said]),
        scores=lambda block: scores[:, block].toarray(),
        told=told,
    )


def beam_sums(said: Sequence[Beams], chances: Floats) -> tuple[Ragged, Floats]:
    """The labels in any beam of each user, the highest sum of beam probabilities first; and the sums beside them.

    `chances` (users, beams). Of equal sums the label that was written first comes first.
    """
    rows, masses = [], []
    for beams, own in zip(said, chances, strict=True):
        sums: dict[int, float] = {}
        for labels, chance in zip(beams, own, strict=True):
            for label in labels:
                sums[label] = sums.get(label, 0.0) + float(chance)
        ranked = sorted(sums, key=lambda label: -sums[label])  # stable: insertion order decides ties
        rows.append(ranked)
        masses += [sums[label] for label in ranked]
    return Ragged.of(rows), np.array(masses, dtype=np.float32)


def filled(ranked: Ragged, longer: Ragged, budget: int = BUDGET) -> Ragged:
    """Ranked labels, then those that greedy decoding says when it may not stop, up to the budget.

    Both lists are of live labels, and the longer has `budget` different ones where there are so many.
    """
    rows = [dict.fromkeys([*ranked[row].tolist(), *longer[row].tolist()]) for row in range(len(ranked))]
    return Ragged.of([list(row)[:budget] for row in rows])


def _constrained(pupil: Speaker, world: World, config: GroovConfig) -> tuple[list[Beams], Floats, dict[str, float]]:
    how = DecodeConfig(mode="beam", beams=config.beams, max_labels=config.max_labels, batch_size=config.batch_size)
    said = pupil.say(text_of(world).test, how)
    return said.lists(), np.exp(said.scores), {}


def _open(pupil: Speaker, world: World, config: GroovConfig) -> tuple[list[Beams], Floats, dict[str, float]]:
    prompts = text_of(world).test
    order = np.argsort(prompts.lengths(), kind="stable")
    read = _Reader(world)
    said: list[Beams] = [[] for _ in range(len(prompts))]
    chances: Floats = np.zeros((len(prompts), config.beams), np.float32)
    for at in range(0, len(order), config.batch_size):
        rows = order[at : at + config.batch_size]
        written, logs = _written(pupil, [prompts[row] for row in rows], config)
        chances[rows] = np.exp(logs)
        for row, beams in zip(rows, written, strict=True):
            said[row] = [read.labels(tokens) for tokens in beams]
    return said, chances, {"invented": read.invented / max(1, read.spelt)}


class _Reader:
    """Tokens → live labels. A label may be spelt in other tokens than its own: its text decides."""

    def __init__(self, world: World) -> None:
        shop = text_of(world).shop
        self.words, self.space, self.live = shop.vocabulary, world.labels, world.labels.live_mask()
        self.known: dict[tuple[int, ...], int] = {shop.paths.path(int(label)): int(label) for label in shop.paths.kept}
        self.spelt = self.invented = 0

    def labels(self, tokens: list[int]) -> list[int]:
        """The different live labels of one beam, in the order written; an unfinished last one does not count."""
        found: dict[int, None] = {}
        for spelling in _spellings(tokens, self.words.sep, self.words.end):
            self.spelt += 1
            label = self._label(spelling)
            if label < 0:
                self.invented += 1
            else:
                found[label] = None
        return list(found)

    def _label(self, spelling: tuple[int, ...]) -> int:
        if spelling not in self.known:
            text = self.words.tokenizer.decode(list(spelling))
            self.known[spelling] = int(self.space.find([text])[0])
        label = self.known[spelling]
        return label if label >= 0 and self.live[label] else -1


def _spellings(tokens: list[int], sep: int, end: int) -> list[tuple[int, ...]]:
    """The tokens between terminators; nothing behind END, and nothing that was not terminated."""
    found: list[tuple[int, ...]] = []
    begun: list[int] = []
    for token in tokens:
        if token not in (sep, end):
            begun.append(token)
            continue
        if begun:
            found.append(tuple(begun))
        begun = []
        if token == end:
            break
    return found


def _written(
    pupil: Speaker, prompts: Sequence[NDArray[np.int32]], config: GroovConfig
) -> tuple[list[list[list[int]]], NDArray[Any]]:
    """Tokens of each prompt's beams, and the log-probability of each. Prompts are padded on the left."""
    width = max(map(len, prompts))
    tokens: Ints = np.full((len(prompts), width), pupil.words.pad)
    for line, prompt in enumerate(prompts):
        tokens[line, width - len(prompt) :] = prompt
    with torch.inference_mode():
        out = pupil.model.generate(
            input_ids=torch.from_numpy(tokens),
            attention_mask=torch.from_numpy((np.arange(width) >= width - np.array([[len(p)] for p in prompts])) + 0),
            num_beams=config.beams,
            num_return_sequences=config.beams,
            max_new_tokens=config.max_tokens,
            length_penalty=0.0,  # the score of a beam is then its log-probability
            do_sample=False,
            eos_token_id=pupil.words.end,
            pad_token_id=pupil.words.pad,
            output_scores=True,
            return_dict_in_generate=True,
        )
    shape = (len(prompts), config.beams)
    return (
        out.sequences[:, width:].reshape(*shape, -1).tolist(),
        out.sequences_scores.reshape(shape).numpy(),
    )
