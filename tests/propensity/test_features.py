import math
from collections import Counter

import numpy as np
import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from merit.core.errors import DamagedArtifact, DataError
from merit.core.ragged import Ragged
from merit.data.title_words import TitleWords, WordCounts, vocabulary
from merit.data.trends import BACK, SURE, WEEK, Trends, trends_of, week_of
from merit.propensity import features


def _filled(folder, users=5, labels=4, width=3):
    values = np.random.default_rng(0).normal(size=(users, labels, width)).astype(np.float32)
    counts = np.array([4, 3, 2, 1, 0][:users], dtype=np.int32)
    kept = features.create(folder, "test", users, labels, width)
    features.fill(kept, np.arange(2), values[:2], counts[:2])
    features.fill(kept, np.arange(2, users), values[2:], counts[2:])
    return values, counts


def test_what_was_filled_part_by_part_is_read(tmp_path):
    values, counts = _filled(tmp_path)
    read = features.read(tmp_path, "test")
    assert np.array_equal(read.values, values.astype(np.float16))
    assert np.array_equal(read.counts, counts)


def test_a_model_of_fewer_labels_sees_the_first_ones_only(tmp_path):
    values, _ = _filled(tmp_path)
    first = features.read(tmp_path, "test").first(2)
    assert np.array_equal(first.values, values[:, :2].astype(np.float16))
    assert first.counts.tolist() == [2, 2, 2, 1, 0]


@pytest.mark.parametrize("k", [0, 5])
def test_more_labels_than_are_kept_is_an_error_with_a_remedy(tmp_path, k):
    _filled(tmp_path)
    with pytest.raises(DataError, match=f"states.labels to {k}"):
        features.read(tmp_path, "test").first(k)


@pytest.mark.parametrize("bad", [np.nan, np.inf, 1e9])
def test_states_that_are_not_numbers_are_refused(tmp_path, bad):
    kept = features.create(tmp_path, "test", 1, 1, 2)
    with pytest.raises(DataError, match="learning rate"):
        features.fill(kept, np.arange(1), np.array([[[0.0, bad]]], dtype=np.float32), np.ones(1, np.int32))


def test_a_truncated_file_is_noticed(tmp_path):
    _filled(tmp_path)
    file = tmp_path / "test.npy"
    file.write_bytes(file.read_bytes()[:-8])
    with pytest.raises(DamagedArtifact, match=r"test\.npy"):
        features.read(tmp_path, "test")


@settings(max_examples=80, deadline=None)
@given(st.data())
def test_what_users_had_equals_looking_it_up_one_by_one(data):
    users, labels = data.draw(st.integers(1, 5)), 6
    one = st.dictionaries(st.integers(0, labels - 1), st.integers(1, 9), max_size=labels)
    histories = data.draw(st.lists(one, min_size=users, max_size=users))
    history = Ragged.of([sorted(each) for each in histories])
    times = np.array([each[label] for each in histories for label in sorted(each)], np.int32)
    nothing = features.States(np.zeros((users, 1, 1), np.float16), np.zeros(users, np.int32))
    rows = np.array(data.draw(st.lists(st.integers(0, users - 1), min_size=1, max_size=6)))
    wanted = st.lists(st.integers(-1, labels - 1), min_size=3, max_size=3)
    asked = np.array(data.draw(st.lists(wanted, min_size=len(rows), max_size=len(rows))))
    found = features.UserFeatures(nothing, history, times).history_counts(rows, asked, labels)
    for place, row in enumerate(rows.tolist()):
        total = sum(histories[row].values())
        for column, label in enumerate(asked[place].tolist()):
            own = histories[row].get(label, 0)
            assert found.times[place, column] == own
            assert abs(found.shares[place, column] - (own / total if own else 0)) < 1e-6


# --- trends -----------------------------------------------------------------------------------------------------------


@given(arrays(np.float64, (14, 3), elements=st.integers(0, 50)))
def test_a_week_knows_the_eight_before_it_and_nothing_later(weekly: np.ndarray) -> None:
    found = trends_of(weekly, weekly.sum(axis=1))
    assert found.shape == (15, 3)
    for week in range(15):
        before = weekly[max(0, week - BACK) : week]
        for label in range(3):
            share = weekly[:, label].sum() / max(weekly.sum(), 1)
            wanted = math.log((before[:, label].sum() + SURE) / (before.sum() * share + SURE))
            assert found[week, label] == pytest.approx(wanted, abs=2e-3)


