"""Tags of untagged items from those that are tagged, each with a calibrated probability.

A fifth of the tagged items is set aside first; the evidence of the others about it teaches how much each kind of
evidence is worth. Then all tagged items speak about those without tags.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import polars as pl
import scipy.sparse as sp
from pydantic import Field
from sklearn.linear_model import LogisticRegression
from sklearn.preprocessing import StandardScaler

from merit.core import seeds
from merit.core.config import Frozen
from merit.core.types import Ints, LabelEncoder
from merit.labels.tagging.evidence import Evidence, TitleFeatures, evidence, title_features

SET_ASIDE = 5  # one in so many tagged items
AT_MOST = 6_000  # of them: the weights of eight kinds of evidence need no more
PROBABILITIES = {"row": pl.Int64, "label": pl.Int64, "score": pl.Float64}


class CompleteConfig(Frozen):
    """How tags are completed."""

    neighbours: int = Field(20, ge=1)
    """Tagged items with the most similar titles, which vote."""
    words: int = Field(3_000, ge=0)
    """Words, pairs of words and verticals with a weight of their own in the linear model; rarer ones count by their
    meaning."""
    decay: float = Field(0.5, gt=0)
    """Of the linear model."""
    candidates: int = Field(20, ge=1)
    """Labels of each item, by either, that are weighed."""
    enough: int = Field(100, ge=10)
    """Tagged items. From fewer, nothing is completed."""


def complete(
    texts: pl.Series, verticals: pl.Series, tags: Any, config: CompleteConfig, encoder: LabelEncoder, seed: int
) -> pl.DataFrame:
    """row, label, score: the probability of each label that may be one of an item without tags, the best first.

    `tags`: (items, labels), sparse, ones; an item without any is one to complete.
    """
    sizes = np.diff(tags.indptr)
    known, wanted = np.flatnonzero(sizes > 0), np.flatnonzero(sizes == 0)
    if len(known) < config.enough or not len(wanted):
        return pl.DataFrame(schema=PROBABILITIES)
    features = title_features(texts, verticals, encoder)
    settings = (config.neighbours, config.words, config.decay, config.candidates)
    known = seeds.stream(seed, "tags", "complete").permutation(known)
    aside = min(len(known) // SET_ASIDE, AT_MOST)
    judge = _fitted(evidence(features, tags, np.sort(known[aside:]), np.sort(known[:aside]), *settings), tags)
    distinct, same = _distinct(texts, verticals, wanted)
    found = evidence(features, tags, np.sort(known), distinct, *settings)
    chance = judge.predict_proba(found.columns)[:, 1] if len(found.row) else np.zeros(0)
    scored = pl.DataFrame({"first": found.row, "label": found.label, "score": chance.astype(np.float64)})
    table = same.join(scored.cast({"first": pl.Int64, "label": pl.Int64}), on="first").select(*PROBABILITIES)
    return table.sort("row", "score", "label", descending=[False, True, False])


def _distinct(texts: pl.Series, verticals: pl.Series, wanted: Ints) -> tuple[Ints, pl.DataFrame]:
    """One row of each title and vertical, and (row, first): which one stands for each row."""
    table = pl.DataFrame({"row": wanted, "text": texts.gather(wanted), "vertical": verticals.gather(wanted)})
    same = table.with_columns(first=pl.col("row").min().over("text", "vertical")).select("row", "first")
    return same["first"].unique().sort().to_numpy().astype(np.int64), same


def _fitted(found: Evidence, tags: Any) -> Any:
    """A logistic regression from evidence to whether the label is one of the item's."""
    truth = np.asarray(tags[found.row, found.label]).ravel() > 0
    if truth.all() or not truth.any():
        truth = np.arange(len(truth)) % 2 == 0  # nothing to learn from: all pairs are as likely as not
    from sklearn.pipeline import make_pipeline

    return make_pipeline(StandardScaler(), LogisticRegression(max_iter=1_000)).fit(found.columns, truth)


def chosen(scored: pl.DataFrame, most: int, least: float) -> pl.DataFrame:
    """The tags of each item: as many of the most likely as give the highest expected F1, at least one, at most `most`.

    Labels less likely than `least` are never chosen.
    """
    expected = pl.col("score").sum().over("row")
    place = pl.int_range(1, pl.len() + 1).over("row")
    table = scored.with_columns(place=place, f1=2 * pl.col("score").cum_sum().over("row") / (place + expected))
    best = pl.col("f1").arg_max().over("row") + 1
    return table.filter((place <= best) & (pl.col("place") <= most) & (pl.col("score") >= least)).drop("place", "f1")


def tag_matrix(rows: Ints, labels: Ints, items: int, count: int) -> Any:
    """(items, labels), sparse, ones: item `rows[i]` has `labels[i]`."""
    matrix = sp.csr_matrix((np.ones(len(rows), np.float32), (rows, labels)), shape=(items, count))
    matrix.data[:] = 1  # of a tag that an item has twice
    return matrix


__all__ = ["CompleteConfig", "TitleFeatures", "chosen", "complete", "tag_matrix"]
