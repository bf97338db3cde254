"""Encoders give unit rows that depend on the text alone; the cache gives the same rows without the work."""

from __future__ import annotations

import logging
import resource
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from merit.core.errors import ConfigError, MissingArtifact, StorageError
from merit.core.types import Floats, LabelEncoder
from merit.labels.encoders import Cached, HashedNgrams, SentenceEncoder, make

TEXTS = [f"{kind} {thing}" for kind in ("red", "blue", "trail") for thing in ("shoes", "jacket", "tent", "running")]


class Counting:
    """A hashed encoder that remembers what it was asked."""

    def __init__(self, fingerprint: str = "counting") -> None:
        self.inner = HashedNgrams(16)
        self.asked: list[str] = []
        self.fingerprint = fingerprint
        self.dimension = 16

    def encode(self, texts: Sequence[str]) -> Floats:
        self.asked += texts
        return self.inner.encode(texts)

    def same(self, texts: Sequence[str]) -> list[str]:
        return self.inner.same(texts)


@pytest.fixture(scope="module")
def minilm() -> LabelEncoder:
    return make("minilm")


# --- hashed n-grams


@settings(max_examples=50, deadline=None)
@given(st.lists(st.text(max_size=12), max_size=8))
def test_hashed_rows_are_unit_and_depend_on_their_text_alone(texts: list[str]) -> None:
    encoder = HashedNgrams(32)
    rows = encoder.encode(texts)
    assert rows.shape == (len(texts), 32) and rows.dtype == np.float32
    np.testing.assert_allclose(np.linalg.norm(rows, axis=1), 1, atol=1e-6)
    for row, text in zip(rows, texts, strict=True):
        np.testing.assert_array_equal(row, encoder.encode([text])[0])


def test_hashed_vectors_are_near_for_texts_that_share_words() -> None:
    shoes, more_shoes, tent = HashedNgrams().encode(["trail running shoes", "running shoes", "camping tent"])
    assert shoes @ more_shoes > 0.6 and shoes @ tent < 0.3


def test_hashed_words_differ_by_the_order_of_their_letters() -> None:
    one, other = HashedNgrams().encode(["ab", "ba"])
    assert one @ other < 0.9


def test_equal_keys_mean_equal_vectors() -> None:
    encoder = HashedNgrams()
    assert encoder.same([" Red  SHOES"]) == encoder.same(["red shoes"])
    np.testing.assert_array_equal(encoder.encode([" Red  SHOES"]), encoder.encode(["red shoes"]))


def test_hashed_vectors_are_the_same_in_another_process() -> None:
    program = "from merit.labels.encoders import *; print(HashedNgrams(64).encode(['trail running']).tobytes().hex())"
    command, seed = [sys.executable, "-c", program], {"PYTHONHASHSEED": "1"}  # ours is drawn by lot
    done = subprocess.run(command, env=seed, capture_output=True, text=True, check=True)
    assert done.stdout.strip() == HashedNgrams(64).encode(["trail running"]).tobytes().hex()


# --- MiniLM


def test_minilm_gives_unit_rows_in_the_order_given(minilm: LabelEncoder) -> None:
    texts = ["a considerably longer label about trail running shoes", "tent", "running shoes for trails", "tent"]
    rows = minilm.encode(texts)
    assert rows.shape == (4, minilm.dimension) == (4, 384) and rows.dtype == np.float32
    np.testing.assert_allclose(np.linalg.norm(rows, axis=1), 1, atol=1e-5)
    np.testing.assert_array_equal(rows[1], rows[3])
    assert rows[0] @ rows[2] > 0.6 and rows[0] @ rows[1] < 0.4
    np.testing.assert_allclose(minilm.encode(texts[:1])[0], rows[0], atol=1e-5)
    assert minilm.encode([]).shape == (0, 384)


def test_minilm_cannot_tell_case_and_accents_apart(minilm: LabelEncoder) -> None:
    keys = minilm.same(["Café", "cafe", "coffee"])
    assert keys[0] == keys[1] != keys[2]
    rows = minilm.encode(["Café", "cafe"])
    np.testing.assert_array_equal(rows[0], rows[1])
    assert minilm.same([]) == []


