"""The fast matching against a slow twin that tries everything."""

from __future__ import annotations

from itertools import permutations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from merit.core.ragged import Ragged
from merit.core.types import Floats
from merit.evaluation import matching
from merit.evaluation.matching import edges_of, match, near_pairs
from tests.evaluation.worlds import circle

LABELS = 8
lists = st.lists(st.integers(0, LABELS - 1), max_size=5, unique=True)
examples = st.lists(st.tuples(lists, lists), min_size=1, max_size=6)
degrees = st.lists(st.integers(0, 20).map(lambda step: 13.0 * step), min_size=LABELS, max_size=LABELS)


def cosine(left: int, right: int, vectors: Floats) -> float:
    return 1.0 if left == right else float(vectors[left] @ vectors[right])


def slow_size(predicted: list[int], gold: list[int], vectors: Floats, tau: float) -> int:
    """The most golds that can be found at once: every way to give each gold a prediction of its own or none."""
    padded = predicted + [-1] * len(gold)
    return max(
        sum(one >= 0 and cosine(one, other, vectors) >= tau for one, other in zip(chosen, gold, strict=True))
        for chosen in set(permutations(padded, len(gold)))
    )


@settings(max_examples=60, deadline=None)
@given(examples, degrees, st.sampled_from([0.55, 0.7, 0.9]))
def test_one_to_one_finds_as_many_as_possible_and_never_misses_a_verbatim_hit(
    rows: list[tuple[list[int], list[int]]], angles: list[float], tau: float
) -> None:
    vectors = circle(angles)
    predicted, gold = Ragged.of([row[0][:4] for row in rows]), Ragged.of([row[1][:4] for row in rows])
    hits = match(edges_of(predicted, gold, vectors), tau)
    assert hits.golds.sum() == hits.predictions.sum()
    for place, (said, true) in enumerate((row[0][:4], row[1][:4]) for row in rows):
        found = hits.golds[gold.offsets[place] : gold.offsets[place + 1]]
        right = hits.predictions[predicted.offsets[place] : predicted.offsets[place + 1]]
        assert found.sum() == right.sum() == slow_size(said, true, vectors, tau)
        assert all(found[true.index(label)] and right[said.index(label)] for label in set(said) & set(true))


@settings(max_examples=60, deadline=None)
@given(examples, degrees, st.sampled_from([0.55, 0.7, 0.9]), st.sampled_from([None, 1, 2, 3]))
def test_any_and_exact(
    rows: list[tuple[list[int], list[int]]], angles: list[float], tau: float, budget: int | None
) -> None:
    vectors = circle(angles)
    edges = edges_of(Ragged.of([row[0] for row in rows]), Ragged.of([row[1] for row in rows]), vectors)
    near, same = match(edges, tau, "any", budget), match(edges, "exact", budget=budget)
    cut = [(said[:budget], said[len(said[:budget]) :], true) for said, true in rows]
    assert near.golds.tolist() == [
        any(cosine(p, g, vectors) >= tau for p in said) for said, _, true in cut for g in true
    ]
    assert near.predictions.tolist() == [
        inside and any(cosine(p, g, vectors) >= tau for g in true)
        for said, rest, true in cut
        for inside, part in ((True, said), (False, rest))
        for p in part
    ]
    assert same.golds.tolist() == [g in said for said, _, true in cut for g in true]


def test_five_paraphrases_of_one_gold_are_right_once() -> None:
    vectors = circle([0, 1, 2, 3, 4, 5, 90])
    edges = edges_of(Ragged.of([[1, 2, 3, 4, 5]]), Ragged.of([[0, 6]]), vectors)
    once, often = match(edges, 0.7), match(edges, 0.7, "any")
    assert (once.predictions.sum(), once.golds.sum()) == (1, 1)
    assert (often.predictions.sum(), often.golds.sum()) == (5, 1)


def test_a_label_matches_itself_at_one_whatever_rounding_says() -> None:
    vectors = np.random.default_rng(1).normal(size=(200, 33)).astype(np.float32)
    vectors /= np.linalg.norm(vectors, axis=1, keepdims=True)
    own = Ragged.of([[label] for label in range(200)])
    assert (np.einsum("ij,ij->i", vectors, vectors) < 1).any()
    assert match(edges_of(own, own, vectors), 1.0).golds.all()


@pytest.mark.parametrize("block", [1, 50, 1 << 22])
def test_blocks_change_nothing(block: int, monkeypatch: pytest.MonkeyPatch) -> None:
    rng = np.random.default_rng(0)
    left, right = (Ragged.of([rng.permutation(36)[: rng.integers(0, 9)].tolist() for _ in range(40)]) for _ in range(2))
    vectors = circle(range(0, 360, 10))
    monkeypatch.setattr(matching, "BLOCK", block)
    first, second, alike = near_pairs(left, right, vectors, 0.6)
    expected = [
        (i, j)
        for row in range(40)
        for i in range(left.offsets[row], left.offsets[row + 1])
        for j in range(right.offsets[row], right.offsets[row + 1])
        if cosine(left.values[i], right.values[j], vectors) >= 0.6
    ]
    assert list(zip(first.tolist(), second.tolist(), strict=True)) == expected
    assert (alike >= 0.6).all()


@pytest.mark.parametrize("rows", [[], [[]], [[], []]])
def test_nothing_to_match(rows: list[list[int]]) -> None:
    nothing, something = Ragged.of(rows), Ragged.of([[1] for _ in rows])
    for predicted, gold in ((nothing, something), (something, nothing), (nothing, nothing)):
        hits = match(edges_of(predicted, gold, circle([0, 90])), 0.7)
        assert not hits.golds.any() and not hits.predictions.any()
