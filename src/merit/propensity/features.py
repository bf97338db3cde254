"""What the propensity model knows of a user: a generator's states at classification positions, and label counts.

The array is (users, labels, width): the state that predicts the first token of a user's first, second, … label. A
user with fewer labels has zeros behind them. A model of the first k labels reads the first k and nothing else, so one
pass over the generator serves every k.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from merit.core.errors import DamagedArtifact, DataError
from merit.core.ragged import Ragged, offsets_of
from merit.core.types import Ints
from merit.propensity.trends import Trends
from merit.propensity.words import WordCounts


@dataclass(frozen=True)
class States:
    """States of users in half precision, a row for each."""

    values: NDArray[np.float16]  # (users, labels, width), memory-mapped when read from a file
    counts: NDArray[np.int32]  # (users,) labels that are there

    def __len__(self) -> int:
        return len(self.values)

    def first(self, k: int) -> States:
        """What a model of the first k labels may see."""
        if not 1 <= k <= self.values.shape[1]:
            raise DataError(f"States of {self.values.shape[1]} labels are kept, not {k}. Set states.labels to {k}.")
        return States(self.values[:, :k], np.minimum(self.counts, k))

    def take(self, rows: NDArray[np.int64]) -> tuple[NDArray[np.float32], NDArray[np.int32]]:
        """States and counts of some users, as numbers to compute with."""
        return self.values[rows].astype(np.float32), self.counts[rows]


@dataclass(frozen=True)
class UserFeatures:
    """Users: their states, and how often each label is in their history."""

    states: States
    history: Ragged
    times: NDArray[np.int32]  # beside history.values
    words: WordCounts | None = None
    """In the titles of the history; None for a model that reads none."""
    lately: Trends | None = None

    def __len__(self) -> int:
        return len(self.states)

    def first(self, k: int) -> UserFeatures:
        """For a model of the first k labels. Histories stay whole."""
        return replace(self, states=self.states.first(k))

    def part(self, start: int, stop: int) -> UserFeatures:
        """Users from start to stop, without copying."""
        states = States(self.states.values[start:stop], self.states.counts[start:stop])
        stop = min(stop, len(self))
        return UserFeatures(
            states,
            self.history.part(start, stop),
            self.times,
            self.words and self.words.part(start, stop),
            self.lately and self.lately.part(start, stop),
        )

    def gather(self, rows: NDArray[np.int64]) -> UserFeatures:
        """These users, in this order."""
        times, _ = Ragged(self.history.offsets, self.times).take(rows)
        states = States(self.states.values[rows], self.states.counts[rows])
        return UserFeatures(
            states,
            self.history.gather(rows),
            times,
            self.words and self.words.gather(rows),
            self.lately and self.lately.gather(rows),
        )

    def had(self, rows: NDArray[np.int64], labels: NDArray[np.int64], n_labels: int) -> HistoryCounts:
        """Of the labels (B, M): how often each is in the history of its user, and its share of that history."""
        own, sizes = self.history.take(rows)
        times, _ = Ragged(self.history.offsets, self.times).take(rows)
        owner = np.repeat(np.arange(len(rows)), sizes)
        total = np.maximum(np.bincount(owner, weights=times, minlength=len(rows)), 1)
        found = np.zeros(labels.shape, np.float32)
        if len(own):
            keys, wanted = owner * n_labels + own, np.arange(len(rows))[:, None] * n_labels + labels
            order = np.argsort(keys, kind="stable")
            place = np.minimum(np.searchsorted(keys[order], wanted), len(keys) - 1)
            there = (keys[order][place] == wanted) & (labels >= 0)  # -1 is no label, though its key may be another's
            found = np.where(there, times[order][place], 0).astype(np.float32)
        seen = np.where(found > 0, np.maximum(found, 1), 0)
        return HistoryCounts(found, (seen / total[:, None]).astype(np.float32))

    def take(self, rows: NDArray[np.int64]) -> Inputs:
        """What the model computes with of these users, in this order; only their states are read from the file."""
        values, counts = self.states.take(rows)
        labels, sizes = self.history.take(rows)
        times, _ = Ragged(self.history.offsets, self.times).take(rows)
        shares, owner = shares_of(times, sizes), np.repeat(np.arange(len(rows)), sizes)
        return Inputs(
            values,
            counts,
            labels.astype(np.int64),
            offsets_of(sizes),
            shares,
            unit(shares, owner),
            times.astype(np.float32),
            np.bincount(owner, weights=times, minlength=len(rows))[owner].astype(np.float32),
            WordWeights.of(self.words.gather(rows)) if self.words else None,
            self.lately.gather(rows) if self.lately else None,
        )


class HistoryCounts(NamedTuple):
    """What pairs of user and label have in common: both (B, M), zero where the user never had the label."""

    times: NDArray[np.float32]
    shares: NDArray[np.float32]


class WordWeights(NamedTuple):
    """The words of some users, and how much each weighs: of length one for every user."""

    words: NDArray[np.int64]
    offsets: NDArray[np.int64]  # (B + 1,)
    weights: NDArray[np.float32]

    @staticmethod
    def of(bag: WordCounts) -> WordWeights:
        """From counts: the tenth time says less than the first."""
        sizes = bag.things.lengths()
        weights = unit(np.log1p(bag.times.astype(np.float32)), np.repeat(np.arange(len(sizes)), sizes))
        return WordWeights(bag.things.values.astype(np.int64), bag.things.offsets, weights)


class Inputs(NamedTuple):
    """Some users, as numbers to compute with."""

    states: NDArray[np.float32]  # (B, k, width)
    counts: NDArray[np.int32]  # (B,)
    labels: NDArray[np.int64]  # of the histories, one after the other
    offsets: NDArray[np.int64]  # (B + 1,)
    shares: NDArray[np.float32]  # beside labels: of the user's history, by the logarithm of how often
    weights: NDArray[np.float32]  # the same, of length one for every user
    times: NDArray[np.float32]  # beside labels: how often
    totals: NDArray[np.float32]  # beside labels: all labels of that user's history, repeats counted
    said: WordWeights | None
    lately: Trends | None


def shares_of(times: NDArray[np.int32], sizes: NDArray[np.int64]) -> NDArray[np.float32]:
    """The tenth event with a label says less than the first, and busy users weigh no more than others."""
    weight = np.log1p(times.astype(np.float32))
    owner = np.repeat(np.arange(len(sizes)), sizes)
    total = np.bincount(owner, weights=weight, minlength=len(sizes))
    shares: NDArray[np.float32] = (weight / np.maximum(total[owner], 1e-9)).astype(np.float32)
    return shares


def unit(shares: NDArray[np.float32], owner: NDArray[np.int64]) -> NDArray[np.float32]:
    """Of length one for every user, so that a long history does not say less than a short one."""
    length = np.sqrt(np.bincount(owner, weights=shares.astype(np.float64) ** 2))
    return (shares / length[owner]).astype(np.float32)


def without(users: int) -> States:
    """Of users whose states nobody reads."""
    return States(np.zeros((users, 0, 0), np.float16), np.zeros(users, np.int32))


def create(folder: Path, name: str, users: int, labels: int, width: int) -> States:
    """Room for the states of a split, in a file, to be filled part by part."""
    values = np.lib.format.open_memmap(_file(folder, name), mode="w+", dtype=np.float16, shape=(users, labels, width))
    counts = np.lib.format.open_memmap(_file(folder, f"{name}-counts"), mode="w+", dtype=np.int32, shape=(users,))
    return States(values, counts)


def fill(states: States, rows: Ints, values: NDArray[np.floating], counts: NDArray[np.int32]) -> None:
    """The states of these users."""
    states.values[rows], states.counts[rows] = halves(values), counts


def halves(values: NDArray[np.floating]) -> NDArray[np.float16]:
    """In half precision, as they are kept."""
    with np.errstate(over="ignore"):  # what overflows is caught below
        short = values.astype(np.float16)
    if not np.isfinite(short).all():
        raise DataError(
            "The generator gave states that are not numbers, or too large for half precision. Its training went "
            "wrong: lower its learning rate and train again."
        )
    return short


def read(folder: Path, name: str) -> States:
    """The states of a split, without loading them."""
    values, counts = _open(_file(folder, name)), _open(_file(folder, f"{name}-counts"))
    if len(values) != len(counts):
        raise DamagedArtifact(f"{_file(folder, name)} and its counts are of different lengths. Make the states again.")
    return States(values, counts)


def _file(folder: Path, name: str) -> Path:
    return folder / f"{name}.npy"


def _open(file: Path) -> NDArray[Any]:
    try:
        array: NDArray[Any] = np.load(file, mmap_mode="r", allow_pickle=False)
    except (ValueError, OSError) as error:
        raise DamagedArtifact(f"{file} cannot be read ({error}). Make the states again.") from None
    return array
