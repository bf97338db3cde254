"""tags: the tags that items have, and those that were found for the others, with score and reason.

The artifact: item_tags.parquet (item_id, tag, score, reason), vocabulary.parquet (tag, reason, items, score), blocked.parquet
(tags the policy keeps back, and why), examples.parquet (titles with what each source gave).
"""

from __future__ import annotations

from collections.abc import Mapping
from hashlib import sha256
from pathlib import Path
from typing import Any, Literal

import numpy as np
import polars as pl
from pydantic import Field

from merit.core import artifacts, console
from merit.core.artifacts import Artifact
from merit.core.config import Frozen
from merit.core.errors import ConfigError, DataError
from merit.core.types import LabelEncoder
from merit.data import sources, validate
from merit.data.prepare import ITEM_TAGS
from merit.labels import encoders, policy, space
from merit.labels.build import BLOCKED, LabelsConfig, policy_text
from merit.labels.tagging import provider, titles
from merit.labels.tagging.complete import CompleteConfig, chosen, complete, tag_matrix
from merit.labels.tagging.phrases import MineConfig, described, mine
from merit.labels.tagging.provider import ProviderConfig
from merit.labels.tagging.review import read_review
from merit.labels.tagging.vocabulary import VocabularyConfig, assign, read_vocabulary

TagSource = Literal["complete", "vocabulary", "mine", "model"]
TAGS = {"item_id": pl.String, "tag": pl.String, "score": pl.Float64, "reason": pl.String}
REASONS = ("given", "completed", "vocabulary", "mined", "model")
SHOWN = 5  # titles shown of each source


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


class TagsRun(Frozen):
    """All that decides what this stage makes."""

    source: sources.Source
    tags: TagsConfig = TagsConfig()
    labels: LabelsConfig = LabelsConfig()
    """The encoder and the sensitive-interest policy."""


def wanted(config: TagsRun) -> tuple[TagSource, ...]:
    """The sources of a run; none where its items are as their table has them."""
    if config.tags.sources is not None:
        return config.tags.sources
    listed: tuple[TagSource, ...] = ("vocabulary",) if config.tags.vocabulary.file else ()
    return listed if sources.brings_tags(config.source) else (*listed, "mine")


def needed(config: TagsRun) -> bool:
    """Whether a run has this stage."""
    return bool(wanted(config)) or config.tags.reviewed is not None


def tags_inputs(config: TagsRun) -> dict[str, Any]:
    """Fingerprints of what the stage reads: the items, a vocabulary, a reviewed file, a policy of one's own."""
    given = {"vocabulary": config.tags.vocabulary.file, "reviewed": config.tags.reviewed}
    hashes = {name: sha256(path.read_bytes()).hexdigest() for name, path in given.items() if path and path.is_file()}
    if config.labels.policy not in ("default", "none"):
        hashes["policy"] = sha256(policy_text(config.labels).encode()).hexdigest()
    return dict(sources.open_items(config.source).inputs) | hashes


def build_tags(out: Path, config: TagsRun, seed: int, cache: Path) -> Artifact:
    """The tags of all items of a source."""
    named = wanted(config)
    _require_settings(named, config.tags)
    items = validate.validate(sources.open_items(config.source), extra=("text", "brand")).items
    encoder = encoders.Cached(encoders.make(config.labels.encoder), cache)
    if "mine" in named and config.tags.sources is None:
        console.tell("The items have no column of tags: interests are mined from their titles (docs/tags.md).")
    with artifacts.writing(out, "tags", config=config, seed=seed, inputs=tags_inputs(config)) as draft:
        given = items.select("item_id", tag="tags").explode("tag").drop_nulls("tag")
        given = given.with_columns(score=pl.lit(1.0), reason=pl.lit("given"))
        bare = items if config.tags.extend else items.filter(pl.col("tags").list.len() == 0)
        parts = [found_by(source, items, bare, config, encoder, seed, cache) for source in named] if len(bare) else []
        found, blocked = _allowed(_united(parts, given, config.tags), config.labels, encoder)
        everything = pl.concat([given, found])
        if config.tags.reviewed:
            everything = _reviewed(everything, read_review(config.tags.reviewed), items)
        everything = everything.with_columns(pl.col("reason").cast(pl.Enum(REASONS)))
        order = items.select("item_id").join(everything, on="item_id", maintain_order="left_right")
        order.write_parquet(draft.path / ITEM_TAGS)
        _vocabulary_of(order).write_parquet(draft.path / "vocabulary.parquet")
        blocked.write_parquet(draft.path / "blocked.parquet")
        _examples(order, items).write_parquet(draft.path / "examples.parquet")
        draft.summary |= _coverage(order, items) | {"blocked": blocked.height}
        _require_tags(order, items, named)
    return artifacts.load(out, "tags")


