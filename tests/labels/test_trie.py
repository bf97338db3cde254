"""The flat trie against a dict of dicts that reads like the definition."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from merit.core.errors import DamagedArtifact, DataError
from merit.labels import trie
from merit.labels.trie import Trie

Path = tuple[int, ...]
# Few tokens and short paths: prefixes are shared heavily, labels are single tokens and prefixes of others.
paths_of_labels = st.lists(st.lists(st.integers(0, 4), min_size=1, max_size=5).map(tuple), unique=True, max_size=40)


def built(paths: list[Path], ids: list[int] | None = None) -> Trie:
    offsets = np.cumsum([0, *map(len, paths)])
    tokens = np.array([token for path in paths for token in path], np.int32)
    return trie.build(offsets, tokens, np.array(ids if ids is not None else range(len(paths)), np.int32))


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


def pad(prefixes: list[Path]) -> np.ndarray:
    width = max(map(len, prefixes), default=0)
    return np.array([[*prefix, *[-1] * (width - len(prefix))] for prefix in prefixes], np.int32).reshape(
        len(prefixes), width
    )


def assert_agrees(fast: Trie, twin: dict[Any, Any], prefixes: list[Path]) -> None:
    nodes = fast.walk(pad(prefixes))
    ids, mask = fast.padded(nodes)
    starts, stops = fast.allowed(nodes)
    for row, prefix in enumerate(prefixes):
        here = follow(twin, prefix)
        if here is None:
            assert nodes[row] == -1 and fast.complete(nodes)[row] == -1 and not mask[row].any()
            continue
        wanted = sorted(token for token in here if token != "label")
        assert fast.tokens[starts[row] : stops[row]].tolist() == wanted
        assert ids[row][mask[row]].tolist() == wanted and (ids[row][~mask[row]] == -1).all()
        assert fast.complete(nodes)[row] == here.get("label", -1)
        edges = np.arange(starts[row], stops[row])
        stepped = fast.advance(np.full(len(edges), nodes[row]), np.array(wanted, np.int32))
        np.testing.assert_array_equal(fast.step(edges), stepped)


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
    for name, array in rebuilt.arrays().items():
        np.testing.assert_array_equal(pruned.arrays()[name], array)
        assert pruned.arrays()[name].dtype == np.int32
    dead = [path for label, path in enumerate(paths) if not live[label]]
    assert (pruned.complete(pruned.walk(pad([(), *dead]))) == -1).all()


@given(paths_of_labels, st.randoms())
def test_the_order_of_the_labels_does_not_matter(paths: list[Path], random: Any) -> None:
    ids = list(range(len(paths)))
    random.shuffle(ids)
    for name, array in built(paths).arrays().items():
        np.testing.assert_array_equal(built([paths[label] for label in ids], ids).arrays()[name], array)


def test_the_layout_is_what_the_first_lines_promise() -> None:
    small = built([(5,), (3, 9), (3, 7), (5, 1)])
    assert small.offsets.tolist() == [0, 2, 4, 5, 5, 5, 5]  # root: 3, 5; node 1 (3): 7, 9; node 2 (5): 1
    assert small.tokens.tolist() == [3, 5, 7, 9, 1]
    assert small.label.tolist() == [-1, -1, 0, 2, 1, 3]
    assert small.nbytes == 4 * (7 + 5 + 6)


def test_large_token_ids_and_dead_nodes() -> None:
    big = built([(200_000, 2**31 - 1), (200_000, 7)])
    nodes = big.advance(np.array([0, 0, -1]), np.array([200_000, 1, 200_000]))
    assert nodes.tolist() == [1, -1, -1]
    assert big.advance(nodes, np.array([2**31 - 1, 7, 7])).tolist() == [3, -1, -1]


def test_equal_paths_are_refused_by_name() -> None:
    with pytest.raises(DataError, match=r"1 labels share .* 10 and 12"):
        built([(1, 2), (1,), (1, 2)], [10, 11, 12])


def test_an_empty_path_is_refused() -> None:
    with pytest.raises(DataError, match="Label 8 has no tokens"):
        built([(1,), ()], [7, 8])


def test_save_and_load_give_the_same_trie() -> None:
    one = built([(1, 2), (1,)])
    again = trie.load(one.arrays())
    assert all((again.arrays()[name] == array).all() for name, array in one.arrays().items())


@pytest.mark.parametrize("name", ["offsets", "tokens", "label"])
def test_arrays_that_do_not_fit_are_refused(name: str) -> None:
    arrays = built([(1, 2), (1,)]).arrays()
    with pytest.raises(DamagedArtifact):
        trie.load(arrays | {name: arrays[name][:-1]})
    with pytest.raises(DamagedArtifact, match=name):
        trie.load({key: value for key, value in arrays.items() if key != name})
