"""ranking: the propensity model's lists for test users, and its audiences.

The artifact: predictions (the most likely interests of each user, for the results table), and audiences.parquet: users
for an interest, beside the history's frequencies and the generator's own likelihood, with intervals. torch is imported
where a generator is; the quick preset has none.
"""

from __future__ import annotations

import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from pydantic import Field

from merit.core import artifacts, console
from merit.core.artifacts import Artifact
from merit.core.config import Frozen
from merit.core.ragged import Ragged, head, matrix, offsets_of, owners
from merit.core.types import Floats, Ints
from merit.data.corpus import read_table
from merit.evaluation import predictions, ranking, tables
from merit.evaluation.classification import Metrics
from merit.evaluation.evaluate import AUDIENCES, HISTORY_SHARE, training_popularity, truth_of_test_users
from merit.evaluation.predictions import Predictions, Truth, top
from merit.evaluation.ranking import Scores
from merit.labels import space
from merit.labels.build import load_vectors
from merit.labels.space import LabelSpace
from merit.propensity.features import UserFeatures, stateless
from merit.propensity.held_out import PairScorer
from merit.propensity.lengths import LengthConfig, best_lengths
from merit.propensity.quick import load_quick
from merit.retrieval.verticals import vertical_shares

if TYPE_CHECKING:
    from merit.generator.model import Generator, TrainedGenerator

NAME = "MERIT"
QUICK = "quick"
LIKELIHOOD = "likelihood"


class RankingConfig(Frozen):
    """How long lists are, and from how many resamples of users intervals come."""

    budget: int = Field(20, ge=1)
    """Interests ranked for each user."""
    length: LengthConfig = LengthConfig()
    """How long the list of a user is where nobody says how many are wanted."""
    resamples: int = Field(2_000, ge=100)


def rank(
    propensity: Artifact,
    states: Artifact,
    generator: Artifact,
    corpus: Artifact,
    labels: Artifact,
    out: Path,
    config: RankingConfig,
    seed: int,
) -> Artifact:
    """Score all test users against all labels and judge both directions."""
    from merit.generator.model import load_generator, name_of
    from merit.propensity.states import read_features
    from merit.propensity.train import load_scorer

    scorer, (_, features) = load_scorer(propensity, labels), read_features(corpus, states, "test")
    trained, method = load_generator(generator, corpus, labels), name_of(generator)
    likelihood = _likelihood(trained, corpus, features, space.load(labels.path))
    parents = {"propensity": propensity, "states": states, "generator": generator}
    parents |= {"corpus": corpus, "labels": labels}
    others = {f"{method}, {LIKELIHOOD}": likelihood}
    return _rank(scorer, features, NAME, others, parents, out, config, seed)


def rank_quick(
    propensity: Artifact, corpus: Artifact, labels: Artifact, out: Path, config: RankingConfig, seed: int
) -> Artifact:
    """The same of a quick model: its lists and audiences, beside the history's frequencies."""
    parents = {"propensity": propensity, "corpus": corpus, "labels": labels}
    features = stateless(corpus, "test")[1]
    return _rank(load_quick(propensity, labels), features, QUICK, {}, parents, out, config, seed)


def _rank(
    scorer: PairScorer,
    features: UserFeatures,
    name: str,
    others: Mapping[str, Scores],
    parents: Mapping[str, Artifact],
    out: Path,
    config: RankingConfig,
    seed: int,
) -> Artifact:
    """The lists of one method, and the figures of its audiences and of `others`."""
    corpus, labels = parents["corpus"], parents["labels"]
    label_space = space.load(labels.path)
    truth = truth_of_test_users(corpus, label_space, load_vectors(labels))
    scores = propensity_scores(scorer, features)
    methods = {HISTORY_SHARE: history_share_scores(truth), **others, name: scores}
    with artifacts.writing(out, "predictions", config=config, seed=seed, parents=parents) as draft:
        with console.spinner(f"ranking {len(features):,} users for {len(label_space):,} labels"):
            free, ranked = top_labels(scorer, features, config.budget, config.length)
            shares, _ = vertical_shares(corpus, label_space)
            metrics = [judge(method, seed, score, truth, shares) for method, score in methods.items()]
            figures = tables.compare(metrics, truth.users, seed, HISTORY_SHARE, config.resamples)
        predictions.write(draft.path / "predictions-0.parquet", Predictions(name, seed, free, ranked))
        figures.write_parquet(draft.path / AUDIENCES)
        shutil.copyfile(parents["propensity"].file("reliability.parquet"), draft.path / "reliability.parquet")
        draft.summary |= {"examples": len(ranked), "methods": [name]}
    return artifacts.load(out, "predictions")


