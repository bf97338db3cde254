"""`merit tag`: the first stage of a run by itself, of a configuration or of a table of items alone."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import polars as pl

from merit.core import config as configs
from merit.core import console
from merit.core.artifacts import Artifact
from merit.core.errors import ConfigError
from merit.core.quick import TAGS
from merit.core.shared import SharedRun
from merit.core.stage import make_all
from merit.data import sources, validate
from merit.data.prepare import ITEM_TAGS
from merit.labels.tagging.build import TagsRun, needed
from merit.labels.tagging.review import write_review


def tag(file: Path | None, items: Path | None, out: Path | None, overrides: Sequence[str] = ()) -> Artifact:
    """The tags artifact in the folder of the run, which a run with the same settings keeps."""
    if (file is None) == (items is None):
        raise ConfigError("Name a configuration, or a table of items: merit tag shop.toml, merit tag --items TABLE.")
    table = {"source": {"kind": "tables", "interactions": str(items), "items": str(items)}}
    values = configs.overridden(configs.read(file) if file else table, overrides)
    shared = {name: value for name, value in values.items() if name in SharedRun.model_fields}
    shared |= {"out": str(out)} if out else {}
    run = configs.build(SharedRun, shared, origin=str(file or items))
    if not needed(run.tagging):
        console.warn("No source of tags is named, so items keep what they have: --set 'tags.sources=[\"complete\"]'.")
    return make_all({"tags": TAGS}, run)["tags"]


def write_for_review(tags: Artifact, file: Path) -> int:
    """Write all tags of an artifact as CSV; how many rows."""
    source = TagsRun.model_validate(tags.manifest.config).source
    items = validate.validate(sources.open_items(source)).items
    return write_review(pl.read_parquet(tags.file(ITEM_TAGS)).cast({"reason": pl.String}), items, file)


def examples(tags: Artifact) -> pl.DataFrame:
    """reason, title, tags: a few items of each source."""
    return pl.read_parquet(tags.file("examples.parquet"))
