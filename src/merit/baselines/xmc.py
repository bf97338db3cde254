"""Extreme classification on a CPU: TF-IDF of the history's words → labels, by a probabilistic label tree.

The tree (labels split by balanced k-means, a linear classifier at every node) is that of PECOS' XR-Linear. `napkinXC`
grows it here, because PECOS wants numpy 1. Its scores are probabilities, so users can be ranked by them too.
"""

from __future__ import annotations

from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
from pydantic import Field
from scipy.sparse import csr_matrix, hstack, identity

from merit.baselines import dense
from merit.baselines.budget import Budget
from merit.baselines.world import Answer, World
from merit.config import Frozen
from merit.errors import MissingDependency
from merit.types import Floats

BLOCK = 256  # users asked at a time: the library answers in Python tuples
BYTES = 8  # of a weight on disk: its place and its value


class XmcConfig(Frozen):
    cost: float = Field(1.0, gt=0)
    """LIBLINEAR's C. The library's own default of 10 is meant for texts; histories are noisier."""
    prune: float = Field(0.05, ge=0)
    """Weights smaller than this are dropped."""
    max_words: int = Field(50_000, ge=1)


def xmc(world: World, seed: int, config: XmcConfig | None = None) -> Answer:
    """Training takes seconds and cannot be cut short; the time given is not used up."""
    config = config or XmcConfig()
    budget = Budget(world.seconds)
    train, test = _tfidf(world, config)
    gold = dense.gold_matrix(world.train.gold, len(world.labels))
    with TemporaryDirectory() as folder:  # the library keeps its model in files
        model = _model(folder, config, seed)
        model.fit(train, gold)
        trained = budget.used()
        stored = sum(file.stat().st_size for file in Path(folder).rglob("*weights*"))
        scores = _probabilities(model, test, len(world.labels))
    told = {
        "parameters": stored / BYTES,
        "train_seconds": trained,
        "predict_seconds": budget.used() - trained,
    }
    return dense.answer(scores, world, told)


def _tfidf(world: World, config: XmcConfig) -> tuple[Any, Any]:
    """(examples, words and labels): a history says the words of its labels, and each label as a word of its own.

    Labels are split into words once; a history's words are then a product of matrices, not a long text.
    """
    from sklearn.feature_extraction.text import CountVectorizer, TfidfTransformer

    said = CountVectorizer(max_features=config.max_words, dtype=np.float32).fit_transform(world.labels.texts)
    train, test = (
        dense.matrix(part.history, part.counts, len(world.labels)) @ hstack([said, identity(len(world.labels))])
        for part in (world.train, world.test)
    )
    weigh = TfidfTransformer(sublinear_tf=True).fit(train)
    return csr_matrix(weigh.transform(train), dtype=np.float32), csr_matrix(weigh.transform(test), dtype=np.float32)


def _model(folder: str, config: XmcConfig, seed: int) -> Any:
    try:
        from napkinxc.models import PLT
    except ImportError:
        raise MissingDependency("napkinXC is not installed. Install it with `pip install merit[peers]`.") from None
    return PLT(
        folder,
        liblinear_c=config.cost,
        liblinear_solver="L2R_LR",  # the default one draws from C's rand, whose seed is not the model's
        weights_threshold=config.prune,
        seed=seed,
    )


def _probabilities(model: Any, rows: Any, n_labels: int) -> Floats:
    scores: Floats = np.zeros((rows.shape[0], n_labels), dtype=np.float32)
    for at in range(0, rows.shape[0], BLOCK):
        for row, found in enumerate(model.predict_proba(rows[at : at + BLOCK], top_k=n_labels)):
            labels, values = zip(*found, strict=True) if found else ((), ())
            scores[at + row, list(labels)] = values
    return scores
