"""Words in the titles of histories, against counting by hand."""

from __future__ import annotations

from collections import Counter

import numpy as np
import polars as pl
from hypothesis import given
from hypothesis import strategies as st

from merit.core.ragged import Ragged
from merit.data import title_words
from merit.data.title_words import TitleWords, WordCounts, vocabulary

TITLES = pl.Series(["Green tea", None, "tea pots", "a green GREEN pot", ""])
VOCABULARY = ["tea", "green", "pot"]


def test_an_item_has_each_known_word_of_its_title_once() -> None:
    found = TitleWords.of(VOCABULARY, TITLES)
    assert [sorted(found.of_item[row].tolist()) for row in range(len(TITLES))] == [[0, 1], [], [0, 2], [1, 2], []]


@given(st.lists(st.lists(st.integers(0, 4), max_size=6), min_size=1, max_size=9))
def test_words_of_histories_are_counted_by_hand(histories: list[list[int]]) -> None:
    read = TitleWords.of(VOCABULARY, TITLES)
    title_words.BLOCK, block = 2, title_words.BLOCK
    try:
        bag = read.in_histories(Ragged.of(histories))
    finally:
        title_words.BLOCK = block
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
    assert bag.gather(np.array([2])).gather(np.array([0])).words[0].tolist() == [3]


def test_the_vocabulary_is_of_what_training_users_had_and_of_several_titles() -> None:
    titles = pl.Series(["tea"] * 7 + ["cup tea"] * 5 + ["unsold word"] * 9)
    sold = np.array([1] * 12 + [0] * 9)
    assert vocabulary(titles, sold, most=10) == ["tea", "cup"]
    assert vocabulary(titles, sold, most=1) == ["tea"]
