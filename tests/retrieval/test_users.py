"""Some of the users of a model, asked apart from all others: the same answers, and nobody else in memory."""

import numpy as np
import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import merit
from merit.core import artifacts
from merit.core import ids as ids_module
from merit.core.errors import DataError
from merit.core.ids import IdIndex
from merit.core.ragged import column_lists
from merit.labels.build import change_labels
from merit.retrieval.users import ENOUGH, StoredUsers, sales


@pytest.mark.parametrize("grown", [False, True], ids=["labels of the model", "labels added later"])
def test_some_users_have_the_answers_they_have_among_all(made, model, tmp_path, grown):
    labels = None
    if grown:
        title = pl.read_parquet(model.artifact.file("items.parquet"))["title"][0]
        old, labels = artifacts.load(made / "labels", "labels"), tmp_path / "later"
        change_labels(old, labels, "add", [title], reason="new", cache=tmp_path / "cache")
    whole, nobody = merit.load(made, labels=labels), merit.load(made, labels=labels, users=False)
    rows = whole.stored_users()[3::4]
    some, chosen = nobody.for_users(rows), rows["user_id"]
    assert len(nobody.users) == 0 and some.users.equals(rows.drop("row"))
    assert some.interests(chosen, 6).equals(whole.interests(chosen, 6))
    assert some.interests(chosen, 4, diverse_regions=True).equals(whole.interests(chosen, 4, diverse_regions=True))
    numbers = np.flatnonzero(whole.labels.live_mask())
    stored = rows["row"].to_numpy()
    for one, other in zip(some.audiences(numbers, chosen, 7), whole.audiences(numbers, chosen, 7), strict=True):
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
        sales(model.artifact.file("users.parquet"), items), np.bincount(bought, minlength=items)
    )


def test_a_user_without_a_history_sells_nothing(tmp_path):
    table = pl.DataFrame({"items": [[1, 1, 2], []]}, schema={"items": pl.List(pl.UInt32)})
    table.write_parquet(tmp_path / "users.parquet")
    assert sales(tmp_path / "users.parquet", 4).tolist() == [0, 2, 1, 0]


def test_who_is_hidden_keeps_no_place(model):
    stored = StoredUsers.of(model.users, len(model.labels))
    gone = frozenset(model.users["user_id"].gather([0, 2]))
    found = stored.without(gone)
    assert found.rows.tolist() == [1, *range(3, len(stored))]
    assert found.users.equals(model.users[found.rows]) and found.hidden == gone


ids = st.lists(st.text(max_size=6), unique=True, max_size=40)


def places(known: list[str], wanted: list[str]) -> list[int]:
    return [known.index(each) if each in known else -1 for each in wanted]


@settings(max_examples=100, deadline=None)
@given(ids, st.lists(st.text(max_size=6), max_size=20), st.sampled_from([1, 2, 3, None]))
def test_each_id_is_where_a_list_has_it(known: list[str], others: list[str], hashes: int | None) -> None:
    wanted = [*others, *known[::2], *known[:1]]
    with pytest.MonkeyPatch.context() as patch:
        if hashes:  # so few that most of the ids share one

            def few(column: pl.Series) -> np.ndarray:
                return column.str.len_chars().to_numpy().astype(np.uint64) % np.uint64(hashes)

            patch.setattr(ids_module, "_hashes", few)
        found = IdIndex.of(pl.Series(known, dtype=pl.String)).find(pl.Series(wanted, dtype=pl.String))
    assert found.tolist() == places(known, wanted)


LABELS = 9


def with_histories(history: list[list[int]], labels: int) -> StoredUsers:
    ids = [str(user) for user in range(len(history))]
    counts = [[1] * len(user) for user in history]
    lists = {
        name: pl.Series(values, dtype=pl.List(pl.Int32)) for name, values in (("history", history), ("counts", counts))
    }
    return StoredUsers.of(pl.DataFrame({"user_id": ids, **lists}), labels)


@pytest.mark.parametrize("seed", range(20))
def test_shares_are_counted_user_by_user(seed: int) -> None:
    rng = np.random.default_rng(seed)
    had = rng.random((60, LABELS)) < rng.random(LABELS)
    rows = np.flatnonzero(rng.random(60) < rng.random())  # few of them, or most
    live, k, at_least = rng.random(LABELS) < 0.8, int(rng.integers(1, LABELS)), int(rng.integers(0, 9))
    found = with_histories([np.flatnonzero(user).tolist() for user in had], LABELS).over_indexed(
        rows, live, k, at_least
    )
    slow = []
    for label in range(LABELS):
        owners, here = sum(user[label] for user in had), sum(had[row, label] for row in rows)
        if live[label] and owners >= ENOUGH and here >= max(1, at_least):
            share, base = here / len(rows), owners / len(had)
            slow.append((-share / base, label, share, base))
    slow = [each for each in sorted(slow)[:k] if each[0] < -1]
    assert found["label"].to_list() == [label for _, label, _, _ in slow]
    assert found["index"].to_list() == pytest.approx([-index for index, _, _, _ in slow])
    assert found["share"].to_list() == [share for _, _, share, _ in slow]
    assert found["base"].to_list() == [base for _, _, _, base in slow]


def test_what_few_had_is_chance_and_does_not_over_index() -> None:
    few, many = ([[0]] * owners + [[1]] * 100 for owners in (ENOUGH - 1, ENOUGH))
    live = np.ones(2, dtype=bool)
    assert not len(with_histories(few, 2).over_indexed(np.arange(5), live, 5, 1)["label"])
    assert with_histories(many, 2).over_indexed(np.arange(5), live, 5, 1)["index"].to_list() == [120 / ENOUGH]


def test_nobody_over_indexes_in_nothing() -> None:
    nobody = np.empty(0, dtype=np.int64)
    assert not len(with_histories([[0]] * 30, 1).over_indexed(nobody, np.ones(1, dtype=bool), 5, 1)["label"])
