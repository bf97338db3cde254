import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from merit.core.errors import DamagedArtifact, DataError
from merit.core.ragged import Ragged
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
    counts, shares = features.UserFeatures(nothing, history, times).history_counts(rows, asked, labels)
    for place, row in enumerate(rows.tolist()):
        total = sum(histories[row].values())
        for column, label in enumerate(asked[place].tolist()):
            own = histories[row].get(label, 0)
            assert counts[place, column] == own
            assert abs(shares[place, column] - (own / total if own else 0)) < 1e-6
