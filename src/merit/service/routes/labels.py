"""Routes about the label space: search, the status of a label, and the label map. Blocked labels are not named.

The map is computed when it is first asked for, and kept as long as its model is served.
"""

from __future__ import annotations

from threading import Lock
from typing import Annotated
from weakref import WeakKeyDictionary

import numpy as np
import polars as pl
from fastapi import Path, Query
from numpy.typing import NDArray
from threadpoolctl import threadpool_limits  # type: ignore[import-untyped]

from merit.core.errors import MissingArtifact
from merit.core.types import Floats
from merit.labels.space import Findable, search
from merit.retrieval.model import Model
from merit.retrieval.query import LONGEST
from merit.service import schemas
from merit.service.dependencies import Cursor, Limit, TheModel, page_of

MOST_CLUSTERS = 600  # on the label map: more cannot be told apart
PERPLEXITY = 30.0  # neighbours of a point, unless a third of the points is less
FEW = 16  # points: fewer have no neighbourhoods, and their two main axes show more
_MAPS: WeakKeyDictionary[Model, schemas.LabelMapResponse] = WeakKeyDictionary()
_MAPPING = Lock()  # two requests at once wait for one map


def labels(
    served: TheModel,
    q: Annotated[str, Query(max_length=LONGEST, description="how a label begins, or words in it")] = "",
    status: Annotated[Findable, Query()] = "live",
    cluster: Annotated[int | None, Query(ge=0, le=2**31 - 1, description="only labels of this cluster")] = None,
    limit: Limit = 20,
    cursor: Cursor = None,
) -> schemas.LabelPage:
    """Labels that begin with the query, then labels with such words; the most frequent first."""
    rows = search(served.model.labels, q, status)
    if cluster is not None:
        rows = rows.filter(pl.col("cluster") == cluster)
    page, next_page = page_of(cursor, limit, len(rows), "labels", served.version, q, status, cluster)
    return schemas.LabelPage(total=len(rows), items=[_row(row) for row in rows[page].to_dicts()], next=next_page)


def label(
    served: TheModel, number: Annotated[int, Path(ge=0, le=2**31, description="of the label in the space")]
) -> schemas.LabelRow:
    """One label and its status."""
    table = served.model.labels.table
    if number >= len(table):
        raise MissingArtifact(f"There is no label {number}; the space has {len(table):,}. Search for its text.")
    return _row(table.row(number, named=True))


def _row(row: dict[str, object]) -> schemas.LabelRow:
    withheld: dict[str, object] = {} if row["cluster"] != -1 else {"cluster": None}
    if row["status"] == "blocked":
        withheld = dict.fromkeys(("text", "vertical", "cluster"))
    return schemas.LabelRow.model_validate(row | {"number": row["id"]} | withheld)


def label_map(served: TheModel) -> schemas.LabelMapResponse:
    """The largest clusters of live labels, with a position for each. Blocked and retired labels are left out."""
    with _MAPPING:
        if served.model not in _MAPS:
            _MAPS[served.model] = make_map(served.model, served.version)
        return _MAPS[served.model]


def make_map(model: Model, version: str) -> schemas.LabelMapResponse:
    """The map of the MOST_CLUSTERS largest clusters; labels without a cluster are not counted."""
    live = model.labels.table.filter(pl.col("status") == "live", pl.col("cluster") >= 0)
    frequent_first = live.sort("count", "id", descending=[True, False])
    by_vertical = frequent_first.group_by("cluster", "vertical", maintain_order=True)
    parts = by_vertical.agg(labels=pl.len(), name=pl.col("text").first(), ids=pl.col("id"))
    by_cluster = parts.sort("labels", "vertical", descending=[True, False], nulls_last=True).group_by("cluster")
    figures = pl.col("labels").sum().cast(pl.Int64), pl.col("vertical", "name").first(), pl.col("ids").explode()
    clusters = by_cluster.agg(*figures).sort("labels", "cluster", descending=[True, False])
    largest = clusters.head(MOST_CLUSTERS)
    means = [model.label_vectors(ids.to_numpy().astype(np.int64)).mean(axis=0) for ids in largest["ids"]]
    points = (
        layout(np.stack([mean / max(np.linalg.norm(mean), 1e-12) for mean in means])) if means else np.zeros((0, 2))
    )
    rows = largest.drop("ids").with_columns(x=pl.Series(points[:, 0]).round(4), y=pl.Series(points[:, 1]).round(4))
    return schemas.LabelMapResponse(model=version, clusters=len(clusters), labels=len(live), items=rows.to_dicts())


def layout(points: Floats) -> NDArray[np.float64]:
    """(n, d) → (n, 2): t-SNE from two principal axes, scaled to -1 … 1. The same points give the same map."""
    from sklearn.decomposition import PCA  # a second that nothing else of the service needs
    from sklearn.manifold import TSNE

    flat = np.zeros((len(points), 2), np.float32)
    axes = min(2, *points.shape)
    if points.std(axis=0).any():
        flat[:, :axes] = PCA(axes, svd_solver="full").fit_transform(points)
    if len(points) >= FEW:
        start = 1e-4 * flat / max(float(flat.std()), 1e-12)
        with threadpool_limits(1):  # sums of several threads differ in their last digits
            flat = TSNE(2, perplexity=min(PERPLEXITY, (len(points) - 1) / 3), init=start, max_iter=500).fit_transform(
                points
            )
    flat = flat - (flat.max(axis=0) + flat.min(axis=0)) / 2
    return np.asarray(flat / max(float(np.abs(flat).max()), 1e-12), np.float64)
