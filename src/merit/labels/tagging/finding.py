"""What each source gives: a literal dict of functions, one per source; and how they are put together.

Every function gives row, tag and score of the items that it is to tag, the best first.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import numpy as np
import polars as pl
from pydantic import Field

from merit.core import console
from merit.core.config import Frozen
from merit.core.types import LabelEncoder
from merit.labels import policy, space
from merit.labels.build import BLOCKED, LabelsConfig
from merit.labels.tagging import provider, titles
from merit.labels.tagging.complete import CompleteConfig, chosen, complete, tag_matrix
from merit.labels.tagging.phrases import MineConfig, described, mine
from merit.labels.tagging.provider import ProviderConfig
from merit.labels.tagging.vocabulary import VocabularyConfig, assign, read_vocabulary

TagSource = Literal["complete", "vocabulary", "mine", "model"]
TAGS = {"item_id": pl.String, "tag": pl.String, "score": pl.Float64, "reason": pl.String}
WRITTEN = 0.8  # the score of a tag that a language model wrote: it gives none
REASONS = ("given", "completed", "vocabulary", "mined", "model")


class TagsConfig(Frozen):
    """Where tags of items come from, beside the table."""

    sources: tuple[TagSource, ...] | None = None
    """complete: from items that have tags. vocabulary: from a list of labels. mine: phrases of the titles themselves.
    model: a language model that you name. By default the vocabulary if one is given, and `mine` for a table without
    a column of tags."""
    extend: bool = False
    """Whether items that have tags get more. By default they stay as they are."""
    most: int = Field(8, ge=1)
    """Tags that one item is given."""
    least: float = Field(0.1, ge=0, le=1)
    """Score below which a tag is not given."""
    reviewed: Path | None = None
    """A file of `merit tag --review`, looked through by a person: the tags of the items in it."""
    complete: CompleteConfig = CompleteConfig()
    vocabulary: VocabularyConfig = VocabularyConfig()
    mine: MineConfig = MineConfig()
    provider: ProviderConfig = ProviderConfig()


@dataclass(frozen=True)
class TaggingJob:
    """All items, those that are to be tagged, and what it takes."""

    items: pl.DataFrame
    texts: pl.Series
    """By item: title and further text, plain."""
    bare: pl.DataFrame
    """row, title: the items that are to be tagged."""
    config: TagsConfig
    encoder: LabelEncoder
    seed: int
    cache: Path

    @staticmethod
    def of(
        items: pl.DataFrame, bare: pl.DataFrame, config: TagsConfig, encoder: LabelEncoder, seed: int, cache: Path
    ) -> TaggingJob:
        """Of validated items, with further `text` and `brand`."""
        texts = titles.joined(titles.plain(items["title"]), titles.plain(items["text"]))
        wanted = bare.select("title", row=pl.col("item").cast(pl.Int64))
        return TaggingJob(items, texts, wanted, config, encoder, seed, cache)


def found_by(source: TagSource, job: TaggingJob) -> pl.DataFrame:
    """item_id, tag, score, reason: what one source gives."""
    reason, find = FIND[source]
    with console.spinner(f"tags: {source}"):
        table = find(job)
    named = table.with_columns(item_id=job.items["item_id"].gather(table["row"]), reason=pl.lit(reason))
    return named.select("item_id", "tag", pl.col("score").cast(pl.Float64), "reason")


def _completed(job: TaggingJob) -> pl.DataFrame:
    items, config = job.items, job.config
    pairs = items.select(row=pl.col("item").cast(pl.Int64), tag="tags").explode("tag").drop_nulls("tag")
    names = pairs["tag"].unique().sort()
    if (tagged := pairs["row"].n_unique()) < config.complete.enough:
        console.warn(
            f"Only {tagged:,} items have tags, too few to complete others from them (tags.complete.enough: "
            f"{config.complete.enough}).",
            tagged=tagged,
        )
        return pl.DataFrame(schema={"row": pl.Int64, "tag": pl.String, "score": pl.Float64})
    numbers = pairs.join(pl.DataFrame({"tag": names, "label": np.arange(len(names))}), on="tag", maintain_order="left")
    tags = tag_matrix(numbers["row"].to_numpy(), numbers["label"].to_numpy(), len(items), len(names))
    scored = complete(job.texts, items["vertical"], tags, config.complete, job.encoder, job.seed)
    best = chosen(scored, config.most, config.least)
    return best.with_columns(tag=names.gather(best["label"]))


def _assigned(job: TaggingJob) -> pl.DataFrame:
    assert job.config.vocabulary.file is not None  # the stage refuses it before
    labels, rows = read_vocabulary(job.config.vocabulary.file), job.bare["row"]
    table = assign(job.texts.gather(rows), labels, job.config.vocabulary, job.encoder)
    return table.with_columns(row=rows.gather(table["row"]), tag=labels.gather(table["label"]))


def _mined(job: TaggingJob) -> pl.DataFrame:
    phrases, places = mine(job.texts, job.items["brand"], job.config.mine, job.encoder)
    return described(phrases, places.join(job.bare.select("row"), on="row", how="semi"))


def _written(job: TaggingJob) -> pl.DataFrame:
    texts, config = titles.plain(job.bare["title"]).to_list(), job.config
    lists = provider.written(texts, config.most, config.provider, job.cache)
    table = pl.DataFrame({"row": job.bare["row"], "tag": pl.Series(lists, dtype=pl.List(pl.String))})
    return table.explode("tag").drop_nulls("tag").with_columns(score=pl.lit(WRITTEN))


FIND: dict[TagSource, tuple[str, Callable[[TaggingJob], pl.DataFrame]]] = {
    "complete": ("completed", _completed),
    "vocabulary": ("vocabulary", _assigned),
    "mine": ("mined", _mined),
    "model": ("model", _written),
}
"""Source → the reason of its tags, and the function that finds them."""


def united(parts: list[pl.DataFrame], given: pl.DataFrame, config: TagsConfig) -> pl.DataFrame:
    """All found tags, each once for an item, at most so many: the first of the sources gives the reason."""
    if not parts:
        return pl.DataFrame(schema=TAGS)
    found = pl.concat(parts).filter(pl.col("score") >= config.least)
    keys = space.named(pl.concat([found["tag"], given["tag"]])).select(tag="text", key="key")
    found = found.join(keys, on="tag", maintain_order="left").unique(
        ["item_id", "key"], keep="first", maintain_order=True
    )
    found = found.join(given.join(keys, on="tag"), on=["item_id", "key"], how="anti", maintain_order="left")
    ranked = found.with_columns(place=pl.col("score").rank("ordinal", descending=True).over("item_id"))
    return ranked.filter(pl.col("place") <= config.most).sort("item_id", "place").select(TAGS.keys())


def allowed(found: pl.DataFrame, config: LabelsConfig, encoder: LabelEncoder) -> tuple[pl.DataFrame, pl.DataFrame]:
    """What the sensitive-interest policy lets through, and what it blocks: label, text, category, matched, similarity.

    Given tags are not judged here: the label space judges all labels.
    """
    schema = {name: dtype for name, dtype in BLOCKED.items() if name != "label"}
    names = found["tag"].unique().sort()
    if config.policy == "none" or not len(names):
        return found, pl.DataFrame(schema=schema)
    path = policy.DEFAULT if config.policy == "default" else Path(config.policy)
    law = policy.load(path)
    reasons = policy.judge(names.to_list(), encoder.encode(names.to_list()), policy.anchor(law, encoder))
    rows = [(name, why.category, why.matched, why.similarity) for name, why in zip(names, reasons, strict=True) if why]
    blocked = pl.DataFrame(rows, schema=schema, orient="row")
    return found.filter(~pl.col("tag").is_in(blocked["text"].implode())), blocked


def with_review(tags: pl.DataFrame, reviewed: pl.DataFrame, items: pl.DataFrame) -> pl.DataFrame:
    """The tags, with those of reviewed items replaced."""
    if unknown := reviewed.join(items, on="item_id", how="anti").height:
        console.warn(
            f"{unknown:,} rows of the reviewed file are about items that the table does not have.", rows=unknown
        )
    reviewed = reviewed.join(items.select("item_id"), on="item_id", how="semi", maintain_order="left")
    reasons = pl.when(pl.col("reason").is_in(REASONS)).then("reason").otherwise(pl.lit("given")).alias("reason")
    kept = tags.join(reviewed, on="item_id", how="anti", maintain_order="left")
    return pl.concat([kept, reviewed.drop_nulls("tag").with_columns(reasons).select(TAGS.keys())])
