"""Whose row is whose in files without ids: their rows are in the order of the examples."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import polars as pl

from merit.core import artifacts
from merit.core.artifacts import MANIFEST, Artifact
from merit.core.ragged import column_lists
from merit.core.types import Split
from merit.labels import space


class Orders:
    """By artifact and split, the user of each example. What was read once is kept."""

    def __init__(self, known: Mapping[str, Artifact]) -> None:
        self._known = known  # by hash
        self._read: dict[tuple[str, str, Split], pl.Series] = {}

    def users(self, artifact: Artifact, split: Split) -> pl.Series | None:
        """None where the examples are gone: then nothing can tell whose the rows were."""
        examples, labels = (self._parent(artifact, name) for name in ("examples", "labels"))
        if examples is None or labels is None:
            return None
        key = (examples.manifest.hash, labels.manifest.hash, split)
        if key not in self._read:
            self._read[key] = example_users(examples, labels, split)
        return self._read[key]

    def _parent(self, artifact: Artifact, name: str) -> Artifact | None:
        parent = artifact.manifest.parents[name]
        place = artifact.path.parent / parent.path
        if (place / MANIFEST).exists() and (found := artifacts.load(place, verify=False)).manifest.hash == parent.hash:
            return found
        return self._known.get(parent.hash)


def example_users(examples: Artifact, labels: Artifact, split: Split) -> pl.Series:
    """The user of every example of a split that has a label left, shard after shard."""
    offsets, _ = space.item_labels(space.load(labels.path), pl.read_parquet(examples.file("items.parquet")))
    labelled = np.diff(offsets) > 0
    parts = [pl.Series("user_id", [], dtype=pl.String)]
    for number in range(examples.manifest.summary["shards"]):
        own = pl.scan_parquet(examples.file(f"examples-{number:05}.parquet")).filter(pl.col("split") == split)
        rows = own.select("user", "target_items").collect()
        targets = column_lists(rows["target_items"])
        owner = np.repeat(np.arange(len(targets)), targets.lengths())
        told = np.bincount(owner, weights=labelled[targets.values], minlength=len(targets)) > 0
        users = pl.read_parquet(examples.file(f"users-{number:05}.parquet"), columns=["user_id"])["user_id"]
        parts.append(users.gather(rows["user"].filter(pl.Series(told))))
    return pl.concat(parts)