def test_minilm_keys_do_not_depend_on_the_batch(minilm: LabelEncoder) -> None:
    long = "word " * 400
    assert minilm.same([long, "tent"])[1] == minilm.same(["tent"])[0]
    assert minilm.same([long]) == minilm.same([long + "word"])  # cut at the same place: the same vector


def test_the_fingerprint_follows_the_bytes_and_not_the_place(tmp_path: Path) -> None:
    for name, content in (("a", b"1"), ("b", b"1"), ("c", b"2")):
        (tmp_path / name).mkdir()
        (tmp_path / name / "model.safetensors").write_bytes(content)
    a, b, c = (SentenceEncoder(tmp_path / name).fingerprint for name in "abc")
    assert a == b != c


def test_a_folder_without_weights_is_refused(tmp_path: Path) -> None:
    with pytest.raises(MissingArtifact, match="safetensors"):
        _ = make(str(tmp_path)).fingerprint


def test_an_unknown_name_gets_the_nearest() -> None:
    with pytest.raises(ConfigError, match="did you mean 'minilm'"):
        make("mini-lm")
    assert isinstance(make("hashed"), LabelEncoder)


# --- cache


def test_cached_rows_equal_the_encoders_and_only_new_texts_are_encoded(tmp_path: Path) -> None:
    first, second = Counting(), Counting()
    rows = Cached(first, tmp_path).encode([*TEXTS, TEXTS[0]])
    np.testing.assert_array_equal(rows, HashedNgrams(16).encode([*TEXTS, TEXTS[0]]))
    assert first.asked == TEXTS
    cache = Cached(second, tmp_path)
    mixed = ["new one", *TEXTS[::-1], "new two", "new one"]
    np.testing.assert_array_equal(cache.encode(mixed), HashedNgrams(16).encode(mixed))
    assert second.asked == ["new one", "new two"]
    assert cache.misses == 2


def test_one_cache_sees_what_another_wrote_meanwhile(tmp_path: Path) -> None:
    counting = Counting()
    early = Cached(counting, tmp_path)
    early.encode(TEXTS[:1])
    Cached(Counting(), tmp_path).encode(TEXTS)
    early.encode(TEXTS)
    assert counting.asked == TEXTS[:1]


def test_another_fingerprint_shares_nothing(tmp_path: Path) -> None:
    Cached(Counting("a"), tmp_path).encode(TEXTS)
    other = Counting("b")
    Cached(other, tmp_path).encode(TEXTS)
    assert other.asked == TEXTS


def test_a_killed_run_keeps_its_finished_chunks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Cached, "chunk", 5)
    dying = Counting()
    encode = dying.encode
    monkeypatch.setattr(dying, "encode", lambda texts: encode(texts) if len(dying.asked) < 10 else 1 / 0)
    with pytest.raises(ZeroDivisionError):
        Cached(dying, tmp_path).encode(TEXTS)
    resumed = Counting()
    np.testing.assert_array_equal(Cached(resumed, tmp_path).encode(TEXTS), HashedNgrams(16).encode(TEXTS))
    assert resumed.asked == TEXTS[10:]


@pytest.mark.parametrize("damage", [lambda b: b[:-7], lambda b: b[:-7] + b"\0" + b[-6:], lambda b: b""])
def test_a_damaged_segment_is_told_ignored_and_mended(
    tmp_path: Path, damage: object, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(logging.getLogger("merit"), "propagate", True)
    Cached(Counting(), tmp_path).encode(TEXTS)
    (segment,) = tmp_path.rglob("*.safetensors")
    segment.write_bytes(damage(segment.read_bytes()))  # type: ignore[operator]
    again = Counting()
    cache = Cached(again, tmp_path)
    np.testing.assert_array_equal(cache.encode(TEXTS), HashedNgrams(16).encode(TEXTS))
    assert again.asked == TEXTS and "is damaged" in caplog.text
    cache.encode(TEXTS)
    assert cache.misses == len(again.asked) == len(TEXTS)


def test_a_refusing_file_system_leaves_no_segment_behind(tmp_path: Path) -> None:
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (512, hard))
    try:
        with pytest.raises(StorageError, match="larger than this system allows"):
            Cached(Counting(), tmp_path).encode(TEXTS)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    assert not [path for path in tmp_path.rglob("*") if path.is_file()]


def test_nothing_in_nothing_out(tmp_path: Path) -> None:
    assert Cached(Counting(), tmp_path).encode([]).shape == (0, 16)