def _require_settings(named: tuple[TagSource, ...], config: TagsConfig) -> None:
    if "vocabulary" in named and not config.vocabulary.file:
        raise ConfigError(
            'tags.sources has "vocabulary", but there is none. Name a file with a label a line: '
            "--set tags.vocabulary.file=PATH."
        )
    if "model" in named:
        provider.address(config.provider)


def _require_tags(tags: pl.DataFrame, items: pl.DataFrame, named: tuple[TagSource, ...]) -> None:
    if tags.is_empty():
        raise DataError(
            f"None of {len(items):,} items has a tag or was given one (sources: {', '.join(named) or 'none'}). Look at the titles "
            "with `merit data check`, lower --set tags.mine.least or tags.least, or add further text: "
            "--set 'source.text_columns=[\"description\"]'."
        )


# --- the sources -----------------------------------------------------------------------------------------------------


def found_by(
    source: TagSource,
    items: pl.DataFrame,
    bare: pl.DataFrame,
    config: TagsRun,
    encoder: LabelEncoder,
    seed: int,
    cache: Path,
) -> pl.DataFrame:
    """item_id, tag, score, reason: what one source gives the items `bare`, the best first."""
    texts = titles.joined(titles.plain(items["title"]), titles.plain(items["text"]))
    wanted_rows = pl.DataFrame({"row": bare["item"].cast(pl.Int64)})
    with console.spinner(f"tags: {source}"):
        if source == "complete":
            table = _completed(items, texts, wanted_rows, config.tags, encoder, seed)
        elif source == "vocabulary":
            labels = read_vocabulary(config.tags.vocabulary.file)  # type: ignore[arg-type]
            assigned = assign(texts.gather(wanted_rows["row"]), labels, config.tags.vocabulary, encoder)
            table = assigned.with_columns(
                row=wanted_rows["row"].gather(assigned["row"]), tag=labels.gather(assigned["label"])
            )
        elif source == "mine":
            phrases, places = mine(texts, items["brand"], config.tags.mine, encoder)
            table = described(phrases, places.join(wanted_rows, on="row", how="semi"))
        else:
            asked = bare["title"].to_list()
            lists = provider.written(
                titles.plain(bare["title"]).to_list(), config.tags.most, config.tags.provider, cache
            )
            table = pl.DataFrame({"row": wanted_rows["row"], "tag": pl.Series(lists, dtype=pl.List(pl.String))})
            table = table.explode("tag").drop_nulls("tag").with_columns(score=pl.lit(0.8))
            assert len(asked) == len(lists)
    reason = {"complete": "completed", "vocabulary": "vocabulary", "mine": "mined", "model": "model"}[source]
    named = table.with_columns(item_id=items["item_id"].gather(table["row"]), reason=pl.lit(reason))
    return named.select("item_id", "tag", pl.col("score").cast(pl.Float64), "reason")


