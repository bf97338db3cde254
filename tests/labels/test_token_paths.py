"""Label → path → label, in all three forms, with a tokenizer small enough to collide."""

from __future__ import annotations

from collections.abc import Sequence
from typing import get_args

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from merit.core.errors import ConfigError, DataError
from merit.labels import token_paths as module
from merit.labels.token_paths import ClusterForm, Paths, linearise

WORDS = {"red": 1, "shoes": 2, "trail": 3, "tent": 4, "!": 9}
SEP, VOCABULARY = 9, 10


def encode(texts: Sequence[str]) -> list[list[int]]:
    """Words to ids, in lower case; unknown words vanish."""
    return [[WORDS[word] for word in text.lower().split() if word in WORDS] for text in texts]


def paths_of(texts: list[str], form: ClusterForm, clusters: int = 1) -> Paths:
    assignment = np.arange(len(texts), dtype=np.int32) % clusters
    medoids = [texts[number % len(texts)] for number in range(clusters)]
    return linearise(
        texts, encode, form=form, vocabulary=VOCABULARY, assignment=assignment, medoid_texts=medoids, forbidden={SEP}
    )


word = st.sampled_from(["red", "Red", "shoes", "trail", "TENT"])
label_texts = st.lists(st.lists(word, min_size=1, max_size=4).map(" ".join), min_size=1, max_size=30)


@settings(max_examples=200, deadline=None)
@given(label_texts, st.sampled_from(get_args(ClusterForm)), st.integers(1, 4))
def test_every_label_comes_back_from_its_path(texts: list[str], form: ClusterForm, clusters: int) -> None:
    paths = paths_of(texts, form, clusters)
    trie = paths.trie()
    kept_of = dict(paths.merged.tolist())
    assert sorted([*paths.kept.tolist(), *kept_of]) == list(range(len(texts)))
    for label, text in enumerate(texts):
        path = paths.path(label)
        (leaf,), cluster = encode([text]), label % clusters
        head = {"none": [], "text": encode([texts[cluster % len(texts)]])[0], "token": [VOCABULARY + cluster]}[form]
        assert list(path) == head + leaf
        assert trie.complete(trie.walk(np.array([path]))).tolist() == [kept_of.get(label, label)]
        if label in kept_of:
            assert kept_of[label] < label and paths.path(kept_of[label]) == path


def test_labels_equal_after_tokenisation_are_merged_into_the_first() -> None:
    paths = paths_of(["red shoes", "tent", "Red  SHOES", "RED shoes"], "none")
    assert paths.merged.tolist() == [[2, 0], [3, 0]]
    assert paths.kept.tolist() == [0, 1]
    assert paths.path(3) == paths.path(0) == (1, 2)


def test_one_text_in_two_clusters_is_two_paths() -> None:
    paths = paths_of(["red shoes", "Red shoes"], "token", clusters=2)
    assert paths.merged.tolist() == [] and paths.path(0) != paths.path(1)


def test_the_token_form_enlarges_the_vocabulary_by_the_clusters() -> None:
    texts = ["red", "tent", "trail"]
    assert [paths_of(texts, form, 3).vocabulary for form in get_args(ClusterForm)] == [10, 10, 13]


@pytest.mark.parametrize("form", ["text", "token"])
def test_a_label_without_a_cluster_has_its_own_tokens_alone(form: ClusterForm) -> None:
    texts, medoids = ["tent", "red", "red shoes"], ["red shoes", "red", None]
    assignment = np.array([-1, 1, 0])
    paths = linearise(texts, encode, form=form, vocabulary=VOCABULARY, assignment=assignment, medoid_texts=medoids)
    heads = {"text": ((1,), (1, 2)), "token": ((11,), (10,))}[form]
    assert [paths.path(label) for label in range(3)] == [(4,), (*heads[0], 1), (*heads[1], 1, 2)]
    assert paths.vocabulary == {"text": 10, "token": 13}[form]  # an empty cluster keeps its token


def test_texts_without_tokens_are_refused_by_name() -> None:
    with pytest.raises(DataError, match=r"1 labels give no tokens.*1 'unknown'"):
        paths_of(["red", "unknown"], "token")


def test_control_tokens_cannot_enter_a_path() -> None:
    with pytest.raises(DataError, match=r"control tokens.*1 'red !'"):
        paths_of(["red", "red !"], "none")


def test_ids_outside_the_vocabulary_are_refused() -> None:
    with pytest.raises(DataError, match="outside the vocabulary of 3"):
        linearise(["red", "tent"], encode, form="none", vocabulary=3)


@pytest.mark.parametrize("form", ["text", "token"])
def test_forms_with_clusters_need_clusters(form: ClusterForm) -> None:
    with pytest.raises(ConfigError, match="needs clusters"):
        linearise(["red"], encode, form=form, vocabulary=VOCABULARY)


def test_batches_of_the_tokenizer_do_not_show(monkeypatch: pytest.MonkeyPatch) -> None:
    texts = ["red", "red shoes", "tent", "trail tent red", "shoes"]
    whole = paths_of(texts, "text", 2)
    monkeypatch.setattr(module, "BATCH", 2)
    parts = paths_of(texts, "text", 2)
    np.testing.assert_array_equal(whole.tokens, parts.tokens)
    np.testing.assert_array_equal(whole.offsets, parts.offsets)


def test_no_labels_no_paths() -> None:
    empty = linearise([], encode, form="none", vocabulary=VOCABULARY)
    assert empty.trie().nodes == 1 and empty.merged.shape == (0, 2)
