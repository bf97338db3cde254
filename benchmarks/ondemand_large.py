"""A quick model of any number of labels, with random weights: what a large label space costs one new history.

The label space and the catalogue are those of `large_model`; there is a product for every label.
"""

from __future__ import annotations

import shutil
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
import polars as pl
from safetensors.numpy import save, save_file

import merit
from benchmarks import large_model
from merit.core import artifacts
from merit.core.seeds import stream
from merit.labels import space
from merit.labels.build import LabelsConfig, build_labels, load_vectors
from merit.propensity.factor_scorer import FactorScorer, FactorWeights
from merit.propensity.quick import MODEL
from merit.retrieval import store
from merit.retrieval.build import factor_weights
from merit.retrieval.exact import Exact
from merit.retrieval.model import Model

FACTORS, USERS, EVENTS = 128, 1_000, 30
END = 1_700_000_000_000  # milliseconds


def make(folder: Path, labels: int, seed: int) -> Model:
    catalogue = large_model.write_catalogue(folder / "examples", labels, seed)
    with TemporaryDirectory() as cache:
        known = build_labels(catalogue, folder / "labels", LabelsConfig(encoder="hashed"), seed, Path(cache))
    rng, label_space, texts = stream(seed, "ondemand", "large"), space.load(known.path), load_vectors(known)
    weights = _weights(rng, len(label_space), texts.shape[1])
    scorer = FactorScorer(weights, texts, label_space.live_mask())
    net = factor_weights(weights.of_text, weights.bias)
    with artifacts.writing(folder / "model", "model", seed=seed) as draft:
        shutil.copytree(known.path, draft.path / "labels")
        shutil.copyfile(catalogue.file("items.parquet"), draft.path / "items.parquet")
        with artifacts.writing(draft.path / "propensity", "propensity", seed=seed) as inner:
            save_file(weights.arrays(), inner.path / MODEL)
            large_model.write_curve(inner.path, rng)
        repeats = {"repeat": weights.repeat, "repeat_labels": scorer.label_repeats.astype(np.float32)}
        (draft.path / "mlp.safetensors").write_bytes(save(net.arrays() | repeats))
        large_model.write_users(draft.path / "users.parquet", catalogue, known, USERS, seed)
        for name, vectors in (("users", _normal(rng, USERS, FACTORS)), ("interests", scorer.label_vectors)):
            (draft.path / name).mkdir()
            side = Exact.of(net).users if name == "users" else Exact.of(net).labels
            store.write(draft.path / name, len(vectors), [vectors], side)
        draft.summary |= {"preset": "quick", "users": USERS, "labels": len(label_space), "last": END}
        draft.summary |= {"history_days": 365, "gap_days": 7}
    return merit.load(folder / "model", verify=False)


def histories(labels: int, users: int, seed: int) -> pl.DataFrame:
    """Events of new users: popular items more often."""
    rng = stream(seed, "ondemand", "histories")
    items = (labels * rng.random(users * EVENTS) ** 3).astype(np.int64)
    owner = np.repeat(np.arange(users), EVENTS)
    return pl.DataFrame(
        {
            "user_id": [f"new-{user:05}" for user in owner.tolist()],
            "item_id": [f"P{item:07}" for item in items.tolist()],
            "timestamp": END - rng.integers(0, 300 * 86_400_000, len(items)),
        }
    )


def _weights(rng: np.random.Generator, labels: int, text: int) -> FactorWeights:
    return FactorWeights(
        label_factors=_normal(rng, labels, FACTORS),
        history_factors=_normal(rng, labels, FACTORS - 1),
        of_text=_normal(rng, FACTORS, text),
        repeat=np.array([1.7, 1.0, -0.15], np.float32),
        repeat_bias=_normal(rng, 1, FACTORS)[0],
        trend_weight=np.zeros(1, np.float32),
        bias=np.array([-8.0], np.float32),
        trained=np.ones(labels, bool),
    )


def _normal(rng: np.random.Generator, rows: int, columns: int) -> np.ndarray:
    return rng.standard_normal((rows, columns), dtype=np.float32) * np.float32(0.2)
