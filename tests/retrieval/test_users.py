"""Some of the users of a model, asked apart from all others: the same answers, and nobody else in memory."""

import numpy as np
import polars as pl
import pytest

import merit
from merit.core import artifacts
from merit.core.errors import DataError
from merit.core.ragged import column_lists
from merit.labels.build import change_labels
from merit.retrieval.users import People, sold


@pytest.mark.parametrize("grown", [False, True], ids=["labels of the model", "labels added later"])
def test_some_users_have_the_answers_they_have_among_all(made, model, tmp_path, grown):
    labels = None
    if grown:
        title = pl.read_parquet(model.artifact.file("items.parquet"))["title"][0]
        old, labels = artifacts.load(made / "labels", "labels"), tmp_path / "later"
        change_labels(old, labels, "add", [title], reason="new", cache=tmp_path / "cache")
    whole, nobody = merit.load(made, labels=labels), merit.load(made, labels=labels, users=False)
    rows = whole.stored_users()[3::4]
    some, users = nobody.for_users(rows), rows["user_id"]
    assert len(nobody.users) == 0 and some.users.equals(rows.drop("row"))
    assert some.ranked(users, 6).equals(whole.ranked(users, 6))
    assert some.interests(users, 4, diverse_regions=True).equals(whole.interests(users, 4, diverse_regions=True))
    numbers = np.flatnonzero(whole.labels.live_mask())
    stored = rows["row"].to_numpy()
    for one, other in zip(some.audiences(numbers, users, 7), whole.audiences(numbers, users, 7), strict=True):
        np.testing.assert_array_equal(stored[one.rows], other.rows)
        np.testing.assert_array_equal(one.scores, other.scores)


def test_a_model_without_users_knows_nobody(made, model):
    with pytest.raises(DataError, match="unknown to this model"):
        merit.load(made, users=False).interests(model.users["user_id"].head(1), k=1)


def test_what_is_sold_is_counted_from_the_table_on_disk(model):
    """The slow twin holds all histories."""
    bought = column_lists(model.users["items"]).values
    items = pl.read_parquet(model.artifact.file("items.parquet")).height
    np.testing.assert_array_equal(
        sold(model.artifact.file("users.parquet"), items), np.bincount(bought, minlength=items)
    )


def test_a_user_without_a_history_sells_nothing(tmp_path):
    table = pl.DataFrame({"items": [[1, 1, 2], []]}, schema={"items": pl.List(pl.UInt32)})
    table.write_parquet(tmp_path / "users.parquet")
    assert sold(tmp_path / "users.parquet", 4).tolist() == [0, 2, 1, 0]


def test_who_is_hidden_keeps_no_place(model):
    people = People.of(model.users)
    gone = frozenset(model.users["user_id"].gather([0, 2]))
    found = people.without(gone)
    assert found.rows.tolist() == [1, *range(3, len(people))]
    assert found.users.equals(model.users[found.rows]) and found.hidden == gone
