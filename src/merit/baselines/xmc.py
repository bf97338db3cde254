"""Extreme classification on a CPU: TF-IDF of the history's words → labels, by a probabilistic label tree.

The tree (labels split by balanced k-means, a linear classifier at every node) is that of PECOS' XR-Linear. `napkinXC`
grows it here, because PECOS wants numpy 1. Its scores are probabilities, so users can be ranked by them too.

A tree has only labels that its examples have: the library reads beyond its memory for one that has none.

A tree that has begun to grow cannot be stopped. So a small part of the examples is tried first, and what it took tells
how many of them fit into the time.
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

from merit.baselines import dense, validation
from merit.baselines.budget import Budget
from merit.baselines.world import Answer, World
from merit.core.config import Frozen
from merit.core.errors import MissingDependency
from merit.core.ragged import matrix
from merit.core.seeds import stream
from merit.core.types import Floats, Ints

BLOCK = 256  # users asked at a time: the library answers in Python tuples
BYTES = 8  # of a weight on disk: its place and its value


class XmcConfig(Frozen):
    """What a tree is grown with, and how the time for the next one is reckoned."""

    costs: tuple[float, ...] = Field((1.0, 0.1, 10.0), min_length=1)
    """LIBLINEAR's C; validation users choose. The library's own default of 10 is meant for texts; histories are
    noisier, so a smaller one comes first."""
    prune: float = Field(0.05, ge=0)
    """Weights smaller than this are dropped."""
    max_words: int = Field(50_000, ge=1)
    tried: int = Field(500, ge=1)
    """Examples of the first tree, which tells how long others take."""
    spare: float = Field(1.5, ge=1)
    """Trees grow a little faster than their examples: so many times the time in proportion is reckoned with."""


@dataclass(frozen=True)
class _Tree:
    model: Any
    labels: Ints
    """That it knows, by their number in it."""
    folder: Path
    cost: float
    size: int
    """Examples it was grown from."""
    seconds: float
    recall: float
    """On validation users."""


def xmc(world: World, seed: int, config: XmcConfig | None = None) -> Answer:
    """The tree with the best recall on validation users, of those that could be grown in time."""
    config = config or XmcConfig()
    budget = Budget(world.seconds)
    with TemporaryDirectory() as folder:  # the library keeps its models in files
        grow, test = _grower(world, Path(folder), config, seed, budget)
        trees = [grow(min(config.tried, len(world.train)), config.costs[0])]
        size = max(trees[0].size, affordable(len(world.train), trees[0], budget, config))
        for cost in config.costs[size == trees[0].size :]:  # the first may be whole already
            if affordable(len(world.train), trees[-1], budget, config) < size:
                break
            trees.append(grow(size, cost))
        trained = budget.used()
        best = max(trees, key=lambda tree: tree.recall)
        stored = sum(file.stat().st_size for file in best.folder.rglob("*weights*"))
        scores = _probabilities(best.model, best.labels, test, len(world.labels))
    told = {
        "parameters": stored / BYTES,
        "train_seconds": trained,
        "predict_seconds": budget.used() - trained,
        "cost": best.cost,
        "examples": float(best.size),
        "validation_recall": best.recall,
    }
    return dense.answer(scores, world, told)


def affordable(examples: int, tree: _Tree, budget: Budget, config: XmcConfig) -> int:
    """Examples of a tree that could still be grown in time, by what this one took."""
    left = max(0.0, budget.seconds - budget.used())
    return min(examples, int(tree.size * left / max(tree.seconds * config.spare, 1e-9)))


def _grower(
    world: World, folder: Path, config: XmcConfig, seed: int, budget: Budget
) -> tuple[Callable[[int, float], _Tree], Any]:
    """What grows a tree from so many examples at some cost; and the test users' words, to ask it about."""
    train, held_out, test = _tfidf(world, config)
    gold = _ordered(dense.gold_matrix(world.train.gold, len(world.labels)))
    lots = stream(seed, "label-tree").permutation(len(world.train))

    def grow(size: int, cost: float) -> _Tree:
        begin, place = budget.used(), folder / f"{size}-{cost:g}"
        model, rows = _model(str(place), cost, config, seed), np.sort(lots[:size])
        labels = np.unique(gold[rows].indices)
        model.fit(train[rows], _ordered(gold[rows][:, labels]))
        scores = _probabilities(model, labels, held_out, len(world.labels))
        recall = validation.recall_of_scores(scores, world)
        return _Tree(model, labels, place, cost, size, budget.used() - begin, recall)

    return grow, test


def _tfidf(world: World, config: XmcConfig) -> list[Any]:
    """Of train, validation and test users: (examples, words and labels).

    A history says the words of its labels, and each label as a word of its own. Labels are split into words once; a
    history's words are then a product of matrices, not a long text.
    """
    from sklearn.feature_extraction.text import CountVectorizer, TfidfTransformer

    said = CountVectorizer(max_features=config.max_words, dtype=np.float32).fit_transform(world.labels.texts)
    words = hstack([said, identity(len(world.labels))])
    rows = [
        matrix(part.history, part.counts, len(world.labels)) @ words
        for part in (world.train, world.validation, world.test)
    ]
    weigh = TfidfTransformer(sublinear_tf=True).fit(rows[0])
    return [_ordered(weigh.transform(each)) for each in rows]


def _ordered(rows: Any) -> Any:
    """With the columns of every row ascending: the library takes that for granted, and breaks memory otherwise."""
    made = csr_matrix(rows, dtype=np.float32)
    made.sort_indices()
    return made


def _model(folder: str, cost: float, config: XmcConfig, seed: int) -> Any:
    try:
        from napkinxc.models import PLT
    except ImportError:
        raise MissingDependency("napkinXC is not installed. Install it with `pip install merit[peers]`.") from None
    return PLT(
        folder,
        liblinear_c=cost,
        liblinear_solver="L2R_LR",  # the default one draws from C's rand, whose seed is not the model's
        weights_threshold=config.prune,
        seed=seed,
    )


def _probabilities(model: Any, labels: Ints, rows: Any, n_labels: int) -> Floats:
    scores: Floats = np.zeros((rows.shape[0], n_labels), dtype=np.float32)
    for at in range(0, rows.shape[0], BLOCK):
        for row, found in enumerate(model.predict_proba(rows[at : at + BLOCK], top_k=len(labels))):
            places, values = zip(*found, strict=True) if found else ((), ())
            scores[at + row, labels[list(places)]] = values
    return scores
