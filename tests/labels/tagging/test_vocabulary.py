from __future__ import annotations

from pathlib import Path

import polars as pl
import pytest

from merit.core.errors import DataError
from merit.labels.encoders import HashedNgrams
from merit.labels.tagging import titles
from merit.labels.tagging.vocabulary import VocabularyConfig, assign, by_words, read_vocabulary

LABELS = pl.Series(
    ["Hiking boots", "Boots", "Toners & Astringents", "Leggings - Fabric: Cotton", "Kettle for tea", "Sofa"]
)


def found(text: str, labels: pl.Series = LABELS) -> list[str]:
    return labels.gather(by_words(pl.Series([text]), labels)["label"]).to_list()


def test_inflection_and_order_do_not_matter() -> None:
    assert found("Boot for hiking, leather") == ["Hiking boots", "Boots"]
    assert found("Cotton fabric legging") == ["Leggings - Fabric: Cotton"]
    assert found("tea kettles") == ["Kettle for tea"]


def test_a_part_of_a_label_counts_for_less() -> None:
    whole, part = (by_words(pl.Series([text]), LABELS)["score"][0] for text in ("Toners and astringents", "Rose toner"))
    assert 0 < part < whole <= 1


def test_words_of_a_label_that_no_title_has_rule_it_out() -> None:
    assert found("lamp") == [] and by_words(pl.Series([""]), LABELS).is_empty()


def test_rows_are_those_of_looking_at_each_pair() -> None:
    texts = pl.Series(["hiking boot", "cotton legging fabric", "kettle", "tea kettle sofa", "boots boots"])
    plain = pl.Series(["Hiking boots", "Boots", "Leggings Fabric Cotton", "Kettle for tea", "Sofa"])
    ours = set(by_words(texts, plain).select("row", "label").rows())
    keys, needed = (titles.phrase_keys(series).str.split(" ").to_list() for series in (texts, plain))
    words = [set(label) - titles.LINKS - titles.STOP for label in needed]
    assert ours == {(row, at) for row, text in enumerate(keys) for at, label in enumerate(words) if label <= set(text)}


def test_meaning_is_asked_where_words_fail() -> None:
    config = VocabularyConfig(similar=0.3)
    assigned = assign(pl.Series(["hikingboot", "sofa"]), LABELS, config, HashedNgrams())
    assert LABELS[assigned.filter(pl.col("row") == 0)["label"][0]] in ("Hiking boots", "Boots")
    limited = assign(pl.Series(["hikingboot"]), LABELS, config.model_copy(update={"encoded_titles": 0}), HashedNgrams())
    assert limited.is_empty()


def test_blanks_and_repetitions_are_left_out(tmp_path: Path) -> None:
    (tmp_path / "v.txt").write_text("Tents\n\n  \ntent\n!!\nLamps\n", encoding="utf-8")
    assert read_vocabulary(tmp_path / "v.txt").to_list() == ["Tents", "Lamps"]
    pl.DataFrame({"label": ["Tents", None, "Tents"], "n": [1, 2, 3]}).write_parquet(tmp_path / "v.parquet")
    assert read_vocabulary(tmp_path / "v.parquet").to_list() == ["Tents"]


@pytest.mark.parametrize(("name", "content"), [("v.txt", "\n \n!!\n"), ("v.csv", "a,b\nx,y\n")])
def test_a_vocabulary_without_labels_is_refused(tmp_path: Path, name: str, content: str) -> None:
    (tmp_path / name).write_text(content, encoding="utf-8")
    with pytest.raises(DataError, match=r"label"):
        read_vocabulary(tmp_path / name)


def test_a_vocabulary_that_is_not_there_or_not_text(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="does not exist"):
        read_vocabulary(tmp_path / "none.txt")
    (tmp_path / "v.txt").write_bytes(b"caf\xe9\n")
    with pytest.raises(DataError, match="UTF-8"):
        read_vocabulary(tmp_path / "v.txt")
