"""How popular labels were in every week of the data, from the events of training users alone."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
from scipy.sparse import coo_array, csr_array

from merit.core.artifacts import Artifact
from merit.core.ragged import Ragged
from merit.data.prepare import Shard, shards
from merit.data.split import SPLITS
from merit.data.trends import trends_of, week_of

LABELS = 16_384  # at a time


def write_trends(examples: Artifact, item_labels: Ragged, labels: int, file: Path) -> int:
    """(weeks + 1, labels) in half precision, into a file; returns the time from which weeks are counted."""
    spans = [_span(shard) for shard in shards(examples) if len(shard.events)]
    first = min(low for low, _ in spans)
    weeks = 1 + int(week_of(np.array([max(high for _, high in spans)]), first)[0])
    shape = (weeks, len(item_labels))
    weekly = sum((_weekly(shard, first, shape) for shard in shards(examples)), start=csr_array(shape))
    ones = np.ones(len(item_labels.values))
    carried = csr_array((ones, item_labels.values, item_labels.offsets), shape=(len(item_labels), labels)).tocsc()
    all_ = weekly @ item_labels.lengths()
    trends = np.lib.format.open_memmap(file, mode="w+", dtype=np.float16, shape=(weeks + 1, labels))
    for at in range(0, labels, LABELS):
        trends[:, at : at + LABELS] = trends_of((weekly @ carried[:, at : at + LABELS]).toarray(), all_)
    trends.flush()
    return first


def _span(shard: Shard) -> tuple[int, int]:
    times = shard.events["timestamp"].to_physical().to_numpy()
    return int(times.min()), int(times.max())


def _weekly(shard: Shard, first: int, shape: tuple[int, int]) -> Any:
    """(weeks, items): events of training users."""
    training = (shard.users["split"] == SPLITS[0]).to_numpy()[shard.events["user"].to_numpy()]
    times, items = (shard.events[name].to_physical().to_numpy()[training] for name in ("timestamp", "item"))
    return coo_array((np.ones(len(items)), (week_of(times, first), items)), shape=shape).tocsr()
