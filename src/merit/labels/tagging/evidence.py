"""What tagged items say about the tags of others: the nearest titles vote, and every word and its meaning has a weight.

Nothing here is as large as items × labels: neighbours are found and weights applied block by block, and only the best
labels of each item are kept.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import polars as pl
import scipy.sparse as sp
from numpy.typing import NDArray
from pydantic import Field
from scipy.linalg import cho_factor, cho_solve

from merit.core.config import Frozen
from merit.core.types import Floats, Ints, LabelEncoder

CELLS = 1 << 24  # scores that are in memory at a time: 64 MB
WEIGHTS = 1 << 27  # of the linear model: with many labels, words without a weight of their own are read by meaning only
POSTINGS = 0.05  # share of titles: a word in more of them finds no neighbour
ENCODED = 30_000  # words, the most frequent, whose meaning is read


class EvidenceConfig(Frozen):
    """What is read of the tagged items."""

    neighbours: int = Field(20, ge=1)
    """Tagged items with the most similar titles, which vote."""
    words: int = Field(3_000, ge=0)
    """Words, pairs of words and verticals with a weight of their own in the linear model; rarer ones count by their
    meaning."""
    candidates: int = Field(20, ge=1)
    """Labels of each item, by either, that are weighed."""


@dataclass(frozen=True)
class TitleFeatures:
    """Titles in numbers; row = item."""

    counts: Any  # (items, words and pairs of words and verticals), sparse, ones
    meaning: Floats  # (items, d): the mean of what the words mean, rare ones counting more


def title_features(texts: pl.Series, verticals: pl.Series, encoder: LabelEncoder) -> TitleFeatures:
    """Words, neighbouring pairs and the vertical of each title; the encoder reads each distinct word once."""
    from sklearn.feature_extraction.text import CountVectorizer  # a second that runs without this need not wait

    reader = CountVectorizer(ngram_range=(1, 2), token_pattern=r"(?u)\b\w+\b", binary=True, dtype=np.float32)
    try:
        counts = reader.fit_transform(texts.to_list()).tocsr()
        names = reader.get_feature_names_out()
    except ValueError:  # no title has a word
        counts, names = sp.csr_matrix((len(texts), 0), dtype=np.float32), np.zeros(0, dtype=object)
    found = np.asarray(counts.sum(axis=0)).ravel()
    single = np.array([" " not in name for name in names], dtype=bool)
    words = np.flatnonzero(single & (found > 1))
    words = np.sort(words[np.argsort(-found[words], kind="stable")[:ENCODED]])
    meaning = np.zeros((len(texts), encoder.dimension), np.float32)
    if len(words):
        rarity = np.log(len(texts) / found[words]).astype(np.float32)
        vectors = encoder.encode([str(names[word]) for word in words]) * rarity[:, None]
        meaning = np.asarray(counts[:, words] @ vectors, np.float32)
        meaning /= np.maximum(np.linalg.norm(meaning, axis=1, keepdims=True), 1e-9)
    return TitleFeatures(sp.hstack([counts, _one_hot(verticals)]).tocsr(), meaning)


def _one_hot(names: pl.Series) -> Any:
    """(items, names), sparse; without columns where there is only one name."""
    numbers = names.fill_null("").rank("dense").to_numpy().astype(np.int64) - 1
    width = int(numbers.max(initial=0)) + 1
    if width < 2:
        return sp.csr_matrix((len(names), 0), dtype=np.float32)
    ones, rows = np.ones(len(names), np.float32), np.arange(len(names))
    return sp.csr_matrix((ones, (rows, numbers)), shape=(len(names), width))


@dataclass(frozen=True)
class Evidence:
    """What speaks for labels of items, a row for each of the best pairs."""

    row: Ints
    label: Ints
    columns: Floats  # (pairs, features)


def evidence(
    features: TitleFeatures, tags: Any, known: Ints, wanted: Ints, config: EvidenceConfig, decay: float
) -> Evidence:
    """For the items `wanted`, of which no tag is read, from the tags (items, labels; sparse) of those `known`."""
    weighed = weights_of(features, known)
    model = _Linear(features, tags, known, config.words, decay)
    share = (np.asarray(tags[known].sum(axis=0)).ravel() / len(known)).astype(np.float32)
    tagged = tags[known]
    parts = []
    for rows in blocks(wanted, tags.shape[1]):
        near = nearest(weighed[rows], weighed[known], config.neighbours)
        closest = near.max(axis=1).toarray().ravel()
        near.data **= 2
        total = np.maximum(np.asarray(near.sum(axis=1)).ravel(), 1e-9)
        votes = np.asarray((near @ tagged).todense(), np.float32) / total[:, None].astype(np.float32)
        linear = np.maximum(model.scores(rows), 0)
        at, label = np.nonzero(top_mask(votes, config.candidates) | top_mask(linear, config.candidates))
        vote, line = votes[at, label], linear[at, label]
        speaks = [vote, line, np.sqrt(vote), np.sqrt(line), vote * line, vote * closest[at]]
        columns = np.stack([*speaks, np.log(share[label] + 1e-5), closest[at]], axis=1).astype(np.float32)
        parts.append(Evidence(rows[at], label, columns))
    if not parts:
        return Evidence(np.zeros(0, np.int64), np.zeros(0, np.int64), np.zeros((0, 8), np.float32))
    return Evidence(*(np.concatenate([getattr(part, name) for part in parts]) for name in ("row", "label", "columns")))


def blocks(rows: Ints, labels: int) -> Iterator[Ints]:
    """The rows in parts, so that a part × all labels fits into memory."""
    size = min(2_048, max(1, CELLS // max(1, labels)))
    return (rows[at : at + size] for at in range(0, len(rows), size))


def weights_of(features: TitleFeatures, known: Ints) -> Any:
    """TF-IDF of words and pairs, rows of length one, with what is common among known titles left out."""
    found = np.asarray(features.counts[known].sum(axis=0)).ravel()
    rarity = np.log((1 + len(known)) / (1 + found)).astype(np.float32) + 1
    rarity[(found == 0) | (found > max(1_000, POSTINGS * len(known)))] = 0
    weighed = (features.counts @ sp.diags_array(rarity)).tocsr()
    length = np.sqrt(np.asarray(weighed.multiply(weighed).sum(axis=1)).ravel())
    return (sp.diags_array((1 / np.maximum(length, 1e-9)).astype(np.float32)) @ weighed).tocsr()


def nearest(queries: Any, items: Any, most: int) -> Any:
    """(queries, items), sparse: the similarities of the most similar items of each query, ties to the first."""
    product = (queries @ items.T).tocoo()
    order = np.lexsort((product.col, -product.data, product.row))
    row, column, value = product.row[order], product.col[order], product.data[order]
    place = np.arange(len(row)) - np.searchsorted(row, row)
    kept = place < most
    return sp.csr_matrix((value[kept], (row[kept], column[kept])), shape=product.shape)


def top_mask(scores: Floats, most: int) -> NDArray[np.bool_]:
    """The highest positive scores of each row."""
    if scores.shape[1] <= most:
        return scores > 0
    limit = np.partition(scores, -most, axis=1)[:, -most]
    return (scores >= limit[:, None]) & (scores > 0)


class _Linear:
    """Ridge regression of tags on the most frequent words, and on the meaning of all of them."""

    def __init__(self, features: TitleFeatures, tags: Any, known: Ints, words: int, decay: float) -> None:
        found = np.asarray(features.counts[known].sum(axis=0)).ravel()
        width = features.meaning.shape[1] + 1
        size = min(words, max(0, WEIGHTS // max(1, tags.shape[1]) - width))
        often = np.argsort(-found, kind="stable")[:size]
        often = np.sort(often[found[often] > 1])
        rarity = np.log((1 + len(known)) / (1 + found[often])).astype(np.float32) + 1
        counts = features.counts[:, often] @ sp.diags_array(rarity)
        length = np.sqrt(np.asarray(counts.multiply(counts).sum(axis=1)).ravel())
        self.words = (sp.diags_array((1 / np.maximum(length, 1e-9)).astype(np.float32)) @ counts).tocsr()
        self.meaning = np.hstack([features.meaning, np.ones((features.meaning.shape[0], 1), np.float32)])
        read, meaning, targets = self.words[known], self.meaning[known], tags[known].tocsr()
        cross = np.asarray(read.T @ meaning)
        gram = np.block([[(read.T @ read).toarray(), cross], [cross.T, meaning.T @ meaning]]).astype(np.float32)
        gram[np.diag_indices_from(gram)] += decay
        right = np.vstack([(read.T @ targets).toarray(), np.asarray((targets.T @ meaning).T)]).astype(np.float32)
        self.weights = cho_solve(cho_factor(gram, overwrite_a=True), right, overwrite_b=True)

    def scores(self, rows: Ints) -> Floats:
        """(rows, labels)"""
        size = self.words.shape[1]
        scores: Floats = self.words[rows] @ self.weights[:size] + self.meaning[rows] @ self.weights[size:]
        return scores
