"""Negative labels for training: the generator's mistakes, popular labels, random labels; and how often each is drawn.

Sampled negatives distort scores: a label that is drawn as a negative more often looks less likely than it is. So every
pair carries the expected number of times it is drawn, and training adds -log of it to the score (the correction of
case-control studies). What is learnt is then the log-odds at natural prevalence, whatever the shares.

Labels that are similar to a gold one are left out of the mined ones (the paper's 0.6 rule), and of these only: left out
of the others as well, they would never be seen as negatives (docs/log.md).

The factor model is trained against all labels, or against one sample for the whole batch: `LabelSampler`.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from pydantic import Field

from merit.core.config import Frozen
from merit.core.ragged import Ragged, counts_of, pair_keys
from merit.core.types import Floats, Ints

MISSING = -1


class NegativesConfig(Frozen):
    """How many negatives of each kind an example gets, drawn anew for every batch."""

    mined: int = Field(8, ge=0)
    """Of an example's mined labels, drawn in proportion to how often each was generated."""
    popular: int = Field(32, ge=0)
    """Drawn by frequency to the power 3/4."""
    random: int = Field(64, ge=1)
    """Drawn evenly among live labels: every label must be seen."""


Pairs = tuple[Ints, Floats]
"""(B, M) each: labels beside users, padded with -1, and the expected draws of each as a negative; 1 for no label."""


@dataclass(frozen=True)
class NegativeSampler:
    """Draws negatives, with the rate of every pair."""

    config: NegativesConfig
    gold: Ragged
    mined: Ragged
    mistakes: Ints  # beside mined.values and one beyond: how many mistakes were sampled before
    keys: Ints  # of examples and labels that the generator sampled for them, right or wrong; ascending
    counts: NDArray[np.int32]  # beside keys: how often
    live: Ints
    popularity: NDArray[np.float64]  # by live label, cumulative
    base: Floats  # by label: expected draws as popular and as random

    def positives(self, rows: Ints) -> Pairs:
        """The gold labels of these examples, with the rate at which each would be drawn were it wrong."""
        labels = self.gold.gather(rows).padded()
        times = self._times(rows, labels)
        return self._rated(labels, times / np.maximum(self._mistakes(rows)[:, None] + times, 1))

    def negatives(self, rows: Ints, rng: np.random.Generator) -> Pairs:
        """New negatives without gold labels. Mining has left out labels similar to gold ones."""
        labels = np.concatenate([self._mined(rows, rng), self._popular(rows, rng), self._random(rows, rng)], axis=1)
        gold = (labels[..., None] == self.gold.gather(rows).padded()[:, None]).any(-1)
        labels = np.where(gold, MISSING, labels)
        return self._rated(labels, self._times(rows, labels) / np.maximum(self._mistakes(rows)[:, None], 1))

    def _rated(self, labels: Ints, share: NDArray[np.float64]) -> Pairs:
        rates = np.where(labels >= 0, self.base[labels] + self.config.mined * share, 1.0)
        return labels, rates.astype(np.float32)

    def _times(self, rows: Ints, labels: Ints) -> NDArray[np.int32]:
        """(B, M): how often the labels (B, M) were sampled for these examples."""
        return np.where(labels >= 0, counts_of(rows[:, None] * len(self.base) + labels, self.keys, self.counts), 0)

    def _mistakes(self, rows: Ints) -> Ints:
        """How many mistakes the samples of an example held, repeats included."""
        total: Ints = self.mistakes[self.mined.offsets[rows + 1]] - self.mistakes[self.mined.offsets[rows]]
        return total

    def _mined(self, rows: Ints, rng: np.random.Generator) -> Ints:
        """A mistake that was sampled twice is drawn twice as often; -1 where an example has none."""
        first, total = self.mistakes[self.mined.offsets[rows]], self._mistakes(rows)
        spots = first[:, None] + np.floor(rng.random((len(rows), self.config.mined)) * total[:, None]).astype(np.int64)
        values = np.append(self.mined.values, MISSING)
        place = np.searchsorted(self.mistakes, spots, side="right") - 1
        drawn: Ints = np.where(total[:, None] > 0, values[place], MISSING).astype(np.int64)
        return drawn

    def _popular(self, rows: Ints, rng: np.random.Generator) -> Ints:
        spots = rng.random((len(rows), self.config.popular)) * self.popularity[-1]
        place = np.minimum(np.searchsorted(self.popularity, spots, side="right"), len(self.live) - 1)
        drawn: Ints = self.live[place]
        return drawn

    def _random(self, rows: Ints, rng: np.random.Generator) -> Ints:
        return self.live[rng.integers(len(self.live), size=(len(rows), self.config.random))]


def make_sampler(
    gold: Ragged,
    hits: NDArray[np.int32],
    mined: Ragged,
    counts: NDArray[np.int32],
    live: NDArray[np.bool_],
    config: NegativesConfig,
) -> NegativeSampler:
    """`hits` and `counts` stand beside the values of gold and mined: how many samples have each."""
    chosen = np.flatnonzero(live)
    popularity = np.maximum(np.bincount(gold.values, minlength=len(live))[chosen], 1) ** 0.75
    base = np.zeros(len(live), np.float32)
    base[chosen] = config.popular * popularity / popularity.sum() + config.random / len(chosen)
    mistakes = np.concatenate([[0], np.cumsum(counts, dtype=np.int64)])
    keys, times = np.concatenate([pair_keys(lists, len(live)) for lists in (gold, mined)]), np.append(hits, counts)
    order = np.argsort(keys, kind="stable")
    return NegativeSampler(
        config, gold, mined, mistakes, keys[order], times[order], chosen, np.cumsum(popularity), base
    )


@dataclass(frozen=True)
class LabelSampler:
    """Draws labels for a batch: half by popularity, half evenly; each weighs by how rarely it is drawn."""

    live: Ints
    chances: NDArray[np.float64]
    draws: int

    @staticmethod
    def of(gold: Ragged, live: Ints, draws: int) -> LabelSampler:
        """Popularity is the number of gold labels to the power 3/4."""
        popularity = np.bincount(gold.values, minlength=int(live.max()) + 1)[live] ** 0.75
        even = np.full(len(live), 1 / len(live))
        return LabelSampler(live, 0.5 * popularity / max(popularity.sum(), 1e-9) + 0.5 * even, draws)

    def draw(self, gold: NDArray[np.int32], rng: np.random.Generator) -> tuple[Ints, Floats]:
        """Labels, ascending, and how much each weighs as a negative.

        All live ones where there are no more than `draws`; else a sample, to which the gold labels are added. As
        negatives, these weigh only as far as they were drawn.
        """
        if self.draws >= len(self.live):
            return self.live, np.ones(len(self.live), np.float32)
        drawn = rng.choice(len(self.live), self.draws, p=self.chances)
        counts = np.bincount(drawn, minlength=len(self.live))
        drawn_or_gold = (counts > 0) | np.isin(self.live, gold)
        weights = counts[drawn_or_gold] / (self.draws * self.chances[drawn_or_gold])
        return self.live[drawn_or_gold], weights.astype(np.float32)
