"""A side on disk: the same as in memory, or refused."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from safetensors import numpy as safetensors

from merit.core.errors import DamagedArtifact, DataError, StorageError
from merit.retrieval import shortlist, store
from merit.retrieval.exact import Exact, ScorerWeights
from merit.retrieval.scorer import Scorer
from merit.retrieval.store import MappedArray, writing
from tests.retrieval.worlds import audience, labels_of, users_of, weights, world


def written(folder: Path, scorer: Scorer, split: int = 13) -> Path:
    folder.mkdir(exist_ok=True)
    rows = users_of(scorer)
    store.write(folder, len(rows), np.array_split(rows, split), scorer.exact.users)
    return folder


def test_from_disk_as_from_memory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(store, "CHUNK", 3)  # several chunks of one block
    scorer = world(4)
    held = store.hold("users", users_of(scorer), scorer.exact.users)
    side = store.read(written(tmp_path, scorer), scorer.exact.users)
    assert (side.norm, side.error) == (held.norm, held.error)
    one, other = (
        audience(Scorer(scorer.weights, each, scorer.labels), labels_of(scorer)[2], 9) for each in (held, side)
    )
    assert (one.rows == other.rows).all()
    assert (one.scores == other.scores).all()


def test_the_bytes_do_not_depend_on_the_blocks(tmp_path: Path) -> None:
    scorer = world(4)
    one, other = (written(tmp_path / str(split), scorer, split=split) for split in (1, 40))
    assert sorted(path.name for path in one.iterdir()) == ["header.json", "projections.npy", "vectors.npy"]
    assert all(path.read_bytes() == (other / path.name).read_bytes() for path in one.iterdir())


def test_numpy_reads_the_files(tmp_path: Path) -> None:
    scorer = world(4)
    assert (np.load(written(tmp_path, scorer) / "vectors.npy") == users_of(scorer)).all()


@pytest.mark.parametrize("name", ["vectors.npy", "projections.npy"])
def test_a_file_that_is_cut_or_grown_is_refused(tmp_path: Path, name: str) -> None:
    scorer = world(4)
    path = written(tmp_path, scorer) / name
    whole = path.read_bytes()
    for spoilt in (whole[:-1], whole + b"\0", whole[:100], b"", b"not an array" * 40):
        path.write_bytes(spoilt)
        with pytest.raises(DamagedArtifact, match=f"{name}.* Make it again"):
            store.read(tmp_path, scorer.exact.users)
    path.unlink()
    with pytest.raises(DamagedArtifact, match=f"{name} is missing"):
        store.read(tmp_path, scorer.exact.users)


@pytest.mark.parametrize("name", ["vectors.npy", "projections.npy"])
def test_a_file_cut_while_it_is_open_is_noticed_before_it_is_used(tmp_path: Path, name: str) -> None:
    scorer = world(4)
    opened = Scorer(scorer.weights, store.read(written(tmp_path, scorer), scorer.exact.users), scorer.labels)
    with (tmp_path / name).open("r+b") as file:
        file.truncate(300)
    for question in (
        lambda: audience(opened, labels_of(scorer)[0], 3),
        lambda: opened.score(np.array([1]), np.array([1])),
        lambda: next(opened.all_interests(3)),
        lambda: next(shortlist.interests(opened, np.array([1]), np.zeros(30, int), 1, 3, np.ones(30, bool))),
    ):
        with pytest.raises(DamagedArtifact, match="has 300 bytes"):
            question()


def test_arrays_of_another_shape_form_or_model_are_refused(tmp_path: Path) -> None:
    scorer = world(4)
    folder = written(tmp_path, scorer)
    np.save(folder / "projections.npy", np.zeros((40, 16), np.float32))  # without factors
    with pytest.raises(DamagedArtifact, match=r"float32 \(40, 16\), but float32 \(40, 20\)"):
        store.read(folder, scorer.exact.users)
    np.save(folder / "projections.npy", np.asfortranarray(np.zeros((40, 20), np.float32)))
    with pytest.raises(DamagedArtifact, match="did not write"):
        store.read(folder, scorer.exact.users)
    with pytest.raises(DamagedArtifact, match="another propensity model"):
        store.read(written(tmp_path, scorer), world(5).exact.users)
    (folder / "header.json").write_text("{}")
    with pytest.raises(DamagedArtifact, match=r"header\.json cannot be read"):
        store.read(folder, scorer.exact.users)


def test_vectors_that_cannot_be_stored_are_named(tmp_path: Path) -> None:
    layer = world(4).exact.users
    bad = np.zeros((30, 5), np.float32)
    bad[17, 2] = np.nan
    with pytest.raises(DataError, match="vector 47 holds values that are not numbers"):
        store.write(tmp_path, 60, [bad[:17], bad[:13], bad], layer)
    with pytest.raises(DataError, match="17 vectors came where 60 were announced"):
        store.write(tmp_path, 60, [bad[:17]], layer)
    with pytest.raises(DataError, match="0 vectors"):
        store.hold("users", bad[:0], layer)
    with pytest.raises(DataError, match=r"the model needs \(rows, 5\)"):
        store.hold("users", bad[:, :4], layer)
    with pytest.raises(DataError, match="too large for float32"):
        store.hold("users", bad[:9] + 3e38, layer)


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="no disk that is always full")
def test_a_full_disk_is_one_sentence() -> None:
    with (
        pytest.raises(StorageError, match="the disk is full"),
        writing(Path("/dev/full"), "<f4", (1000, 100)) as write,
    ):
        write(np.zeros((1000, 100), np.float32))


def test_released_rows_can_be_read_again(tmp_path: Path) -> None:
    path = tmp_path / "some.npy"
    np.save(path, np.arange(100_000, dtype=np.float32).reshape(-1, 10))
    mapped = MappedArray(path)
    before = mapped.array.copy()
    for rows in (range(10_000), range(3_000, 9_999), range(5, 5)):
        mapped.release(rows)
        assert (mapped.array == before).all()


@pytest.mark.parametrize("factors", [0, 3])
def test_weights_come_back_and_must_fit(factors: int) -> None:
    net = weights(np.random.default_rng(0), 5, 7, 16, 6, factors)
    again = ScorerWeights.of(safetensors.load(safetensors.save(net.arrays())))
    assert all(np.array_equal(again.arrays()[name], array) for name, array in net.arrays().items())
    assert Exact.of(again).users.fingerprint == Exact.of(net).users.fingerprint
    with pytest.raises(DamagedArtifact, match="W2 of the scorer"):
        ScorerWeights.of(net.arrays() | {"W2": net.W2[:, :-1]})
    with pytest.raises(DamagedArtifact, match="P_e of the scorer"):
        ScorerWeights.of(net.arrays() | {"P_e": np.zeros((factors + 1, 7))})
    with pytest.raises(DamagedArtifact, match="P_u of the scorer"):
        ScorerWeights.of(net.arrays() | {"P_u": net.P_u[:, :-1]})
    for lost in net.arrays():
        with pytest.raises(DamagedArtifact, match=f"no array {lost}"):
            ScorerWeights.of({name: array for name, array in net.arrays().items() if name != lost})
    with pytest.raises(DamagedArtifact, match="not numbers"):
        ScorerWeights.of(net.arrays() | {"d2": np.full(6, np.nan)})
