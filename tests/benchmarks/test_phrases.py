"""Phrases of titles, against a slow count of all pieces of all titles."""

from __future__ import annotations

import re
from collections import Counter
from pathlib import Path

import polars as pl
import pytest

from benchmarks.phrases import LINKS, phrases, tagged, written
from merit.data import planted

TITLES = ["Anti Aging Serum for Men", "anti-aging night serum", "Serum, 2 oz", "Night cream for men", None, ""]


def slow(titles: list[str | None], least: int, most: float) -> list[list[str]]:
    words = ["".join(c if c.isalnum() else " " for c in (title or "").lower()).split() for title in titles]
    words = [[re.sub("^(.{2,}[^s])s$", r"\1", word) for word in one] for one in words]  # a plural is its singular
    pieces = [
        {
            " ".join(piece)
            for size in (1, 2, 3)
            for at in range(len(one) - size + 1)
            for piece in [one[at : at + size]]
            if not any(end in LINKS or len(end) < 2 or end.isdigit() for end in (piece[0], piece[-1]))
        }
        for one in words
    ]
    counts = Counter(piece for one in pieces for piece in one)
    return [sorted(piece for piece in one if least <= counts[piece] <= most * len(titles)) for one in pieces]


@pytest.mark.parametrize(("least", "most"), [(1, 1.0), (2, 1.0), (1, 0.2), (2, 0.4)])
def test_they_are_those_of_a_slow_count(least: int, most: float) -> None:
    assert phrases(pl.Series(TITLES), least, most).to_list() == slow(TITLES, least, most)


def test_titles_of_a_shop_as_well() -> None:
    titles = planted.shop(planted.PlantedConfig(users=1), 7).items["title"]
    found = phrases(titles)
    assert found.list.len().sum() > len(titles)
    assert found.to_list() == slow(titles.to_list(), 4, 0.2)


def test_own_tags_stay_and_come_once() -> None:
    items = pl.DataFrame({"title": ["night serum", "night serum"], "tags": [["Night Serum"], None]})
    assert tagged(items, 2, 1.0, alone=False)["tags"].to_list() == [
        ["Night Serum", "night", "serum"],
        ["night", "night serum", "serum"],
    ]
    assert tagged(items, 2, 1.0, alone=True)["tags"].to_list() == [["night", "night serum", "serum"]] * 2


def test_a_new_folder_has_both_tables(tmp_path: Path) -> None:
    planted.write(planted.shop(planted.PlantedConfig(users=20), 7), tmp_path / "shop")
    figures = written(tmp_path / "shop", tmp_path / "phrases", 5, 0.2, alone=False)
    tags = pl.read_parquet(tmp_path / "phrases/items.parquet")["tags"]
    before = pl.read_parquet(tmp_path / "shop/items.parquet")["tags"]
    assert figures["tags"] == tags.explode().n_unique() > before.explode().n_unique()
    assert (tmp_path / "phrases/interactions.parquet").read_bytes() == (
        tmp_path / "shop/interactions.parquet"
    ).read_bytes()
