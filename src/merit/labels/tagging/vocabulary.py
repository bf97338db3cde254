"""Labels of a vocabulary for titles: those whose words a title has, and by meaning where it has none.

A label is found in any order and inflection of its words; of "Toners & Astringents" each part counts, for less.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
import polars as pl
from pydantic import Field

from merit.core import console
from merit.core.config import Frozen
from merit.core.errors import DataError
from merit.core.types import LabelEncoder
from merit.data.sources import files
from merit.labels.names import clean
from merit.labels.tagging import titles
from merit.labels.tagging.titles import LINKS, STOP

COLUMNS = ("label", "tag", "text", "name", "title", "category", "interest")
BLOCK = 4_096  # titles that are compared with labels at a time
TOGETHER, APART, PART = 0.9, 0.75, 0.6  # scores of a label's words in a row, anywhere in the title, and of a part of it
BY_MEANING = 0.8  # of a cosine is the score: behind labels whose words are there
LONGEST = 8  # words of a label: a longer one is in no title
ASSIGNED = pl.Schema({"row": pl.Int64(), "label": pl.Int64(), "score": pl.Float64()})


class VocabularyConfig(Frozen):
    """How labels of a vocabulary are found."""

    file: Path | None = None
    """A text file with a label a line, or a table with a column `label`."""
    meaning: bool = True
    """Whether titles without a label's words are compared by the encoder, within the two limits below."""
    encoded_labels: int = Field(50_000, ge=0)
    """A larger vocabulary is matched by words alone: to encode a million labels takes an hour."""
    encoded_titles: int = Field(20_000, ge=0)
    similar: float = Field(0.5, gt=0, le=1)
    """Cosine from which a title is about a label."""
    best: int = Field(3, ge=1)
    """Labels by meaning for a title."""
    enough: int = Field(1, ge=1)
    """Labels by words; a title with fewer is compared by meaning, too. With more than 1 that is nearly every title."""


def read_vocabulary(file: Path) -> pl.Series:
    """The labels of a file, clean, each once, in their order. What is left out is counted in a message."""
    files.require_file(file)
    if file.suffix.lower() in (".txt", ".text", ".lst"):
        try:
            raw = pl.Series(file.read_text(encoding="utf-8-sig").splitlines(), dtype=pl.String)
        except UnicodeDecodeError:
            raise DataError(f"{file} is not UTF-8. Save it as UTF-8, a label a line.") from None
    else:
        raw = _column(file)
    labels = pl.Series([clean(text) for text in raw.fill_null("")], dtype=pl.String)
    keys = titles.phrase_keys(labels)
    table = pl.DataFrame({"label": labels, "key": keys}).filter(pl.col("key") != "")
    kept = table.unique("key", keep="first", maintain_order=True)
    if kept.is_empty():
        raise DataError(
            f"{file} holds no label. Write one a line, or name another with --set tags.vocabulary.file=PATH."
        )
    blank, twice = len(labels) - len(table), len(table) - len(kept)
    if blank or twice:
        left_out = f"{blank:,} blank or without a word, {twice:,} repeated"
        console.tell(f"{file}: {len(kept):,} labels ({left_out}).", labels=len(kept), blank=blank, repeated=twice)
    return kept["label"]


def _column(file: Path) -> pl.Series:
    frame = files.scan(file, file.parent)
    names = files.columns_of(frame)
    texts = [name for name in names if frame.collect_schema()[name] == pl.String]
    named = next((name for wanted in COLUMNS for name in texts if name.lower() == wanted), None)
    if named is None and len(texts) != 1:
        raise DataError(
            f"{file} has no column 'label'. Columns found: {', '.join(names[:30]) or 'none'}. Rename the one that has "
            "the labels."
        )
    with files.reading((file,)):
        return frame.select(named or texts[0]).collect().to_series()


def assign(texts: pl.Series, labels: pl.Series, config: VocabularyConfig, encoder: LabelEncoder | None) -> pl.DataFrame:
    """row, label (its place), score: the labels of each plain text, by words, else by meaning."""
    found = by_words(texts, labels)
    counts = np.bincount(found["row"].to_numpy(), minlength=len(texts))
    left = np.flatnonzero(counts < config.enough)
    left = left[(texts.gather(left).str.contains(r"\p{L}{3}")).to_numpy()]
    if encoder is None or not config.meaning or not len(left):
        return found
    if len(labels) > config.encoded_labels or len(left) > config.encoded_titles:
        console.tell(
            f"{len(left):,} titles have no label's words, and they are not compared with {len(labels):,} labels by "
            "meaning: tags.vocabulary.encoded_titles and encoded_labels are the limits.",
            titles=len(left),
        )
        return found
    near = by_meaning(texts.gather(left), labels, config, encoder)
    near = near.with_columns(row=pl.Series(left[near["row"].to_numpy()], dtype=pl.Int64))
    near = near.join(found, on=["row", "label"], how="anti").with_columns(pl.col("score") * BY_MEANING)
    return pl.concat([found, near]).sort("row", "score", "label", descending=[False, True, False])


