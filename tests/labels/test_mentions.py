from __future__ import annotations

import math
import re

import numpy as np
import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from merit.labels.mentions import EVERYWHERE, LEAST, POWER, Mentions

WORDS = ["green", "tea", "teas", "mug", "glass", "glasses", "of", "ÉCLAIR"]
texts = st.lists(st.sampled_from(WORDS), max_size=5).map(" - ".join)


def slowly(titles: list[str | None], text: str) -> dict[int, float]:
    """Every title, word by word."""

    def words(said: str | None) -> list[str]:
        found = [word.lower() for word in re.findall(r"\w+", said or "")]
        return [word[:-1] if len(word) > 3 and word.endswith("s") and word[-2] != "s" else word for word in found]

    wanted = set(words(text))
    rarity = {
        word: math.log((1 + len(titles)) / (1 + sum(word in words(title) for title in titles))) + EVERYWHERE
        for word in wanted
    }
    found = {}
    for item, title in enumerate(titles):
        share = sum(rarity[word] for word in wanted if word in words(title)) / max(1e-9, sum(rarity.values()))
        if share**POWER >= LEAST:
            found[item] = share**POWER
    return found


@settings(max_examples=100, deadline=None)
@given(st.lists(st.none() | texts, min_size=1, max_size=8), texts)
def test_as_word_by_word(titles: list[str | None], text: str) -> None:
    found = Mentions.of(pl.Series(titles, dtype=pl.String)).of_text(text)
    slow = slowly(titles, text)
    assert found.items.tolist() == sorted(slow)
    np.testing.assert_allclose(found.weights, [slow[item] for item in sorted(slow)], rtol=1e-9)


def test_all_words_count_one_and_rare_words_count_more() -> None:
    mentions = Mentions.of(pl.Series(["Green tea, 20 bags", "Green paint", "Green mug", "Black tea"]))
    found = mentions.of_text("Green Teas")
    assert found.items.tolist() == [0, 3]
    assert found.weights[0] == 1 and LEAST <= found.weights[1] < 1


@pytest.mark.parametrize("text", ["", "…!?", "nobody says this"])
def test_what_no_title_says(text: str) -> None:
    assert len(Mentions.of(pl.Series(["Green tea", None])).of_text(text).items) == 0


def test_without_titles() -> None:
    assert len(Mentions.of(pl.Series([None, ""], dtype=pl.String)).of_text("tea").items) == 0