def _completed(
    items: pl.DataFrame, texts: pl.Series, bare: pl.DataFrame, config: TagsConfig, encoder: LabelEncoder, seed: int
) -> pl.DataFrame:
    pairs = items.select(row=pl.col("item").cast(pl.Int64), tag="tags").explode("tag").drop_nulls("tag")
    names = pairs["tag"].unique().sort()
    tagged = int(pairs["row"].n_unique())
    if tagged < config.complete.enough:
        console.warn(
            f"Only {tagged:,} items have tags, too few to complete others from them (tags.complete.enough: {config.complete.enough}).",
            tagged=tagged,
        )
        return pl.DataFrame(schema={"row": pl.Int64, "tag": pl.String, "score": pl.Float64})
    numbers = pairs.join(pl.DataFrame({"tag": names, "label": np.arange(len(names))}), on="tag", maintain_order="left")
    tags = tag_matrix(numbers["row"].to_numpy(), numbers["label"].to_numpy(), len(items), len(names))
    scored = complete(texts, items["vertical"], tags, config.complete, encoder, seed)
    best = chosen(scored.join(bare, on="row", how="semi", maintain_order="left"), config.most, config.least)
    return best.with_columns(tag=names.gather(best["label"]))


def _united(parts: list[pl.DataFrame], given: pl.DataFrame, config: TagsConfig) -> pl.DataFrame:
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


def _allowed(found: pl.DataFrame, config: LabelsConfig, encoder: LabelEncoder) -> tuple[pl.DataFrame, pl.DataFrame]:
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


def _reviewed(tags: pl.DataFrame, reviewed: pl.DataFrame, items: pl.DataFrame) -> pl.DataFrame:
    """The tags, with those of reviewed items replaced."""
    if unknown := reviewed.join(items, on="item_id", how="anti").height:
        console.warn(
            f"{unknown:,} rows of the reviewed file are about items that the table does not have.", rows=unknown
        )
    reviewed = reviewed.join(items.select("item_id"), on="item_id", how="semi", maintain_order="left")
    reasons = pl.when(pl.col("reason").is_in(REASONS)).then("reason").otherwise(pl.lit("given")).alias("reason")
    kept = tags.join(reviewed, on="item_id", how="anti", maintain_order="left")
    return pl.concat([kept, reviewed.drop_nulls("tag").with_columns(reasons).select(TAGS.keys())])


# --- what is said about it -------------------------------------------------------------------------------------------


def _vocabulary_of(tags: pl.DataFrame) -> pl.DataFrame:
    grouped = tags.group_by("tag").agg(
        pl.col("reason").min(), items=pl.col("item_id").n_unique(), score=pl.col("score").mean().round(4)
    )
    return grouped.sort("items", "tag", descending=[True, False])


def _coverage(tags: pl.DataFrame, items: pl.DataFrame) -> Mapping[str, int | float]:
    """Items with tags before and after, and what each source gave."""
    before = int((items["tags"].list.len() > 0).sum())
    by_reason = tags.group_by("reason").agg(tags=pl.len(), items=pl.col("item_id").n_unique()).sort("reason")
    summary: dict[str, int | float] = {
        "items": len(items),
        "items_with_tags_before": before,
        "items_with_tags": tags["item_id"].n_unique(),
        "tags": tags["tag"].n_unique(),
        "tags_per_item": round(len(tags) / max(1, tags["item_id"].n_unique()), 2),
        "items_without_title": int((items["title"] == "").sum()),
    }
    for reason, count, covered in by_reason.iter_rows():
        summary |= {f"{reason}_tags": count, f"{reason}_items": covered}
    return summary


def _examples(tags: pl.DataFrame, items: pl.DataFrame) -> pl.DataFrame:
    """reason, title, tags: a few items of each source, spread evenly over the catalogue."""
    rows = tags.group_by("item_id", "reason", maintain_order=True).agg(tags=pl.col("tag").str.join(", "))
    rows = rows.join(items.select("item_id", "title").filter(pl.col("title") != ""), on="item_id")
    rows = rows.sort("reason", "item_id").with_columns(
        place=pl.int_range(pl.len()).over("reason"), size=pl.len().over("reason")
    )
    step = pl.max_horizontal(pl.col("size") // SHOWN, pl.lit(1))
    shown = rows.filter((pl.col("place") % step == 0) & (pl.col("place") // step < SHOWN))
    return shown.select(pl.col("reason").cast(pl.String), "title", "tags")
