"""The stage that trains an item generator: the purchases of training users → network, factor model, curve.

A training that was stopped goes on from its last checkpoint.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path

import numpy as np
import polars as pl
from safetensors.torch import save_file

from merit.core import artifacts, tracking
from merit.core.artifacts import Artifact
from merit.core.ragged import column_lists, pair_keys
from merit.core.seeds import torch_stream
from merit.core.stage import checkpoints_of
from merit.core.tracking import Tracker
from merit.data.corpus import NOW, WORDS, item_trends, purchases_table, read_table, read_words
from merit.generator.items.contents import CURVE, FACTORS, ITEM_TRENDS, NETWORK, catalogue_of
from merit.generator.items.histories import COLUMNS, ItemHistories
from merit.generator.items.model import ItemGenerator, ItemsConfig, log_odds
from merit.generator.items.network import ItemNetwork
from merit.generator.items.training import FactorPrior, Lesson, Training, fit
from merit.labels import space
from merit.labels.build import load_vectors
from merit.propensity.calibration import CalibrationCurve, ScoreTally, calibrate
from merit.propensity.linear import FactorsRun, fold_file, folds_of, load_factors


def train_items(
    corpus: Artifact,
    factors: Artifact,
    labels: Artifact,
    out: Path,
    config: ItemsConfig,
    seed: int,
    trackers: Sequence[Tracker] = (),
) -> Artifact:
    """The trained item generator. A training that was stopped goes on from its last checkpoint."""
    checkpoints, parents = checkpoints_of(out), {"corpus": corpus, "factors": factors, "labels": labels}
    with artifacts.writing(out, "generator", config=config, seed=seed, parents=parents) as draft:
        vectors, label_space, model = load_vectors(labels), space.load(labels.path), load_factors(factors)
        words = read_words(corpus)
        items = pl.read_parquet(corpus.file("items.parquet"))
        catalogue = catalogue_of(items, label_space, words, item_trends(corpus), len(label_space))
        with torch_stream(seed, "items-weights"):
            network = ItemNetwork(config.network, len(label_space), len(words), len(items))
        live = np.flatnonzero(label_space.live_mask())
        folds = FactorsRun.model_validate(factors.manifest.config).folds
        models = [load_factors(factors, fold_file(number)) for number in range(folds)] or [model]

        def lesson(split: str, prior: FactorPrior) -> Lesson:
            rows = read_table(corpus, split, *COLUMNS, "target_items")
            gold, bought = (column_lists(rows[name]) for name in ("gold", "target_items"))
            return Lesson(ItemHistories.of(corpus, rows, config.network.positions), gold, bought, prior)

        learnt = lesson(purchases_table(corpus), FactorPrior(models, vectors, folds_of(corpus, max(1, folds), seed)))
        judged = lesson("validation", FactorPrior([model], vectors))
        training = Training(network, catalogue, learnt, live, config.train, seed)
        with tracking.open_log(draft.path, out.name, trackers) as log:
            figures = fit(training, judged, checkpoints, log)
        generator = ItemGenerator(network, catalogue, judged.prior, live, config, corpus)
        curve = _calibrated(generator, judged)
        save_file(network.state_dict(), draft.path / NETWORK)
        save_file(model.state_dict(), draft.path / FACTORS)
        shutil.copyfile(corpus.file(WORDS), draft.path / WORDS)
        now = int(read_table(corpus, NOW, "week")["week"].max())  # type: ignore[arg-type]
        np.save(draft.path / ITEM_TRENDS, catalogue.trends.table[now : now + 1])
        expected = float(judged.gold.lengths().mean())
        (draft.path / CURVE).write_text(json.dumps(asdict(curve) | {"expected": expected}), encoding="utf-8")
        draft.summary |= figures | {
            "objective": config.name,
            "parameters": sum(value.numel() for value in network.parameters()),
            "examples": len(learnt),
            "trust": round(float(network.trust.detach()), 3),
            "share": round(float(network.share.detach()), 3),
        }
    shutil.rmtree(checkpoints, ignore_errors=True)
    return artifacts.load(out, "generator")


def _calibrated(generator: ItemGenerator, lesson: Lesson, budget: int = 20) -> CalibrationCurve:
    """The share of written labels that are right, by their probability when they were written."""
    tally = ScoreTally()
    golds = pair_keys(lesson.gold, 1 + int(generator.live.max()))
    for rows in generator.blocks(len(lesson), 1):
        found = generator.lists(lesson.histories.gather(rows), budget)
        keys = rows[:, None] * (1 + int(generator.live.max())) + found.labels
        tally.add(log_odds(found.log_probs).ravel(), np.isin(keys, golds).ravel())
    return calibrate(tally)
