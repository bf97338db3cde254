from __future__ import annotations

import numpy as np
import polars as pl
from hypothesis import given, settings
from hypothesis import strategies as st

from merit.core.ragged import Ragged
from merit.labels.mentions import Mentioned, Mentions
from merit.propensity import unseen_labels
from merit.propensity.unseen_labels import Catalogue, count_mentions

ITEMS = 6
phrases = st.lists(
    st.dictionaries(st.integers(0, ITEMS - 1), st.floats(0.1, 1.0), max_size=4).map(
        lambda found: Mentioned(np.array(sorted(found), np.int64), np.array([found[item] for item in sorted(found)]))
    ),
    max_size=4,
)


@settings(max_examples=100, deadline=None)
@given(st.lists(st.lists(st.integers(0, ITEMS - 1), max_size=6), min_size=1, max_size=5), phrases)
def test_what_histories_tell_is_added_up_item_by_item(histories: list[list[int]], named: list[Mentioned]) -> None:
    slow = {}
    for user, items in enumerate(histories):
        for which, phrase in enumerate(named):
            says = dict(zip(phrase.items.tolist(), phrase.weights.tolist(), strict=True))
            if any(item in says for item in items):
                slow[user, which] = sum(says.get(item, 0.0) for item in items)
    found = count_mentions(Ragged.of(histories), named, ITEMS)
    assert list(zip(found.users.tolist(), found.labels.tolist(), strict=True)) == list(slow)
    np.testing.assert_allclose(found.times, list(slow.values()))


def _catalogue() -> Catalogue:
    titles = pl.Series(["Green tea", "Green tea, large", "Mug", "Paint"])
    labels = Ragged.of([[0, 1], [1], [2], []])
    return Catalogue(Mentions.of(titles), labels, np.array([3.0, 1.0, 5.0, 2.0]))


def test_labels_of_products_that_name_a_phrase_speak_for_it_by_how_often_they_are_sold() -> None:
    catalogue = _catalogue()
    labels, weights = catalogue.labels_of(catalogue.naming("green tea"))
    assert labels.tolist() == [0, 1] and weights.tolist() == [3.0, 4.0]
    numbers = np.array([[1.0, 0.0, 9.0], [0.0, 7.0, 9.0]], np.float32)
    np.testing.assert_allclose(unseen_labels.mean_factors(weights, numbers), [3 / 7, 4.0, 0.0], rtol=1e-6)


def test_labels_that_training_never_saw_say_nothing() -> None:
    numbers = np.array([[0.0, 0.0], [2.0, 1.0]], np.float32)
    np.testing.assert_allclose(unseen_labels.mean_factors(np.array([5.0, 1.0]), numbers), [2.0, 0.0])


def test_a_phrase_that_nothing_names_has_nothing_of_its_own() -> None:
    catalogue = _catalogue()
    labels, weights = catalogue.labels_of(catalogue.naming("bicycles"))
    assert not unseen_labels.mean_factors(weights, np.ones((3, 4), np.float32)[labels]).any()


def test_products_that_carry_a_label_count_whole_whatever_their_title() -> None:
    named = _catalogue().naming("crockery", label=2)
    assert named.items.tolist() == [2] and named.weights.tolist() == [1.0]
