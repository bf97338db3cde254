import numpy as np
import pytest

from merit.errors import DamagedArtifact, DataError
from merit.propensity import states


def _filled(folder, users=5, labels=4, width=3):
    values = np.random.default_rng(0).normal(size=(users, labels, width)).astype(np.float32)
    counts = np.array([4, 3, 2, 1, 0][:users], dtype=np.int32)
    kept = states.create(folder, "test", users, labels, width)
    states.fill(kept, 0, values[:2], counts[:2])
    states.fill(kept, 2, values[2:], counts[2:])
    return values, counts


def test_what_was_filled_part_by_part_is_read(tmp_path):
    values, counts = _filled(tmp_path)
    read = states.read(tmp_path, "test")
    assert np.array_equal(read.values, values.astype(np.float16))
    assert np.array_equal(read.counts, counts)


def test_a_model_of_fewer_labels_sees_the_first_ones_only(tmp_path):
    values, _ = _filled(tmp_path)
    first = states.read(tmp_path, "test").first(2)
    assert np.array_equal(first.values, values[:, :2].astype(np.float16))
    assert first.counts.tolist() == [2, 2, 2, 1, 0]


@pytest.mark.parametrize("k", [0, 5])
def test_more_labels_than_are_kept_is_an_error_with_a_remedy(tmp_path, k):
    _filled(tmp_path)
    with pytest.raises(DataError, match=f"states.labels to {k}"):
        states.read(tmp_path, "test").first(k)


@pytest.mark.parametrize("bad", [np.nan, np.inf, 1e9])
def test_states_that_are_not_numbers_are_refused(tmp_path, bad):
    kept = states.create(tmp_path, "test", 1, 1, 2)
    with pytest.raises(DataError, match="learning rate"):
        states.fill(kept, 0, np.array([[[0.0, bad]]], dtype=np.float32), np.ones(1, np.int32))


def test_a_truncated_file_is_noticed(tmp_path):
    _filled(tmp_path)
    file = tmp_path / "test.npy"
    file.write_bytes(file.read_bytes()[:-8])
    with pytest.raises(DamagedArtifact, match=r"test\.npy"):
        states.read(tmp_path, "test")
