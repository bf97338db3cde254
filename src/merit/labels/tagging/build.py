"""tags: the tags that items have, and those that were found for the others, with score and reason.

The artifact: item_tags.parquet (item_id, tag, score, reason), vocabulary.parquet (tag, reason, items, score),
blocked.parquet (tags the policy keeps back, and why), examples.parquet (titles with what each source gave).
"""

from __future__ import annotations

from hashlib import sha256
from pathlib import Path
from typing import Any

import polars as pl

from merit.core import artifacts, console
from merit.core.artifacts import Artifact
from merit.core.config import Frozen
from merit.core.errors import ConfigError, DataError
from merit.data import sources, validate
from merit.data.prepare import ITEM_TAGS
from merit.labels import encoders
from merit.labels.build import LabelsConfig, policy_text
from merit.labels.tagging import provider
from merit.labels.tagging.finding import (
    REASONS,
    TaggingJob,
    TagsConfig,
    TagSource,
    allowed,
    found_by,
    united,
    with_review,
)
from merit.labels.tagging.review import read_review

SHOWN = 5  # titles shown of each source


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
        job = TaggingJob.of(items, bare, config.tags, encoder, seed, cache)
        parts = [found_by(source, job) for source in named] if len(bare) else []
        found, blocked = allowed(united(parts, given, config.tags), config.labels, encoder)
        everything = pl.concat([given, found])
        if config.tags.reviewed:
            everything = with_review(everything, read_review(config.tags.reviewed), items)
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
            f"None of {len(items):,} items has a tag or was given one (sources: {', '.join(named) or 'none'}). Look at "
            "the titles with `merit data check`, lower --set tags.mine.least or tags.least, or add further text: "
            "--set 'source.text_columns=[\"description\"]'."
        )


# --- what is said about it -------------------------------------------------------------------------------------------


def _vocabulary_of(tags: pl.DataFrame) -> pl.DataFrame:
    grouped = tags.group_by("tag").agg(
        pl.col("reason").min(), items=pl.col("item_id").n_unique(), score=pl.col("score").mean().round(4)
    )
    return grouped.sort("items", "tag", descending=[True, False])


def _coverage(tags: pl.DataFrame, items: pl.DataFrame) -> dict[str, int | float]:
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
