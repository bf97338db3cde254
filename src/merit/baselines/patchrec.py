"""PatchRec (Cui et al. 2025): a language model that reads old items as one embedding each, or a session of them as one.

An item patch is the mean of the input embeddings of its tokens, a session patch the mean of several item means; the
separators between them stay. First items are compressed at random, more and more of them; then by a fixed rule:

    items      the newest items in words, all older ones a patch each
    sessions   the newest in words, as many before them a patch each, older ones a patch for every session

Labels are then written in the order of the data, token by token. There is no profile, only the history.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray
from pydantic import Field
from torch import Tensor

from merit.baselines.fitting import TimeBudget, TimedFitConfig
from merit.baselines.generative import COLLATE, IN_ORDER, fit_generator, greedy_answer, label_corpus, untrained
from merit.baselines.world import Answer, World
from merit.core.config import Frozen
from merit.core.ragged import Ragged, offsets_of, owners
from merit.core.seeds import stream
from merit.core.types import Ints
from merit.data.patches import Patched, cut, pool
from merit.data.prompt import Texts
from merit.generator.training import loss_of
from merit.objective.collate import collate


class PatchrecConfig(Frozen):
    """Of both kinds of patches; `session` counts for session patches only."""

    recent: int = Field(5, ge=0)
    """Items in words."""
    session: int = Field(5, ge=1)
    """Items of a session, counted back from the newest: purchases do not come in sessions."""
    pretraining: float = Field(0.5, ge=0, lt=1)
    """The part of the training in which items are compressed at random."""
    fit: TimedFitConfig = TimedFitConfig()


def patchrec(world: World, seed: int, config: PatchrecConfig | None = None) -> Answer:
    """Item patches."""
    return _patchrec(world, seed, config or PatchrecConfig(), item_groups)


def patchrec_sessions(world: World, seed: int, config: PatchrecConfig | None = None) -> Answer:
    """Session patches for what is older still."""
    return _patchrec(world, seed, config or PatchrecConfig(), session_groups)


def item_groups(rank: Ints, config: PatchrecConfig) -> tuple[Ints, NDArray[np.bool_]]:
    """The group of each item (those of a group stand together), and whether it is a patch; `rank` items are newer."""
    return rank, rank >= config.recent


def session_groups(rank: Ints, config: PatchrecConfig) -> tuple[Ints, NDArray[np.bool_]]:
    """In words, a patch each, or one with the other items of the session."""
    older = rank - config.recent - config.session
    sessions = config.recent + config.session + older // config.session
    return np.where(older < 0, rank, sessions), rank >= config.recent


Groups = Callable[[Ints, PatchrecConfig], tuple[Ints, NDArray[np.bool_]]]


def _patchrec(world: World, seed: int, config: PatchrecConfig, groups: Groups) -> Answer:
    budget = TimeBudget(world.seconds)
    generator, texts, corpus = untrained(world, seed), world.text.shop.texts, label_corpus(world)
    room = int(world.text.train.lengths().max())  # positions: as many as the prompts of other methods

    def written(items: Ragged) -> Patched:
        return write(items, texts, room, *groups(_ranks(items), config))

    def at_random(items: Ragged, progress: float, rows: Ints, epoch: int) -> Patched:
        """Every item compressed or not, by itself, with the probability of the progress so far."""
        pooled = stream(seed, "patchrec", epoch, int(rows[0])).random(len(items.values)) < progress
        return write(items, texts, room, _ranks(items), pooled)

    train, test, validation = (written(part.items) for part in (world.train, world.test, world.validation))

    def loss(rows: Ints, epoch: int) -> Tensor:
        progress = budget.spent()
        pretraining = progress < config.pretraining
        prompts = (
            at_random(world.train.items.gather(rows), progress, rows, epoch) if pretraining else train.gather(rows)
        )
        part = replace(corpus, prompts=prompts, gold=corpus.gold.gather(rows), patched=prompts)
        patched = np.ones(len(rows), dtype=np.bool_)
        batch = collate(part, list(range(len(rows))), epoch, IN_ORDER, COLLATE, seed, patched)
        return loss_of(generator.model, batch, 1.0)[0]

    patched = replace(world, tokens=replace(world.text, validation=validation))
    summary = fit_generator(generator, patched, loss, train.lengths(), config.fit, seed, budget)
    return greedy_answer(generator, test, summary, budget)


def write(items: Ragged, texts: Texts, room: int, group: Ints, pooled: NDArray[np.bool_]) -> Patched:
    """Prompts `RECENT group NEXT group … ANSWER` of at most `room` positions: the oldest groups are left out.

    `group` and `pooled` are beside items.values. Items without words take no position.
    """
    worded = np.flatnonzero(texts.titles.lengths()[items.values])
    which, group, owner = items.values[worded], group[worded], owners(items)[worded]
    sizes = texts.titles.lengths()[which]
    first = np.flatnonzero(np.diff(owner, prepend=-1) | np.diff(group, prepend=-1))  # items that begin a group
    runs = np.diff(first, append=len(which))  # items of each group
    owner, pooled = owner[first], pooled[worded][first]
    kept = _newest(np.where(pooled, 1, _sums(sizes, runs)) + 1, owner, len(items), room - 2)
    stays = np.repeat(kept, runs)
    groups = offsets_of(np.bincount(owner[kept], minlength=len(items)))
    return _laid_out(which[stays], sizes[stays], runs[kept], pooled[kept], groups, texts)


def _newest(cost: Ints, owner: Ints, rows: int, room: int) -> NDArray[np.bool_]:
    """Which groups fit, counted back from the newest (the last) of each row."""
    reached = np.cumsum(cost)
    ends = offsets_of(np.bincount(owner, minlength=rows))[1:]
    totals = np.concatenate([[0], reached])[ends]
    return np.asarray(totals[owner] - reached + cost <= room)


def _laid_out(
    which: NDArray[np.int32], sizes: Ints, runs: Ints, pooled: NDArray[np.bool_], groups: Ints, texts: Texts
) -> Patched:
    """Groups of `runs` items each, with control tokens around and between them. `groups`: where each row's begin."""
    places, marks = _marks(len(runs), groups, texts)
    wide = _sums(sizes, runs)  # tokens of each group
    at = offsets_of(wide)[places]
    tokens = np.insert(texts.titles.take(which)[0], at, marks)
    even = np.repeat(1 / (np.repeat(runs, runs) * sizes), sizes)  # a session is the mean of its items' means
    shares = np.insert(even, at, 1.0).astype(np.float32)
    spans, pooled = np.insert(wide, places, 1), np.insert(pooled, places, False)
    positions, number = cut(spans, np.where(pooled, spans, 1))
    of_row = np.diff(groups)
    bounds = offsets_of(of_row + np.maximum(of_row - 1, 0) + 2)  # spans of a row: groups and what is around them
    by_row = Ragged(offsets_of(number)[bounds], positions.astype(np.int32))
    return pool(Ragged(offsets_of(spans)[bounds], tokens), by_row, shares)


def _marks(count: int, groups: Ints, texts: Texts) -> tuple[Ints, NDArray[np.int32]]:
    """The group after each control token, and the token: RECENT, NEXT between groups, ANSWER of every row."""
    controls = texts.controls
    edges = np.stack([groups[:-1], groups[1:]], 1).ravel()  # where a row begins and where it stops, in turns
    inner = np.setdiff1d(np.arange(count), groups)
    places = np.concatenate([edges, inner])
    marks = np.concatenate(
        [np.tile([controls.recent, controls.answer], len(groups) - 1), np.full(len(inner), controls.next)]
    )
    order = np.argsort(places, kind="stable")
    return places[order], marks[order].astype(np.int32)


def _sums(sizes: Ints, runs: Ints) -> Ints:
    """The sum of the sizes of each run of items."""
    return np.diff(offsets_of(sizes)[offsets_of(runs)])


def _ranks(items: Ragged) -> Ints:
    """By item: how many of its row are newer."""
    return np.repeat(items.offsets[1:], items.lengths()) - 1 - np.arange(len(items.values))
