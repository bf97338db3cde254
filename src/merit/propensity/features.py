"""What the propensity model reads of a user: states of the generator, labels of the history, title words, trends.

States are (users, labels, width): the state that predicts the first token of a user's first, second, … label, with
zeros behind the last. A model of the first k labels reads the first k only, so one pass over the generator serves
every k.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
from numpy.typing import NDArray

from merit.core.artifacts import Artifact
from merit.core.errors import DamagedArtifact, DataError
from merit.core.ragged import Ragged, column_lists, counts_of, list_column, matrix, owners
from merit.core.types import Floats, Ints
from merit.data.corpus import TRENDS, purchases_table, read_table
from merit.data.title_words import WordCounts
from merit.data.trends import Trends

HISTORY = ("week", "gold", "history", "counts", "words", "word_counts")


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


@dataclass(frozen=True)
class LikelyLabels:
    """By user: labels that the generator finds likely, and the logarithm of how likely over what it leaves out."""

    labels: Ragged
    values: Floats  # beside labels.values

    def gather(self, rows: Ints) -> LikelyLabels:
        """These users, in this order."""
        return LikelyLabels(self.labels.gather(rows), self.labels.beside(self.values, rows))

    def columns(self, weight: float) -> dict[str, pl.Series]:
        """The columns of a model's users: labels, and what they add to scores with this weight."""
        sizes, added = self.labels.lengths(), (weight * self.values).astype(np.float32)
        return {
            "likely": list_column(self.labels.values.astype(np.uint32), sizes),
            "likely_scores": list_column(added, sizes),
        }

    def grid(self, labels: Ints, n_labels: int) -> Floats:
        """(users, labels): the values of these labels, zero where one is not likely."""
        column_of = np.full(n_labels, -1)
        column_of[labels] = np.arange(len(labels))
        scores, column = np.zeros((len(self.labels), len(labels)), np.float32), column_of[self.labels.values]
        scores[owners(self.labels)[column >= 0], column[column >= 0]] = self.values[column >= 0]
        return scores


@dataclass(frozen=True)
class UserFeatures:
    """Users: their states, how often each label is in their history, the words of its titles, trends, likely labels."""

    states: States
    history: Ragged
    times: NDArray[np.int32]  # beside history.values
    words: WordCounts | None = None
    trends: Trends | None = None
    likely: LikelyLabels | None = None

    def __len__(self) -> int:
        return len(self.states)

    def first(self, k: int) -> UserFeatures:
        """Features of a model of the first k labels. Histories stay whole."""
        return replace(self, states=self.states.first(k))

    def part(self, start: int, stop: int) -> UserFeatures:
        """Users from start to stop, or to the last one."""
        return self.gather(np.arange(start, min(stop, len(self))))

    def gather(self, rows: Ints) -> UserFeatures:
        """These users, in this order; of a file of states only theirs are read."""
        return UserFeatures(
            States(self.states.values[rows], self.states.counts[rows]),
            self.history.gather(rows),
            self._times(rows),
            self.words and self.words.gather(rows),
            self.trends and self.trends.gather(rows),
            self.likely and self.likely.gather(rows),
        )

    def history_counts(self, rows: Ints, labels: Ints, n_labels: int) -> tuple[Floats, Floats]:
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
        return counts, (seen / total[:, None]).astype(np.float32)

    def history_shares(self) -> Floats:
        """Beside history.values: each label's share of the user's history, by the logarithm of the count."""
        owner, dampened = owners(self.history), np.log1p(self.times.astype(np.float32))  # the tenth event says less
        total = np.bincount(owner, weights=dampened, minlength=len(self))
        shares: Floats = (dampened / np.maximum(total[owner], 1e-9)).astype(np.float32)
        return shares

    def _times(self, rows: Ints) -> NDArray[np.int32]:
        return self.history.beside(self.times, rows)


def unit_weights(values: Floats, owner: Ints) -> Floats:
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


def read_purchases(corpus: Artifact) -> tuple[Ragged, UserFeatures]:
    """What the factor model learns from: labels bought, and the features of the buyers, without states."""
    table = read_table(corpus, purchases_table(corpus), *HISTORY)
    return column_lists(table["gold"]), features_of(corpus, table, no_states(len(table)))


def stateless(corpus: Artifact, split: str, *columns: str) -> tuple[pl.DataFrame, UserFeatures]:
    """The users of a split, with these columns besides, and their features, for a model that reads no states."""
    table = read_table(corpus, split, "user_id", *HISTORY, *columns)
    return table, features_of(corpus, table, no_states(len(table)))


def features_of(
    corpus: Artifact, table: pl.DataFrame, states: States, likely: LikelyLabels | None = None
) -> UserFeatures:
    """Of the users in these rows of the corpus, with the columns HISTORY."""
    history, counts = (column_lists(table[name]) for name in ("history", "counts"))
    return UserFeatures(states, history, counts.values, *read_words_and_trends(corpus, table), likely)


def read_words_and_trends(corpus: Artifact, table: pl.DataFrame) -> tuple[WordCounts, Trends]:
    """Of the users in these rows of the corpus: the words of titles in their histories, and the trends before."""
    words, counts = (column_lists(table[name]) for name in ("words", "word_counts"))
    trends = np.load(corpus.file(TRENDS), mmap_mode="r", allow_pickle=False)
    return WordCounts(words, counts.values), Trends(table["week"].to_numpy().astype(np.int64), trends)
