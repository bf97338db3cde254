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

from merit.core import seeds
from merit.core.types import Ints, LabelEncoder
from merit.labels.tagging.evidence import Evidence, EvidenceConfig, evidence, title_features

SET_ASIDE = 5  # one in so many tagged items
TOP = 3  # labels of an item, by which decays are compared
AT_MOST = 6_000  # of them: the weights of eight kinds of evidence need no more
PROBABILITIES = {"row": pl.Int64, "label": pl.Int64, "score": pl.Float64}


class CompleteConfig(EvidenceConfig):
    """How tags are completed."""

    decays: tuple[float, ...] = Field((0.5, 5.0, 30.0), min_length=1)
    """Of the linear model: the one that finds most tags of the items set aside."""
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
    known = seeds.stream(seed, "tags", "complete").permutation(known)
    size = min(len(known) // SET_ASIDE, AT_MOST)
    aside, rest = np.sort(known[:size]), np.sort(known[size:])
    tried = [evidence(features, tags, rest, aside, config, decay) for decay in config.decays]
    judges = [_fitted(found, tags) for found in tried]
    best = int(np.argmax([_hits(judge, found, tags) for judge, found in zip(judges, tried, strict=True)]))
    judge, (distinct, same) = judges[best], _distinct(texts, verticals, wanted)
    found = evidence(features, tags, np.sort(known), distinct, config, config.decays[best])
    chance = judge.predict_proba(found.columns)[:, 1] if len(found.row) else np.zeros(0)
    scored = pl.DataFrame({"first": found.row, "label": found.label, "score": chance.astype(np.float64)})
    table = same.join(scored.cast({"first": pl.Int64, "label": pl.Int64}), on="first").select(*PROBABILITIES)
    return table.sort("row", "score", "label", descending=[False, True, False])


def _hits(judge: Any, found: Evidence, tags: Any) -> int:
    """Tags among the three most likely labels of each item."""
    chance = judge.predict_proba(found.columns)[:, 1]
    order = np.lexsort((found.label, -chance, found.row))
    row, label = found.row[order], found.label[order]
    first = np.arange(len(row)) - np.searchsorted(row, row) < TOP
    return int(np.asarray(tags[row[first], label[first]]).sum())


def _distinct(texts: pl.Series, verticals: pl.Series, wanted: Ints) -> tuple[Ints, pl.DataFrame]:
    """One row of each title and vertical, and (row, first): which one stands for each row."""
    table = pl.DataFrame({"row": wanted, "text": texts.gather(wanted), "vertical": verticals.gather(wanted)})
    same = table.with_columns(first=pl.col("row").min().over("text", "vertical")).select("row", "first")
    return same["first"].unique().sort().to_numpy().astype(np.int64), same


def _fitted(found: Evidence, tags: Any) -> Any:
    """A logistic regression from evidence to whether the label is one of the item's."""
    from sklearn.linear_model import LogisticRegression  # a second that runs without this need not wait
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import StandardScaler

    truth = np.asarray(tags[found.row, found.label]).ravel() > 0
    if truth.all() or not truth.any():
        truth = np.arange(len(truth)) % 2 == 0  # nothing to learn from: all pairs are as likely as not
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