def judge(method: str, seed: int, score: Scores, truth: Truth, shares: Floats) -> tuple[Predictions, Metrics]:
    """The metrics of a method that ranks users, in the form that `tables.compare` takes."""
    no_lists = Ragged(np.zeros(len(truth) + 1, dtype=np.int64), np.zeros(0, dtype=np.int32))
    return Predictions(method, seed, no_lists), ranking.measure_audiences(score, truth, shares)


def top_labels(scorer: PairScorer, features: UserFeatures, budget: int, length: LengthConfig) -> tuple[Ragged, Ragged]:
    """The labels with the highest scores of each user, best first; of equal ones the lower number.

    First at their best lengths, then `budget` of them.
    """
    live, curve = np.flatnonzero(scorer.live), scorer.calibration
    assert curve is not None
    users, everything = scorer.users(features), np.arange(len(scorer.live))
    step = max(1, (1 << 24) // len(everything))
    parts, lengths = [], []
    for at in range(0, len(users), step):
        scores = scorer.grid(users[at : at + step], features.part(at, at + step), everything)
        parts.append(top(scores, live, budget))
        best = np.take_along_axis(scores, parts[-1].values.reshape(len(scores), -1).astype(np.int64), axis=1)
        expected = curve.probability(scores[:, live]).sum(1)
        lengths.append(best_lengths(curve.probability(best), expected, length))
    sizes = np.concatenate([part.lengths() for part in parts])
    ranked = Ragged(offsets_of(sizes), np.concatenate([part.values for part in parts]))
    return head(ranked, np.concatenate(lengths)), ranked


def propensity_scores(scorer: PairScorer, features: UserFeatures) -> Scores:
    """Calibrated probabilities."""
    users, curve = scorer.users(features), scorer.calibration
    assert curve is not None

    def scores(labels: Ints) -> Floats:
        return (curve.probability(scorer.grid(users, features, labels)) * scorer.live[labels]).astype(np.float32)

    return scores


def history_share_scores(truth: Truth) -> Scores:
    """The share of a user's events that had the label: comparable across users, however busy they are."""
    owner = owners(truth.history)
    totals = np.bincount(owner, weights=truth.counts, minlength=len(truth))
    shares = matrix(truth.history, truth.counts / np.maximum(totals[owner], 1), len(truth.cluster)).tocsc()
    return lambda labels: shares[:, labels].toarray()


def _likelihood(trained: TrainedGenerator, corpus: Artifact, features: UserFeatures, labels: LabelSpace) -> Scores:
    """The generator's probability of a label as its first one."""
    from merit.generator.items.histories import COLUMNS
    from merit.generator.items.model import ItemGenerator
    from merit.generator.model import Generator

    if isinstance(trained, ItemGenerator):
        return trained.likelihood(trained.inputs(read_table(corpus, "test", *COLUMNS)))
    assert isinstance(trained, Generator)
    return likelihood_scores(trained, features, training_popularity(labels))


def likelihood_scores(trained: Generator, features: UserFeatures, popularity: Ints) -> Scores:
    """A language model's probability of a label as its first one.

    That of its first token is exact; labels that share a first token share its probability by their popularity.
    """
    import torch

    from merit.generator import backbone

    paths = trained.shop.paths
    first = paths.tokens[paths.offsets[:-1]]
    live = trained.labels.live_mask()
    weight = np.where(live, np.maximum(popularity, 1), 0)
    roots, place = np.unique(first, return_inverse=True)
    share = weight / np.maximum(np.bincount(place, weights=weight)[place], 1)
    with torch.inference_mode():
        rows = backbone.head(trained.model)[torch.from_numpy(roots.astype(np.int64))]
        logits = torch.from_numpy(features.states.first(1).values[:, 0].astype(np.float32)) @ rows.T
        dead = torch.from_numpy(np.bincount(place, weights=weight) == 0)
        chances = logits.masked_fill(dead, -torch.inf).softmax(1).numpy()
    return lambda labels: (chances[:, place[labels]] * share[labels]).astype(np.float32)
