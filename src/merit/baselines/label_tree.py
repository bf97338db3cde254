"""Extreme classification on a CPU: TF-IDF of the history's labels and words → labels, by a probabilistic label tree.

The tree (labels split by balanced k-means, a linear classifier at every node) is that of PECOS' XR-Linear. `napkinXC`
grows it here, because PECOS wants numpy 1. Its scores are probabilities, so users can be ranked by them too.

A tree has only labels that its examples have: the library reads beyond its memory for one that has none.

A tree that has begun to grow cannot be stopped. So a small part of the examples is tried first, and its time decides
how many of them fit into the rest.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
from pydantic import Field
from scipy.sparse import csr_matrix, hstack, identity

from merit.baselines.fitting import TimeBudget, best_trend, recall_of_scores, trending
from merit.baselines.world import Answer, World, answer_of
from merit.core import extras
from merit.core.config import Frozen
from merit.core.ragged import indicators, matrix
from merit.core.seeds import stream
from merit.core.types import Floats, Ints

BLOCK = 256  # users predicted at a time: the library answers in Python tuples
BYTES = 8  # of a weight on disk: its column and its value


class LabelTreeConfig(Frozen):
    """What a tree is grown with, and how the time for the next one is estimated."""

    costs: tuple[float, ...] = Field((1.0, 0.1, 10.0), min_length=1)
    """LIBLINEAR's C; validation users choose. The library's default of 10 is meant for texts; histories are noisier,
    so a smaller one comes first."""
    prune: float = Field(0.05, ge=0)
    """Weights smaller than this are dropped."""
    max_words: int = Field(50_000, ge=1)
    tried: int = Field(500, ge=1)
    """Examples of the first tree, whose time predicts that of the others."""
    spare: float = Field(1.5, ge=1)
    """Growing takes a little more than in proportion to the examples: times so much."""


@dataclass(frozen=True)
class _Tree:
    model: Any
    labels: Ints
    """By number in the tree."""
    folder: Path
    cost: float
    size: int
    """Examples it was grown from."""
    seconds: float
    recall: float
    """On validation users."""
    validation: Floats
    """The probabilities of these."""


def label_tree(world: World, seed: int, config: LabelTreeConfig | None = None) -> Answer:
    """The tree with the best recall on validation users, of those that could be grown in time."""
    config = config or LabelTreeConfig()
    budget = TimeBudget(world.seconds)
    with TemporaryDirectory() as folder:  # the library keeps its models in files
        grow, test = _grower(world, Path(folder), config, seed, budget)
        examples = len(world.purchases)
        trees = [grow(min(config.tried, examples), config.costs[0])]
        size = max(trees[0].size, affordable(examples, trees[0], budget, config))
        for cost in config.costs[size == trees[0].size :]:  # the first may have all examples already
            if affordable(examples, trees[-1], budget, config) < size:
                break
            trees.append(grow(size, cost))
        best = max(trees, key=lambda tree: tree.recall)
        recall, trend = best_trend(best.validation, world)
        summary = {
            "parameters": sum(file.stat().st_size for file in best.folder.rglob("*weights*")) / BYTES,
            "train_seconds": budget.used(),
            "cost": best.cost,
            "examples": float(best.size),
            "trend": trend,
            "validation_recall": recall,
        }
        scores = _probabilities(best.model, best.labels, test, len(world.labels))
    return answer_of(trending(scores, world.test, trend), world, budget.with_prediction(summary))


def affordable(examples: int, tree: _Tree, budget: TimeBudget, config: LabelTreeConfig) -> int:
    """Examples of a tree that could still be grown in time, estimated from the time of this one."""
    left = max(0.0, budget.seconds - budget.used())
    return min(examples, int(tree.size * left / max(tree.seconds * config.spare, 1e-9)))


def _grower(
    world: World, folder: Path, config: LabelTreeConfig, seed: int, budget: TimeBudget
) -> tuple[Callable[[int, float], _Tree], Any]:
    """A function that grows a tree from so many examples at some cost; and the test users' features."""
    train, validation, test = _tfidf(world, config)
    gold = _ordered(indicators(world.purchases.gold, len(world.labels)))
    order = stream(seed, "label-tree").permutation(len(world.purchases))

    def grow(size: int, cost: float) -> _Tree:
        start, place = budget.used(), folder / f"{size}-{cost:g}"
        model, rows = _model(str(place), cost, config, seed), np.sort(order[:size])
        labels = np.unique(gold[rows].indices)
        model.fit(train[rows], _ordered(gold[rows][:, labels]))
        scores = _probabilities(model, labels, validation, len(world.labels))
        return _Tree(model, labels, place, cost, size, budget.used() - start, recall_of_scores(scores, world), scores)

    return grow, test


def _tfidf(world: World, config: LabelTreeConfig) -> list[Any]:
    """Of train, validation and test users: (examples, words and labels).

    A history has the words of its labels, each label as a word, and the words of its titles, apart from the first ones.
    Labels are split into words once; the words of a history are then a product of matrices, not a long text.
    """
    from sklearn.feature_extraction.text import CountVectorizer, TfidfTransformer

    label_words = CountVectorizer(max_features=config.max_words, dtype=np.float32).fit_transform(world.labels.texts)
    words = hstack([label_words, identity(len(world.labels))])
    parts = []
    for part in (world.purchases, world.validation, world.test):
        parts.append(matrix(part.history, part.counts, len(world.labels)) @ words)
        if part.words:
            parts[-1] = hstack([parts[-1], matrix(part.words.words, part.words.times, world.title_words)])
    transformer = TfidfTransformer(sublinear_tf=True).fit(parts[0])
    return [_ordered(transformer.transform(part)) for part in parts]


def _ordered(rows: Any) -> Any:
    """With the columns of every row ascending: the library takes that for granted, and breaks memory otherwise."""
    ordered = csr_matrix(rows, dtype=np.float32)
    ordered.sort_indices()
    return ordered


def _model(folder: str, cost: float, config: LabelTreeConfig, seed: int) -> Any:
    with extras.needed_by("The label tree"):
        from napkinxc.models import PLT
    return PLT(
        folder,
        liblinear_c=cost,
        liblinear_solver="L2R_LR",  # the default one draws from C's rand, whose seed is not the model's
        weights_threshold=config.prune,
        seed=seed,
    )


def _probabilities(model: Any, labels: Ints, rows: Any, n_labels: int) -> Floats:
    scores: Floats = np.zeros((rows.shape[0], n_labels), dtype=np.float32)
    for start in range(0, rows.shape[0], BLOCK):
        for row, pairs in enumerate(model.predict_proba(rows[start : start + BLOCK], top_k=len(labels))):
            columns, values = zip(*pairs, strict=True) if pairs else ((), ())
            scores[start + row, labels[list(columns)]] = values
    return scores
