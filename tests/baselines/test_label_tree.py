"""The label tree keeps within its time, and its cost is chosen by validation users."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from scipy.sparse import csr_matrix
from sklearn.feature_extraction.text import CountVectorizer, TfidfVectorizer

from merit.baselines import fitting
from merit.baselines.fitting import TimeBudget
from merit.baselines.label_tree import LabelTreeConfig, _ordered, _tfidf, _Tree, affordable, label_tree
from merit.baselines.world import World
from merit.core.seeds import stream
from tests.baselines.small import ticking


def tree(size: int, seconds: float) -> _Tree:
    return _Tree(None, np.arange(2), Path(), 1.0, size, seconds, 0.5, np.zeros((1, 2), np.float32))


def standing() -> Callable[[], float]:
    return lambda: 0.0


@pytest.mark.parametrize(
    ("left", "size"),
    [
        (3.0, 150),  # 100 examples took 1.5 s and a half more is reckoned: 2.25 s for 100
        (100.0, 1000),  # never more than there are
        (0.0, 0),
    ],
)
def test_what_a_part_took_tells_what_fits(left: float, size: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fitting, "clock", standing())
    found = affordable(1000, tree(100, 4 / 3), TimeBudget(left), LabelTreeConfig(spare=1.5))
    assert found == size


def test_without_time_only_the_part_is_grown(world: World) -> None:
    summary = label_tree(replace(world, seconds=0.0), 7, LabelTreeConfig(tried=50)).summary
    assert summary["examples"] == 50 and summary["cost"] == LabelTreeConfig().costs[0]


def test_a_label_without_examples_is_not_in_the_tree(world: World) -> None:
    """With such labels the library read beyond its memory, and now and then the whole process ended."""
    answer = label_tree(replace(world, seconds=0.0), 7, LabelTreeConfig(tried=10, prune=0.0))
    assert answer.scores is not None
    scores = answer.scores(np.arange(len(world.labels)))
    known = world.purchases.gold.gather(stream(7, "label-tree").permutation(len(world.purchases))[:10]).values
    assert len(np.unique(known)) < len(world.labels)
    assert set(np.flatnonzero(scores.any(axis=0))) == set(known)


def test_with_time_all_examples_are_read_and_the_best_cost_wins(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    costs = (0.001, 1.0)
    monkeypatch.setattr(fitting, "clock", ticking())
    summary = label_tree(replace(world, seconds=1e6), 7, LabelTreeConfig(costs=costs, tried=50)).summary
    alone = [
        label_tree(replace(world, seconds=1e6), 7, LabelTreeConfig(costs=(cost,), tried=len(world.purchases))).summary
        for cost in costs
    ]
    assert summary["validation_recall"] >= max(other["validation_recall"] for other in alone)
    assert summary["cost"] == max(alone, key=lambda other: other["validation_recall"])["cost"]


def test_features_are_those_of_long_texts(world: World) -> None:
    """One text for each user: the words of labels and each label, as often as they were met, and title words."""
    words_of = CountVectorizer().build_analyzer()
    texts: list[list[list[str]]] = []
    for part in (world.purchases, world.validation, world.test):
        assert part.words is not None
        texts.append([])
        for row in range(len(part)):
            start, stop = part.history.offsets[row : row + 2]
            text: list[str] = []
            for label, count in zip(part.history[row], part.counts[start:stop], strict=True):
                text += count * [f"label {label}", *words_of(world.labels.texts[label])]
            start, stop = part.words.words.offsets[row : row + 2]
            for word, count in zip(part.words.words[row], part.words.times[start:stop], strict=True):
                text += count * [f"title {word}"]
            texts[-1].append(text)
    slow = TfidfVectorizer(analyzer=list, sublinear_tf=True).fit(texts[0])
    fast = _tfidf(world, LabelTreeConfig())
    expected = [slow.transform(part) for part in texts]
    for at in (1, 2):  # the order of the columns is not the same, products of users are
        assert np.allclose(
            (fast[0][:50] @ fast[at].T).toarray(), (expected[0][:50] @ expected[at].T).toarray(), atol=1e-4
        )


def test_rows_are_ascending_for_the_library() -> None:
    """Unsorted rows made it write where it must not."""
    rows = csr_matrix((np.ones(3), np.array([4, 0, 2]), np.array([0, 3])), shape=(1, 5))
    assert _ordered(rows).indices.tolist() == [0, 2, 4]


def test_the_label_tree_gives_probabilities(world: World) -> None:
    answer = label_tree(world, 7, LabelTreeConfig(prune=0.0))
    assert answer.scores is not None
    scores = answer.scores(np.arange(len(world.labels)))
    assert scores.min() >= 0 and scores.max() <= 1
    assert scores.sum(axis=1).mean() == pytest.approx(world.train.gold.lengths().mean(), rel=0.3)
    assert answer.summary["parameters"] > len(world.labels)