def test_some_labels_are_judged_against_all() -> None:
    weekly = np.random.default_rng(0).integers(0, 30, (20, 6)).astype(float)
    whole = trends_of(weekly, weekly.sum(axis=1))
    parts = [trends_of(weekly[:, at : at + 2], weekly.sum(axis=1)) for at in (0, 2, 4)]
    assert np.array_equal(np.concatenate(parts, axis=1), whole)


def test_what_rises_is_above_zero_and_a_rare_label_is_as_ever() -> None:
    weekly = np.full((30, 3), 100.0)
    weekly[20:, 0] *= 3
    weekly[:, 2] = 0
    weekly[3, 2] = 1
    found = trends_of(weekly, weekly.sum(axis=1))
    assert found[29, 0] > 0.1 and found[29, 1] < 0
    assert abs(found[29, 2]) < 0.05


def test_weeks_are_counted_from_the_first_event() -> None:
    assert week_of(np.array([0, 99, 100, 100 + WEEK - 1, 100 + WEEK]), 100).tolist() == [0, 0, 0, 0, 1]


@given(st.lists(st.integers(0, 3), min_size=1, max_size=5), st.lists(st.integers(-1, 7), min_size=1, max_size=6))
def test_both_ways_of_asking_give_the_same(weeks: list[int], labels: list[int]) -> None:
    trends = np.random.default_rng(1).standard_normal((4, 5)).astype(np.float16)
    found, asked = Trends(np.array(weeks), trends), np.array(labels)
    wanted = [[float(trends[week, label]) if 0 <= label < 5 else 0.0 for label in labels] for week in weeks]
    assert found.of(asked).tolist() == wanted
    assert found.of(np.broadcast_to(asked, (len(weeks), len(asked)))).tolist() == wanted


# --- words of titles --------------------------------------------------------------------------------------------------

TITLES = pl.Series(["Green tea", None, "tea pots", "a green GREEN pot", ""])
VOCABULARY = ["tea", "green", "pot"]


def test_an_item_has_each_known_word_of_its_title_once() -> None:
    found = TitleWords.of(VOCABULARY, TITLES)
    assert [sorted(found.of_item[row].tolist()) for row in range(len(TITLES))] == [[0, 1], [], [0, 2], [1, 2], []]


@given(st.lists(st.lists(st.integers(0, 4), max_size=6), min_size=1, max_size=9))
def test_words_of_histories_are_counted_by_hand(histories: list[list[int]]) -> None:
    read = TitleWords.of(VOCABULARY, TITLES)
    features.BLOCK, block = 2, features.BLOCK
    try:
        bag = read.in_histories(Ragged.of(histories))
    finally:
        features.BLOCK = block
    assert len(bag.words) == len(histories)
    for row, items in enumerate(histories):
        wanted = Counter(word for item in items for word in read.of_item[item].tolist())
        start, stop = bag.words.offsets[row : row + 2]
        assert dict(zip(bag.words[row].tolist(), bag.times[start:stop].tolist(), strict=True)) == wanted


def test_nobody_and_no_word() -> None:
    assert len(TitleWords.of([], TITLES).in_histories(Ragged.of([[0, 2], []])).words.values) == 0
    assert len(TitleWords.of(VOCABULARY, TITLES).in_histories(Ragged.of([])).words) == 0


def test_some_users_of_a_bag() -> None:
    bag = WordCounts(Ragged.of([[1, 2], [], [3]]), np.array([5, 6, 7], np.int32))
    assert bag.gather(np.array([2, 0])).times.tolist() == [7, 5, 6]
    assert bag.part(2, 3).gather(np.array([0])).words[0].tolist() == [3]


def test_the_vocabulary_is_of_what_training_users_had_and_of_several_titles() -> None:
    titles = pl.Series(["tea"] * 7 + ["cup tea"] * 5 + ["unsold word"] * 9)
    sold = np.array([1] * 12 + [0] * 9)
    assert vocabulary(titles, sold, most=10) == ["tea", "cup"]
    assert vocabulary(titles, sold, most=1) == ["tea"]