def by_words(texts: pl.Series, labels: pl.Series) -> pl.DataFrame:
    """row, label, score: labels all of whose words a title has; the same of their parts, for less."""
    read = titles.words(texts).filter(~pl.col("key").is_in(STOP | LINKS)).with_columns(pl.col("row").cast(pl.Int64))
    often = read.group_by("key").agg(titles=pl.col("row").n_unique())
    forms = _forms(labels)
    needed = forms.explode("words").rename({"words": "key"}).join(often, on="key", how="left")
    needed = needed.with_columns(pl.len().over("form").alias("size"))
    possible = needed.filter(pl.col("titles").is_not_null().all().over("form") & (pl.col("size") <= LONGEST))
    rarest = possible.sort("form", "titles", "key").unique("form", keep="first", maintain_order=True)
    parts = []
    for start in range(0, len(texts), BLOCK):
        block = read.filter(pl.col("row").is_between(start, start + BLOCK - 1))
        present = block.group_by("row", "key").agg(pl.col("place").min())
        pairs = present.select("row", "key").join(rarest.select("form", "key"), on="key").select("row", "form")
        covered = pairs.join(possible.select("form", "key", "size"), on="form").join(present, on=["row", "key"])
        whole = covered.group_by("row", "form").agg(
            pl.len(), pl.col("size").first(), pl.col("place").max() - pl.col("place").min()
        )
        parts.append(whole.filter(pl.col("len") == pl.col("size")).select("row", "form", "size", "place"))
    if not parts:
        return pl.DataFrame(schema=ASSIGNED)
    hits = pl.concat(parts).join(forms.select("form", "label", "part"), on="form")
    near = pl.when(pl.col("place") < pl.col("size") + 1).then(TOGETHER).otherwise(APART)
    score = pl.when("part").then(PART).otherwise(near) + 0.02 * pl.col("size")
    best = hits.group_by("row", "label").agg(score=score.clip(0, 1).max()).cast(ASSIGNED)
    return best.sort("row", "score", "label", descending=[False, True, False])


def _forms(labels: pl.Series) -> pl.DataFrame:
    """form, label, part, words: each label as the words it needs, and each part of one that names several things."""
    whole = pl.DataFrame({"label": np.arange(len(labels)), "text": labels, "part": False})
    pieces = whole.with_columns(
        pl.col("text").str.replace_all(r"(?i)\s*(?:&|,|/|\band\b|\bor\b)\s*", "\n").str.split("\n"), part=True
    )
    pieces = pieces.filter(pl.col("text").list.len() > 1).explode("text")
    both = pl.concat([whole, pieces.select(whole.columns)]).with_row_index("form")
    found = titles.words(both["text"]).filter(~pl.col("key").is_in(STOP | LINKS))
    needed = found.unique(["row", "key"]).sort("row", "key").group_by("row", maintain_order=True).agg(words="key")
    return (
        both.with_columns(row=pl.col("form").cast(pl.Int64))
        .join(needed.cast({"row": pl.Int64}), on="row")
        .drop("row", "text")
    )


def by_meaning(texts: pl.Series, labels: pl.Series, config: VocabularyConfig, encoder: LabelEncoder) -> pl.DataFrame:
    """row, label, score: the labels that are most similar to each text, by the encoder, block by block."""
    vectors, meanings = encoder.encode(texts.to_list()), encoder.encode(labels.to_list())
    best, rows, found, scores = min(config.best, len(labels)), [], [], []
    for start in range(0, len(vectors), BLOCK // 8):
        cosine = vectors[start : start + BLOCK // 8] @ meanings.T
        top = np.argsort(-cosine, axis=1, kind="stable")[:, :best]
        rows.append(np.repeat(np.arange(start, start + len(cosine)), best))
        found.append(top.ravel())
        scores.append(np.take_along_axis(cosine, top, axis=1).ravel())
    table = pl.DataFrame({"row": np.concatenate(rows), "label": np.concatenate(found), "score": np.concatenate(scores)})
    return table.cast(ASSIGNED).filter(pl.col("score") >= config.similar)
