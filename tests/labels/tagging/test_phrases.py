from __future__ import annotations

import numpy as np
import polars as pl
from hypothesis import given, settings
from hypothesis import strategies as st

from merit.labels.encoders import HashedNgrams
from merit.labels.tagging import phrases, titles
from merit.labels.tagging.phrases import MineConfig
from tests.labels.tagging.shop import KINDS, items

WIDE = MineConfig(most=1.0)


def test_names_of_things_are_found_and_nothing_else_of_several_words() -> None:
    table = items()
    found, places = phrases.mine(titles.plain(table["title"]), table["brand"], WIDE, None)
    several = set(found.filter(pl.col("phrase").str.contains(" "))["phrase"])
    assert set(KINDS) <= several
    assert not [name for name in found["phrase"] if any(word in name for word in ("aldora", "cm", "10"))]
    first = places.filter(pl.col("row") == 0)["key"].to_list()
    assert "hiking boot" in first or "leather hiking boot" in first


def test_a_piece_of_a_longer_phrase_is_absorbed() -> None:
    texts = pl.Series(
        [f"{word} extra virgin olive oil, {word} cloth" for word in ("fine", "plain", "rough", "rare")] * 3
    )
    found = phrases.mine(texts, None, MineConfig(most=1.0, least=1), None)[0]["phrase"].to_list()
    assert "extra virgin olive oil" in found and not {"virgin olive oil", "virgin olive", "extra virgin olive"} & set(
        found
    )


def test_no_stop_phrase_no_number_no_link_at_the_edges() -> None:
    texts = pl.Series(
        ["kettle for the garden 500 ml pack of 2", "kettle with 3 cups for the garden", "the best kettle"] * 4
    )
    found = phrases.mine(texts, None, MineConfig(most=1.0, least=1), None)[0]["phrase"].to_list()
    assert found
    for name in found:
        assert not set(name.split()) & {"the", "500", "ml", "with", "pack"}
        assert name.split()[0] not in titles.LINKS and name.split()[-1] not in titles.LINKS


def test_the_fewest_titles_are_kept_to() -> None:
    texts = pl.Series(["blue kettle"] * 5 + [f"kettle number {word}" for word in ("one", "two")])
    for least in (1, 2, 3):
        found, _ = phrases.mine(texts, None, MineConfig(least=least, most=1.0), None)
        assert found.is_empty() or found["titles"].min() >= least


@settings(max_examples=25, deadline=None)
@given(st.integers(1, 40), st.integers(0, 1_000))
def test_the_first_alike_is_that_of_all_pairs(count: int, seed: int) -> None:
    vectors = np.random.default_rng(seed).normal(size=(count, 3)).astype(np.float32)
    vectors /= np.linalg.norm(vectors, axis=1, keepdims=True)
    slow = [next(at for at in range(row + 1) if at == row or vectors[at] @ vectors[row] >= 0.9) for row in range(count)]
    block, phrases.BLOCK = phrases.BLOCK, 7
    try:
        assert phrases.nearest_before(vectors, 0.9).tolist() == slow
    finally:
        phrases.BLOCK = block


def test_word_order_makes_no_second_phrase() -> None:
    found = pl.DataFrame(
        {"key": ["tea kettle", "kettle of tea"], "phrase": ["tea kettle", "kettle of tea"], "titles": [3, 2]}
    )
    assert phrases.merged(found, HashedNgrams(), 0.99)["root"].to_list() == ["tea kettle", "tea kettle"]


def test_cohesion_is_that_of_counting_by_hand() -> None:
    texts = pl.Series(["tea kettle", "tea kettle", "tea", "copper kettle"])
    grams = titles.grams(titles.words(texts), 2)
    counts = phrases._with_cohesion(phrases._counts(grams), 7)
    joint, apart = 2 / 7, (3 / 7) * (3 / 7)
    ours = counts.filter(pl.col("key") == "tea kettle")["cohesion"].item()
    assert (
        ours == np.float64(np.log(joint / apart) / -np.log(joint)).round(12)
        or abs(ours - np.log(joint / apart) / -np.log(joint)) < 1e-9
    )
