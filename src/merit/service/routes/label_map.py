"""The route of the label map: clusters of labels on a plane, those beside each other that mean something alike.

It is computed when it is first asked for, and kept as long as its model is served.
"""

from __future__ import annotations

from threading import Lock
from weakref import WeakKeyDictionary

import numpy as np
import polars as pl

from merit.core.types import Floats
from merit.retrieval.model import Model
from merit.service import schemas
from merit.service.asking import TheModel
from merit.service.layout import layout
from merit.service.limits import MOST_CLUSTERS

_KEPT: WeakKeyDictionary[Model, schemas.LabelMap] = WeakKeyDictionary()
_DRAWING = Lock()  # two that ask at once wait for one drawing


def label_map(served: TheModel) -> schemas.LabelMap:
    """The largest clusters of live labels, with a place for each. Labels that are blocked or retired count nowhere."""
    with _DRAWING:
        if served.model not in _KEPT:
            _KEPT[served.model] = drawn(served.model, served.version)
        return _KEPT[served.model]


def drawn(model: Model, version: str) -> schemas.LabelMap:
    """Only the MOST_CLUSTERS largest clusters get a place; labels without a cluster are not counted."""
    live = model.labels.table.filter(pl.col("status") == "live", pl.col("cluster") >= 0)
    everything = clusters(live)
    shown = everything.head(MOST_CLUSTERS)
    places = layout(middles(model, live, shown["cluster"].to_list())) if len(shown) else np.zeros((0, 2))
    rows = shown.with_columns(x=pl.Series(places[:, 0]).round(4), y=pl.Series(places[:, 1]).round(4))
    return schemas.LabelMap(
        model=version,
        clusters=len(everything),
        labels=len(live),
        items=[schemas.ClusterPlace.model_validate(row) for row in rows.to_dicts()],
    )


def clusters(live: pl.DataFrame) -> pl.DataFrame:
    """The largest first: cluster, labels, vertical (of most of its labels), name (the most frequent label of that)."""
    by_vertical = live.sort("count", "id", descending=[True, False]).group_by(
        "cluster", "vertical", maintain_order=True
    )
    counted = by_vertical.agg(own=pl.len(), name=pl.col("text").first())
    main = counted.sort("own", "vertical", descending=[True, False], nulls_last=True)
    return (
        main.group_by("cluster", maintain_order=True)
        .agg(pl.col("own").sum().cast(pl.Int64).alias("labels"), pl.col("vertical", "name").first())
        .sort("labels", "cluster", descending=[True, False])
    )


def middles(model: Model, live: pl.DataFrame, wanted: list[int]) -> Floats:
    """The mean vector of each cluster's live labels, of length 1."""
    members = live.select(label="id", own=pl.col("cluster").replace_strict(wanted, range(len(wanted)), default=None))
    kept = members.drop_nulls("own")
    vectors = model.label_vectors(kept["label"].to_numpy().astype(np.int64))
    sums = np.zeros((len(wanted), vectors.shape[1]), np.float32)
    np.add.at(sums, kept["own"].to_numpy(), vectors)
    return np.asarray(sums / np.maximum(np.linalg.norm(sums, axis=1, keepdims=True), 1e-12), np.float32)
