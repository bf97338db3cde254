"""Trends of a small run, against counting event by event."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import polars as pl
import pytest

from merit.core import artifacts
from merit.core.ragged import Ragged
from merit.data.prepare import shards
from merit.data.split import SPLITS
from merit.data.trends import WEEK, trends_of
from merit.labels import space
from merit.propensity import weekly


def test_trends_are_those_of_the_labels_of_every_event(
    made: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    examples, known = artifacts.load(made / "examples"), space.load(made / "labels")
    item_labels = Ragged(*space.item_labels(known, pl.read_parquet(examples.file("items.parquet"))))
    events = [
        (int(time), int(item), shard.users["split"][int(user)] == SPLITS[0])
        for shard in shards(examples)
        for time, item, user in zip(
            shard.events["timestamp"].to_physical(), shard.events["item"], shard.events["user"], strict=True
        )
    ]
    first = min(time for time, _, _ in events)
    counts = np.zeros((1 + (max(time for time, _, _ in events) - first) // WEEK, len(known)))
    for time, item, training in events:
        if training:
            np.add.at(counts[(time - first) // WEEK], item_labels[item], 1)
    monkeypatch.setattr(weekly, "LABELS", 7)
    assert weekly.write_trends(examples, item_labels, len(known), tmp_path / "trends.npy") == first
    assert counts.sum() and np.array_equal(np.load(tmp_path / "trends.npy"), trends_of(counts, counts.sum(axis=1)))
