"""Every answer against the slow twin, whatever the blocks, threads, storage, ties and masks."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from threadpoolctl import threadpool_info

from merit.core.errors import DamagedArtifact, DataError
from merit.retrieval import exact as exact_module
from merit.retrieval import store
from merit.retrieval.exact import Exact
from merit.retrieval.scorer import Scorer
from merit.retrieval.topk import Ranked
from tests.retrieval.worlds import (
    KINDS,
    audience,
    grid,
    interests,
    labels_of,
    naive_best,
    naive_scores,
    per_user,
    users_of,
    world,
)

worlds = st.builds(
    world,
    st.integers(0, 2**32),
    users=st.integers(1, 40),
    labels=st.integers(1, 40),
    kind=st.sampled_from(KINDS),
    threads=st.integers(1, 3),
    block=st.integers(1, 50),
    factors=st.sampled_from([0, 1, 4, 21]),
    layers=st.sampled_from([(16, 6), (0, 0)]),
)
shares = st.sampled_from([0.0, 0.2, 0.7, 1.0])


@settings(max_examples=60, deadline=None)
@given(worlds, st.integers(1, 60), shares, st.integers(0, 2**32))
def test_both_ways_against_one_pair_at_a_time(scorer: Scorer, n: int, share: float, seed: int) -> None:
    rng = np.random.default_rng(seed)
    user, label = len(scorer.users) - 1, labels_of(scorer)[-1]
    eligible, live = (rng.random(len(side)) < share for side in (scorer.users, scorer.labels))
    for found, of_labels, mask in (
        (audience(scorer, label, n), False, None),
        (audience(scorer, label, n, eligible), False, eligible),
        (interests(scorer, user, n), True, None),
        (interests(scorer, user, n, live), True, live),
    ):
        if of_labels:
            slow = naive_scores(scorer, users_of(scorer)[-1:], labels_of(scorer))[0]
        else:
            slow = naive_scores(scorer, users_of(scorer), label[None])[:, 0]
        assert found.rows.tolist() == naive_best(slow, n, mask)
        assert found.scores == pytest.approx(slow[found.rows], rel=1e-9, abs=1e-9)


@settings(max_examples=30, deadline=None)
@given(worlds, st.integers(1, 50), shares, st.integers(0, 2**32))
def test_a_pair_has_one_score_to_the_last_bit(scorer: Scorer, k: int, share: float, seed: int) -> None:
    rng = np.random.default_rng(seed)
    live = rng.random(len(scorer.labels)) < share
    everyone, everything = np.arange(len(scorer.users)), np.arange(len(scorer.labels))
    pairs = grid(scorer, everyone, everything)
    assert pairs == pytest.approx(naive_scores(scorer, users_of(scorer), labels_of(scorer)), rel=1e-9, abs=1e-9)
    users, labels = (rng.integers(0, len(side), 70) for side in (scorer.users, scorer.labels))
    assert (scorer.score(users, labels) == pairs[users, labels]).all()
    label = int(rng.integers(len(everything)))
    ranked = audience(scorer, labels_of(scorer)[label], k)
    assert (ranked.scores == pairs[ranked.rows, label]).all()
    lists = joined(scorer, k, live)
    for user in everyone:
        own = interests(scorer, user, k, live)
        assert (own.scores == pairs[user, own.rows]).all()
        assert lists[user].rows.tolist() == own.rows.tolist()
        assert (lists[user].scores == own.scores).all()


@settings(max_examples=40, deadline=None)
@given(worlds, st.integers(1, 9), shares, st.integers(0, 2**32))
def test_many_audiences_at_once_are_those_of_each_to_the_last_bit(
    scorer: Scorer, at_once: int, share: float, seed: int
) -> None:
    rng = np.random.default_rng(seed)
    vectors, eligible = labels_of(scorer), rng.random(len(scorer.users)) < share
    counts = rng.integers(1, 60, len(vectors)).tolist()
    for users, mask in ((None, None), (np.flatnonzero(eligible), eligible)):
        found = list(scorer.audiences(vectors, counts, users, at_once))
        assert len(found) == len(vectors)
        for one, vector, n in zip(found, vectors, counts, strict=True):
            alone = audience(scorer, vector, n, mask)
            assert one.rows.tolist() == alone.rows.tolist()
            assert (one.scores == alone.scores).all()
            assert (scorer.against(one.rows, scorer.label_projection(vector)) == one.scores).all()


@settings(max_examples=40, deadline=None)
@given(worlds, st.integers(0, 39))
def test_everybody_is_scored_exactly_or_as_nearly_as_the_bound_says(scorer: Scorer, label: int) -> None:
    vector = labels_of(scorer)[label % len(scorer.labels)]
    everyone, one = np.arange(len(scorer.users)), np.array([label % len(scorer.labels)])
    exact, rough = scorer.against(everyone, scorer.label_projection(vector)), scorer.user_scores(vector)
    assert (exact == grid(scorer, everyone, one)[:, 0]).all()
    off = scorer._fix(scorer.exact.labels.of(vector[None]), scorer.users)[1][0]
    assert rough.dtype == np.float32 and (np.abs(rough - exact) <= off).all()


@settings(max_examples=40, deadline=None)
@given(worlds, st.integers(1, 3))
def test_everything_is_scored_as_nearly_as_the_bound_says(scorer: Scorer, users: int) -> None:
    some = np.arange(len(scorer.users))[:users]
    off = scorer.fixed_users(some)[1]
    away = np.abs(scorer.label_scores(some) - grid(scorer, some, np.arange(len(scorer.labels))))
    assert (away <= off[:, None]).all()


@pytest.mark.parametrize("block", [7, 64, 409])
def test_threads_change_no_bit_of_everybody_nor_everything(block: int) -> None:
    one, *others = (world(5, users=3_000, labels=2_000, block=block, threads=threads) for threads in (1, 2, 3, 8))
    vector, some = labels_of(one)[0], np.arange(3)
    for other in others:
        assert (other.user_scores(vector) == one.user_scores(vector)).all()
        assert (other.label_scores(some) == one.label_scores(some)).all()


def joined(scorer: Scorer, k: int, live: np.ndarray) -> list[Ranked]:
    return [one for lists in scorer.all_interests(k, live=live, at_once=7) for one in per_user(lists)]


@pytest.mark.parametrize(("factors", "layers"), [(0, (16, 6)), (4, (16, 6)), (64, (16, 6)), (64, (0, 0))])
def test_the_same_for_any_block_and_number_of_threads(factors: int, layers: tuple[int, int]) -> None:
    one = world(5, users=700, kind="close", factors=factors, layers=layers)
    label = labels_of(one)[0]
    wanted = audience(one, label, 300)
    assert wanted.rows.tolist() == naive_best(naive_scores(one, users_of(one), label[None])[:, 0], 300)
    for threads, block in ((1, 1), (2, 64), (3, 97), (2, 10_000)):
        other = world(5, users=700, kind="close", threads=threads, block=block, factors=factors, layers=layers)
        found = audience(other, label, 300)
        assert (found.rows == wanted.rows).all()
        assert (found.scores == wanted.scores).all()


def test_float32_alone_would_get_the_order_wrong() -> None:
    """So the exact pass is needed, and the tests above can fail."""
    scorer = world(5, users=700, kind="close")
    label = labels_of(scorer)[0]
    slow = naive_scores(scorer, users_of(scorer), label[None])[:, 0]
    assert naive_best(slow.astype(np.float32), 300) != naive_best(slow, 300)


def test_a_model_that_never_wakes_ranks_by_row() -> None:
    scorer = world(3, factors=0)
    asleep = Scorer(replace(scorer.weights, d2=np.full_like(scorer.weights.d2, -1e6)), scorer.users, scorer.labels)
    rows, scores = audience(asleep, labels_of(scorer)[0], 9)
    assert rows.tolist() == list(range(9))
    assert (scores == scorer.weights.d3).all()


def test_labels_that_come_later_change_no_score() -> None:
    scorer = world(11, labels=30)
    later = np.random.default_rng(0).standard_normal((300, 7), dtype=np.float32) * 50
    more = store.hold("labels", np.vstack([labels_of(scorer), later]), scorer.exact.labels)
    wider = Scorer(scorer.weights, scorer.users, more)
    everyone = np.arange(40)
    assert (grid(wider, everyone, np.arange(330))[:, :30] == grid(scorer, everyone, np.arange(30))).all()
    live = np.arange(330) < 30
    before, after = (interests(one, 3, 10, mask) for one, mask in ((scorer, None), (wider, live)))
    assert before.rows.tolist() == after.rows.tolist()
    assert (before.scores == after.scores).all()


def test_where_a_blas_treats_rows_differently_each_row_stands_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(exact_module, "_rows_alike", lambda _: False)
    scorer = world(2)
    assert scorer.exact.tile == scorer.exact.users.tile == 1
    label = labels_of(scorer)[4]
    assert audience(scorer, label, 7).rows.tolist() == naive_best(
        naive_scores(scorer, users_of(scorer), label[None])[:, 0], 7
    )


def test_the_check_of_the_blas_sees_rows_that_differ(monkeypatch: pytest.MonkeyPatch) -> None:
    net = world(2).weights
    plain = exact_module.Projection.fill

    def uneven(projection: exact_module.Projection, tile: np.ndarray, out: np.ndarray) -> None:
        plain(projection, tile, out)
        out[50:] = np.nextafter(out[50:], np.inf)

    assert Exact.of(net).tile == exact_module.TILE
    monkeypatch.setattr(exact_module.Projection, "fill", uneven)
    assert Exact.of(net).tile == 1


def test_the_check_of_the_blas_sees_products_that_differ(monkeypatch: pytest.MonkeyPatch) -> None:
    plain = exact_module.pair_score

    def uneven(users: np.ndarray, labels: np.ndarray, width: int, *layers: Callable) -> np.ndarray:
        users = users.copy()
        users[50:, width:] = np.nextafter(users[50:, width:], np.inf)
        return plain(users, labels, width, *layers)

    monkeypatch.setattr(exact_module, "pair_score", uneven)
    assert Exact.of(world(2, factors=0).weights).tile == exact_module.TILE
    assert Exact.of(world(2).weights).tile == 1


def test_callers_in_several_threads_get_the_same_and_leave_the_blas_as_it_was() -> None:
    scorer = world(8, users=3_000, threads=2)
    before = [library["num_threads"] for library in threadpool_info()]
    label = labels_of(scorer)[0]
    with ThreadPoolExecutor(4) as pool:
        answers = list(pool.map(lambda _: audience(scorer, label, 50), range(24)))
    assert all((one.rows == answers[0].rows).all() and (one.scores == answers[0].scores).all() for one in answers)
    assert [library["num_threads"] for library in threadpool_info()] == before


def test_what_cannot_be_answered_says_why() -> None:
    scorer = world(1)
    label, user = labels_of(scorer)[0], users_of(scorer)[0]
    with pytest.raises(DataError, match="0 users cannot be ranked"):
        audience(scorer, label, 0)
    with pytest.raises(DataError, match="-1 labels cannot be ranked"):
        interests(scorer, 0, -1)
    with pytest.raises(DataError, match="0 labels"):
        scorer.all_interests(0)
    with pytest.raises(DataError, match=r"7 numbers; this one has the shape \(5,\)"):
        audience(scorer, user, 3)
    with pytest.raises(DataError, match="Encode the label again"):
        audience(scorer, np.full(7, np.nan, np.float32), 3)
    with pytest.raises(DataError, match="0 users cannot be ranked"):
        scorer.audiences(label[None], [0])
    with pytest.raises(DataError, match=r"7 numbers; this one has the shape \(5,\)"):
        scorer.audiences(users_of(scorer), [3] * 40)
    with pytest.raises(DataError, match="30 labels have 2 numbers of users"):
        scorer.audiences(labels_of(scorer), [3, 3])
    with pytest.raises(DataError, match="no row 40"):
        scorer.audiences(label[None], [3], np.array([0, 40]))
    with pytest.raises(DataError, match="mask over labels is 30 truth values"):
        scorer.all_interests(3, live=np.ones(29, bool))
    with pytest.raises(DataError, match="int64"):
        scorer.all_interests(3, live=np.arange(30))
    with pytest.raises(DataError, match="no row 40"):
        scorer.score(np.array([0, 40]), np.array([0, 1]))
    with pytest.raises(DataError, match="no row -1"):
        scorer.score(np.array([0]), np.array([-1]))
    with pytest.raises(DataError, match="not pairs"):
        scorer.score(np.array([0, 1]), np.array([0]))


def test_nothing_is_ranked_where_nobody_is_eligible() -> None:
    scorer = world(1)
    rows, scores = audience(scorer, labels_of(scorer)[0], 5, np.zeros(40, bool))
    assert len(rows) == len(scores) == 0
    nothing = np.empty(0, np.int64)
    assert scorer.score(nothing, nothing).shape == (0,)


@pytest.mark.filterwarnings("ignore:invalid value")
@pytest.mark.parametrize(("bad", "column"), [(np.nan, 3), (np.inf, 3), (np.nan, -1), (np.inf, -1), (-np.inf, -1)])
def test_projections_that_are_not_numbers_are_named(bad: float, column: int) -> None:
    scorer = world(1)
    scorer.users.projections.values[17, column] = bad
    with pytest.raises(DamagedArtifact, match=r"Row 17 of users .* Make the folder again"):
        audience(scorer, labels_of(scorer)[0], 5)
    scorer.labels.projections.values[9] = bad
    with pytest.raises(DamagedArtifact, match="Row 9 of labels"):
        next(scorer.all_interests(5))


def test_projections_of_other_vectors_are_noticed() -> None:
    scorer = world(1)
    mixed = replace(scorer.users, projections=store.Rows(scorer.users.projections.values[::-1].copy()))
    with pytest.raises(DamagedArtifact, match="users do not fit their vectors"):
        audience(Scorer(scorer.weights, mixed, scorer.labels), labels_of(scorer)[0], 5)
    with pytest.raises(DamagedArtifact, match="users do not fit their vectors"):
        list(Scorer(scorer.weights, mixed, scorer.labels).audiences(labels_of(scorer), [5] * 30))
