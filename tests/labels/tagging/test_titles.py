from __future__ import annotations

import polars as pl

from merit.labels.tagging import brands, titles


def keys(text: str) -> list[str]:
    return titles.words(titles.plain(pl.Series([text])))["key"].to_list()


def test_markup_entities_and_scripts_are_no_words() -> None:
    text = "<p>Argan&nbsp;Oil <b>Shampoo</b></p><script>alert('boots')</script><!-- lamp --> &amp; Conditioner"
    assert keys(text) == ["argan", "oil", "shampoo", "&", "conditioner"]


def test_sizes_and_numbers_are_no_words_and_end_a_run() -> None:
    table = titles.words(pl.Series(["Tea kettle 1.5 l steel, 12 oz bottle"]))
    assert table["key"].to_list() == ["tea", "kettle", "steel", "bottle"]
    assert table["run"].n_unique() == 3


def test_empty_and_endless_titles() -> None:
    texts = titles.plain(pl.Series(["", None, "   ", "word " * 10_000, "<" * 5_000], dtype=pl.String))
    assert texts.to_list()[:3] == ["", "", ""] and texts.str.len_chars().max() <= titles.MOST
    assert titles.words(texts).filter(pl.col("row") == 3).height <= 2 * titles.LONGEST


def test_other_scripts_are_read() -> None:
    assert keys("Leichte Wanderschuhe für Kinder") == ["leichte", "wanderschuhe", "für", "kinder"]
    assert keys("茶壶 kettle Чайник") == ["茶壶", "kettle", "чайник"]


def test_inflections_share_a_key() -> None:
    same = pl.Series(["Hiking Boots", "hiking boot", "Brushes", "brush", "berries", "Berry", "!!"])
    assert titles.phrase_keys(same).to_list() == ["hiking boot", "hiking boot", "brush", "brush", "berry", "berry", ""]


def test_brands_of_a_column_and_by_beginnings() -> None:
    texts = pl.Series([f"Aldora {kind}" for kind in ("Boots Brown", "Lamp White", "Tea Kettle", "Chair Oak")])
    for column in (pl.Series(["Aldora", None, None, None]), None):
        left = brands.without_brands(titles.words(texts), column)
        assert "aldora" not in left["key"].to_list() and "kettle" in left["key"].to_list()


def test_in_sentences_a_capital_is_no_brand() -> None:
    texts = pl.Series([f"Frozen {kind} with cheese" for kind in ("pizza", "pasta", "soup", "bread")])
    assert "frozen" in brands.without_brands(titles.words(texts), None)["key"].to_list()
