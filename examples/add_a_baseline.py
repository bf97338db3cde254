"""A method of one's own, judged like all others.

    python examples/add_a_baseline.py

A method is a function from a world and a seed to an answer (merit.baselines.world). It sees the training users with
what they bought, and the test users without it. This one recommends what users with the same labels bought next: a
table of "had this, then bought that", counted over the training users.
"""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np

sys.path.insert(0, str(Path(__file__).parent))

from quickstart import make_run

from merit.baselines.world import Answer, World, answer_of, make_world
from merit.core import artifacts
from merit.core.ragged import matrix
from merit.data.texts import TextConfig
from merit.evaluation.classification import EvaluationConfig, MetricKey, measure
from merit.evaluation.evaluate import training_popularity, truth_of_test_users
from merit.evaluation.tables import EXACT, compare, headline, leaders, pick, show
from merit.evaluation.trivial import BASELINES
from merit.generator.backbone import BackboneConfig
from merit.labels import space
from merit.labels.build import load_vectors


def then_bought(world: World, seed: int) -> Answer:
    """Labels by how often training users with the same history bought them next, each label weighing alike."""
    labels = len(world.labels)
    had = matrix(world.train.history, np.ones_like(world.train.counts), labels)
    bought = matrix(world.train.gold, np.ones_like(world.train.gold.values), labels)
    after = (had.T @ bought).toarray() + 0.1  # (had, bought): a little of everything, so that no row is empty
    after /= after.sum(axis=1, keepdims=True)
    mine = matrix(world.test.history, world.test.counts, labels)
    scores = np.log1p(mine.toarray()) @ after
    return answer_of(scores, world, {"parameters": float(labels**2), "train_seconds": 0.0, "predict_seconds": 0.0})


def main() -> dict[str, float]:
    run = make_run()
    corpus, labels = artifacts.load(run / "corpus"), artifacts.load(run / "labels")
    backbone = BackboneConfig(width=32, layers=1, heads=2, vocabulary=1400)
    world = make_world(corpus, labels, backbone, TextConfig(), seconds=60.0)
    known = space.load(labels.path)
    truth = truth_of_test_users(corpus, known, load_vectors(labels))
    said = [baseline(truth, training_popularity(known)) for baseline in BASELINES.values()]
    said.append(then_bought(world, seed=7).predictions("then bought", seed=7))
    figures = compare([(each, measure(each, truth, EvaluationConfig())) for each in said], truth.users, seed=7)
    show("Exact match, in points", headline(figures, EXACT, ()), leaders(figures, EXACT))
    return dict(pick(figures, MetricKey("recall", "exact", 10)).select("method", "value").iter_rows())


if __name__ == "__main__":
    main()
