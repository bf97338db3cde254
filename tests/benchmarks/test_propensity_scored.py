"""P@k and PSP@k: by hand, by the obvious loop, and as another library counts them."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from benchmarks.propensity_scored import inverse_propensities, label_counts, measure
from merit.core.errors import DataError
from merit.core.ragged import Ragged

Lists = list[list[int]]


def slow(said: Lists, gold: Lists, worth: list[float], k: int) -> tuple[float, float, float]:
    """Precision, propensity-scored precision and recall, document by document."""
    right = [[label for label in found[:k] if label in true] for found, true in zip(said, gold, strict=True)]
    gained = sum(worth[label] for labels in right for label in labels)
    best = sum(sum(sorted((worth[label] for label in true), reverse=True)[:k]) for true in gold)
    hits = sum(map(len, right))
    return hits / (k * len(gold)), gained / best, hits / sum(map(len, gold))


def test_by_hand() -> None:
    """Two documents, three labels met 1, 3 and 8 times in e³ documents: C = 2 · 2.5^0.55 = 3.3103…"""
    worth = inverse_propensities(np.array([1, 3, 8]), round(math.e**3))
    c = (math.log(20) - 1) * 2.5**0.55
    assert worth == pytest.approx([1 + c / 2.5**0.55, 1 + c / 4.5**0.55, 1 + c / 9.5**0.55])
    assert worth[0] == pytest.approx(math.log(20))  # with one document, (N + B)^-A cancels (B + 1)^A
    found = measure(Ragged.of([[2, 0], [1, 0]]), Ragged.of([[0, 2], [1]]), np.array([4.0, 2.0, 1.5]), (1, 2))
    assert found["P@1"].value == 1
    assert found["PSP@1"].value == pytest.approx((1.5 + 2) / (4 + 2))  # the first could have named the rare label
    assert found["P@2"].value == 3 / 4
    assert found["PSP@2"].value == 1
    assert (found["R@1"].value, found["R@2"].value) == (2 / 3, 1)


@st.composite
def worlds(draw: st.DrawFn) -> tuple[Lists, Lists, list[float]]:
    labels, documents = draw(st.integers(1, 8)), draw(st.integers(1, 6))
    one = st.integers(0, labels - 1)
    said, gold = (
        [draw(st.lists(one, unique=True, min_size=least, max_size=labels)) for _ in range(documents)]
        for least in (0, 1)
    )
    return said, gold, draw(st.lists(st.floats(1, 50), min_size=labels, max_size=labels))


@settings(max_examples=200, deadline=None)
@given(worlds(), st.integers(1, 6))
def test_against_the_obvious_loop(world: tuple[Lists, Lists, list[float]], k: int) -> None:
    said, gold, worth = world
    found = measure(Ragged.of(said), Ragged.of(gold), np.array(worth), (k,))
    values = tuple(found[f"{name}@{k}"].value for name in ("P", "PSP", "R"))
    assert values == pytest.approx(slow(said, gold, worth, k))
    assert all(-1e-9 <= value <= 1 + 1e-9 for value in values)


@settings(max_examples=50, deadline=None)
@given(worlds(), st.integers(1, 6))
def test_the_best_list_has_all_of_psp(world: tuple[Lists, Lists, list[float]], k: int) -> None:
    _, gold, worth = world
    best = [sorted(true, key=lambda label: -worth[label]) for true in gold]
    assert measure(Ragged.of(best), Ragged.of(gold), np.array(worth), (k,))[f"PSP@{k}"].value == pytest.approx(1)


def test_equal_worth_makes_psp_a_precision_over_what_was_possible() -> None:
    found = measure(Ragged.of([[0, 5], [3]]), Ragged.of([[0], [3, 4]]), np.full(6, 7.0), (2,))
    assert found["PSP@2"].value == pytest.approx(2 / 3)


def test_as_another_library_counts() -> None:
    metrics = pytest.importorskip("napkinxc.metrics")
    rng = np.random.default_rng(7)
    train = [rng.choice(30, rng.integers(1, 5), replace=False).tolist() for _ in range(200)]
    gold = [rng.choice(30, rng.integers(1, 5), replace=False).tolist() for _ in range(50)]
    said = [rng.permutation(30)[:5].tolist() for _ in gold]
    worth = inverse_propensities(label_counts(Ragged.of(train), 30), len(train))
    theirs = metrics.Jain_et_al_inverse_propensity(train)
    assert worth[: len(theirs)] == pytest.approx(np.asarray(theirs))
    found = measure(Ragged.of(said), Ragged.of(gold), worth, (1, 3, 5))
    for name, values in (
        ("P", metrics.precision_at_k(gold, said, k=5)),
        ("PSP", metrics.psprecision_at_k(gold, said, worth, k=5)),
    ):
        assert [found[f"{name}@{k}"].value for k in (1, 3, 5)] == pytest.approx([values[k - 1] for k in (1, 3, 5)])


def test_rare_labels_count_more_and_too_few_documents_are_refused() -> None:
    worth = inverse_propensities(np.arange(50), 1_000)
    assert (np.diff(worth) < 0).all()
    assert worth.min() > 1
    with pytest.raises(DataError, match="at least 3"):
        inverse_propensities(np.array([1]), 2)
