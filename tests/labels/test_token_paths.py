"""Label → path → label, in all three forms, with a tokenizer small enough to collide."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, get_args

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from merit.core.errors import ConfigError, DataError
from merit.labels import token_paths as module
from merit.labels.token_paths import ClusterForm, Paths, Trie, build_trie, linearise

WORDS = {"red": 1, "shoes": 2, "trail": 3, "tent": 4, "!": 9}
SEP, VOCABULARY = 9, 10


def encode(texts: Sequence[str]) -> list[list[int]]:
    """Words to ids, in lower case; unknown words vanish."""
    return [[WORDS[word] for word in text.lower().split() if word in WORDS] for text in texts]


def paths_of(texts: list[str], form: ClusterForm, clusters: int = 1) -> Paths:
    assignment = np.arange(len(texts), dtype=np.int32) % clusters
    medoids = [texts[number % len(texts)] for number in range(clusters)]
    tokens = range(VOCABULARY, VOCABULARY + clusters)
    return linearise(
        texts,
        encode,
        form=form,
        vocabulary=VOCABULARY,
        assignment=assignment,
        medoid_texts=medoids,
        cluster_tokens=tokens,
        forbidden={SEP, *tokens},
    )


def node_at(trie: Trie, prefix: tuple[int, ...]) -> int:
    """The node a prefix leads to, one token at a time; -1 where the trie has none."""
    node = 0
    for token in prefix:
        start, stop = trie.offsets[node : node + 2]
        edges = np.flatnonzero(trie.tokens[start:stop] == token)
        if not len(edges):
            return -1
        node = int(start + edges[0]) + 1
    return node


def label_at(trie: Trie, path: tuple[int, ...]) -> int:
    node = node_at(trie, path)
    return -1 if node < 0 else int(trie.label[node])


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
        assert label_at(trie, path) == kept_of.get(label, label)
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


@pytest.mark.parametrize("form", ["text", "token"])
def test_a_label_without_a_cluster_has_its_own_tokens_alone(form: ClusterForm) -> None:
    texts, medoids = ["tent", "red", "red shoes"], ["red shoes", "red", None]
    assignment = np.array([-1, 1, 0])
    paths = linearise(
        texts,
        encode,
        form=form,
        vocabulary=VOCABULARY,
        assignment=assignment,
        medoid_texts=medoids,
        cluster_tokens=[10, 11, 12],
    )
    heads = {"text": ((1,), (1, 2)), "token": ((11,), (10,))}[form]
    assert [paths.path(label) for label in range(3)] == [(4,), (*heads[0], 1), (*heads[1], 1, 2)]


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
    with pytest.raises(ConfigError, match="in 3 clusters, and tokens are known of 0"):
        linearise(["red"], encode, form=form, vocabulary=VOCABULARY, assignment=np.array([2]))


def test_batches_of_the_tokenizer_do_not_show(monkeypatch: pytest.MonkeyPatch) -> None:
    texts = ["red", "red shoes", "tent", "trail tent red", "shoes"]
    whole = paths_of(texts, "text", 2)
    monkeypatch.setattr(module, "BATCH", 2)
    parts = paths_of(texts, "text", 2)
    np.testing.assert_array_equal(whole.tokens, parts.tokens)
    np.testing.assert_array_equal(whole.offsets, parts.offsets)


def test_no_labels_no_paths() -> None:
    empty = linearise([], encode, form="none", vocabulary=VOCABULARY)
    assert len(empty.trie().label) == 1 and empty.merged.shape == (0, 2)


# --- the trie against a dict of dicts that reads like the definition -------------------------------------------------

Path = tuple[int, ...]
# Few tokens and short paths: prefixes are shared heavily, labels are single tokens and prefixes of others.
paths_of_labels = st.lists(st.lists(st.integers(0, 4), min_size=1, max_size=5).map(tuple), unique=True, max_size=40)


def built(paths: list[Path], ids: list[int] | None = None) -> Trie:
    offsets = np.cumsum([0, *map(len, paths)])
    tokens = np.array([token for path in paths for token in path], np.int32)
    return build_trie(offsets, tokens, np.array(ids if ids is not None else range(len(paths)), np.int32))


def slow(paths: list[Path]) -> dict[Any, Any]:
    """{token: subtree}, and {"label": id} where a label ends."""
    root: dict[Any, Any] = {}
    for label, path in enumerate(paths):
        here = root
        for token in path:
            here = here.setdefault(token, {})
        here["label"] = label
    return root


def follow(root: dict[Any, Any], prefix: Path) -> dict[Any, Any] | None:
    here: dict[Any, Any] | None = root
    for token in prefix:
        here = here.get(token) if here is not None else None
    return here


def assert_agrees(fast: Trie, twin: dict[Any, Any], prefixes: list[Path]) -> None:
    for prefix in prefixes:
        here, node = follow(twin, prefix), node_at(fast, prefix)
        if here is None:
            assert node == -1
            continue
        assert fast.tokens[fast.offsets[node] : fast.offsets[node + 1]].tolist() == sorted(here.keys() - {"label"})
        assert fast.label[node] == here.get("label", -1)


prefix_lists = st.lists(st.lists(st.integers(0, 5), max_size=6).map(tuple), max_size=10)


@settings(max_examples=200, deadline=None)
@given(paths_of_labels, prefix_lists)
def test_the_trie_agrees_with_a_dict_of_dicts(paths: list[Path], prefixes: list[Path]) -> None:
    assert_agrees(built(paths), slow(paths), [(), *prefixes, *paths, *[path[:-1] for path in paths]])


@settings(max_examples=100, deadline=None)
@given(paths_of_labels, prefix_lists, st.data())
def test_a_restricted_trie_is_the_trie_of_the_live_labels(
    paths: list[Path], prefixes: list[Path], data: st.DataObject
) -> None:
    live = np.array(data.draw(st.lists(st.booleans(), min_size=len(paths), max_size=len(paths))), bool)
    pruned = built(paths).restrict(live)
    ids = np.flatnonzero(live).tolist()
    rebuilt = built([paths[label] for label in ids], ids)
    for name, array in vars(rebuilt).items():
        np.testing.assert_array_equal(vars(pruned)[name], array)
        assert vars(pruned)[name].dtype == np.int32
    dead = [path for label, path in enumerate(paths) if not live[label]]
    assert all(label_at(pruned, path) == -1 for path in [(), *dead])


@given(paths_of_labels, st.randoms())
def test_the_order_of_the_labels_does_not_matter(paths: list[Path], random: Any) -> None:
    ids = list(range(len(paths)))
    random.shuffle(ids)
    for name, array in vars(built(paths)).items():
        np.testing.assert_array_equal(vars(built([paths[label] for label in ids], ids))[name], array)


def test_the_layout_is_what_the_first_lines_promise() -> None:
    small = built([(5,), (3, 9), (3, 7), (5, 1)])
    assert small.offsets.tolist() == [0, 2, 4, 5, 5, 5, 5]  # root: 3, 5; node 1 (3): 7, 9; node 2 (5): 1
    assert small.tokens.tolist() == [3, 5, 7, 9, 1]
    assert small.label.tolist() == [-1, -1, 0, 2, 1, 3]


def test_large_token_ids() -> None:
    big = built([(200_000, 2**31 - 1), (200_000, 7)])
    assert [label_at(big, path) for path in [(200_000, 2**31 - 1), (200_000, 7), (1,), (200_000, 8)]] == [0, 1, -1, -1]


def test_equal_paths_are_refused_by_name() -> None:
    with pytest.raises(DataError, match=r"1 labels share .* 10 and 12"):
        built([(1, 2), (1,), (1, 2)], [10, 11, 12])


def test_an_empty_path_is_refused() -> None:
    with pytest.raises(DataError, match="Label 8 has no tokens"):
        built([(1,), ()], [7, 8])
