"""What the propensity model reads of a user: states of the generator, labels of the history, title words, trends.

States are (users, labels, width): the state that predicts the first token of a user's first, second, … label, with
zeros behind the last. A model of the first k labels reads the first k only, so one pass over the generator serves
every k.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from merit.core.errors import DamagedArtifact, DataError
from merit.core.ragged import Ragged, counts_of, matrix, offsets_of, owners
from merit.core.types import Floats, Ints
from merit.data.title_words import WordCounts
from merit.data.trends import Trends


@dataclass(frozen=True)
class States:
    """States of users in half precision, a row for each."""

    values: NDArray[np.float16]  # (users, labels, width), memory-mapped when read from a file
    counts: NDArray[np.int32]  # (users,): labels that have a state

    def __len__(self) -> int:
        return len(self.values)

    def first(self, k: int) -> States:
        """The states of the first k labels."""
        if not 1 <= k <= self.values.shape[1]:
            raise DataError(f"States of {self.values.shape[1]} labels are kept, not {k}. Set states.labels to {k}.")
        return States(self.values[:, :k], np.minimum(self.counts, k))

    def take(self, rows: Ints) -> tuple[Floats, NDArray[np.int32]]:
        """States of some users in single precision, and their counts."""
        return self.values[rows].astype(np.float32), self.counts[rows]


class HistoryCounts(NamedTuple):
    """Of pairs of user and label, both (B, M): zero where the label is not in the history."""

    times: Floats
    shares: Floats


class FeatureBatch(NamedTuple):
    """The features of some users, as arrays to compute with."""

    states: Floats  # (B, k, width)
    counts: NDArray[np.int32]  # (B,)
    labels: Ints  # of the histories, one after the other
    offsets: Ints  # (B + 1,)
    shares: Floats  # beside labels: of the user's history, by the logarithm of the count
    weights: Floats  # the same, scaled to length one for every user
    times: Floats  # beside labels: how often
    totals: Floats  # beside labels: all labels of that user's history, repeats counted
    words: WordCounts | None
    word_weights: Floats | None  # beside words.words.values: of length one for every user
    trends: Trends | None


@dataclass(frozen=True)
class UserFeatures:
    """Users: their states, how often each label is in their history, the words of its titles, and trends."""

    states: States
    history: Ragged
    times: NDArray[np.int32]  # beside history.values
    words: WordCounts | None = None
    trends: Trends | None = None

    def __len__(self) -> int:
        return len(self.states)

    def first(self, k: int) -> UserFeatures:
        """Features of a model of the first k labels. Histories stay whole."""
        return replace(self, states=self.states.first(k))

    def part(self, start: int, stop: int) -> UserFeatures:
        """Users from start to stop, without copying."""
        states = States(self.states.values[start:stop], self.states.counts[start:stop])
        stop = min(stop, len(self))
        words = self.words and self.words.part(start, stop)
        trends = self.trends and self.trends.part(start, stop)
        return UserFeatures(states, self.history.part(start, stop), self.times, words, trends)

    def gather(self, rows: Ints) -> UserFeatures:
        """These users, in this order."""
        states = States(self.states.values[rows], self.states.counts[rows])
        words, trends = self.words and self.words.gather(rows), self.trends and self.trends.gather(rows)
        return UserFeatures(states, self.history.gather(rows), self._times(rows), words, trends)

    def history_counts(self, rows: Ints, labels: Ints, n_labels: int) -> HistoryCounts:
        """How often each of the labels (B, M) is in the history of its user, and its share of that history."""
        history, sizes = self.history.take(rows)
        times = self._times(rows)
        owner = np.repeat(np.arange(len(rows)), sizes)
        total = np.maximum(np.bincount(owner, weights=times, minlength=len(rows)), 1)
        keys, pairs = owner * n_labels + history, np.arange(len(rows))[:, None] * n_labels + labels
        order = np.argsort(keys, kind="stable")
        counts = counts_of(pairs, keys[order], times[order]).astype(np.float32)
        counts[labels < 0] = 0  # -1 is no label, though its key may be another's
        seen = np.where(counts > 0, np.maximum(counts, 1), 0)
        return HistoryCounts(counts, (seen / total[:, None]).astype(np.float32))

    def take(self, rows: Ints) -> FeatureBatch:
        """The features of these users; of a file of states only theirs are read."""
        values, counts = self.states.take(rows)
        labels, sizes = self.history.take(rows)
        times, owner = self._times(rows), np.repeat(np.arange(len(rows)), sizes)
        dampened = np.log1p(times.astype(np.float32))  # the tenth event with a label says less than the first
        total = np.bincount(owner, weights=dampened, minlength=len(rows))
        shares: Floats = (dampened / np.maximum(total[owner], 1e-9)).astype(np.float32)
        words = self.words.gather(rows) if self.words else None
        return FeatureBatch(
            values,
            counts,
            labels.astype(np.int64),
            offsets_of(sizes),
            shares,
            _unit(shares, owner),
            times.astype(np.float32),
            np.bincount(owner, weights=times, minlength=len(rows))[owner].astype(np.float32),
            words,
            _word_weights(words) if words else None,
            self.trends.gather(rows) if self.trends else None,
        )

    def _times(self, rows: Ints) -> NDArray[np.int32]:
        return Ragged(self.history.offsets, self.times).take(rows)[0]


def _word_weights(words: WordCounts) -> Floats:
    owner = owners(words.words)
    return _unit(np.log1p(words.times.astype(np.float32)), owner)


def _unit(values: Floats, owner: Ints) -> Floats:
    """Values scaled to length one for every user, so that a long history weighs as much as a short one."""
    length = np.sqrt(np.bincount(owner, weights=values.astype(np.float64) ** 2))
    return (values / length[owner]).astype(np.float32)


def history_matrix(history: Ragged, times: NDArray[np.integer], n_labels: int) -> Any:
    """(users, labels), sparse: dampened counts, every row of length one, so that busy users do not rule a fit."""
    rows = matrix(history, np.log1p(times), n_labels)
    sizes = np.sqrt(np.asarray(rows.multiply(rows).sum(axis=1))).ravel()
    return rows.multiply(1 / np.maximum(sizes, 1e-9)[:, None]).tocsr().astype(np.float32)


def with_bias(rows: Any) -> Any:
    """A sparse matrix with one more column, of ones."""
    from scipy.sparse import csr_matrix, hstack  # only fits need it

    return hstack([rows, csr_matrix(np.ones((rows.shape[0], 1), np.float32))]).tocsr()


def no_states(users: int) -> States:
    """Users without states, for a model that reads none."""
    return States(np.zeros((users, 0, 0), np.float16), np.zeros(users, np.int32))


def create(folder: Path, name: str, users: int, labels: int, width: int) -> States:
    """States of a split in a new file, to be filled part by part."""
    make = partial(np.lib.format.open_memmap, mode="w+")
    values = make(folder / f"{name}.npy", dtype=np.float16, shape=(users, labels, width))
    return States(values, make(folder / f"{name}-counts.npy", dtype=np.int32, shape=(users,)))


def fill(states: States, rows: Ints, values: NDArray[np.floating], counts: NDArray[np.int32]) -> None:
    """Store the states of these users."""
    states.values[rows], states.counts[rows] = half_precision(values), counts


def half_precision(values: NDArray[np.floating]) -> NDArray[np.float16]:
    """States in half precision, as they are stored; values that do not fit are refused."""
    with np.errstate(over="ignore"):  # what overflows is caught below
        short = values.astype(np.float16)
    if not np.isfinite(short).all():
        raise DataError(
            "The generator gave states that are not numbers, or too large for half precision. Its training went "
            "wrong: lower its learning rate (stage_2.learning_rate) and train again."
        )
    return short


def read(folder: Path, name: str) -> States:
    """The states of a split, memory-mapped."""
    files = [folder / f"{name}.npy", folder / f"{name}-counts.npy"]
    try:
        values, counts = (np.load(file, mmap_mode="r", allow_pickle=False) for file in files)
    except (ValueError, OSError) as error:
        raise DamagedArtifact(f"{files[0]} or its counts cannot be read ({error}). Make the states again.") from None
    if len(values) != len(counts):
        raise DamagedArtifact(f"{files[0]} and its counts are of different lengths. Make the states again.")
    return States(values, counts)
