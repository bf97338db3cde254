"""Routes about the label space: search as one types, and the status of a label. Blocked labels are not named."""

from __future__ import annotations

from typing import Annotated

import polars as pl
from fastapi import Path, Query

from merit.core.errors import MissingArtifact
from merit.labels.search import Findable, search
from merit.retrieval.query import LONGEST
from merit.service import cursors, schemas
from merit.service.asking import Cursor, Limit, TheModel, offset_of


def labels(
    served: TheModel,
    q: Annotated[str, Query(max_length=LONGEST, description="how a label begins, or words in it")] = "",
    status: Annotated[Findable, Query()] = "live",
    cluster: Annotated[int | None, Query(ge=0, le=2**31 - 1, description="only labels of this cluster")] = None,
    limit: Limit = 20,
    cursor: Cursor = None,
) -> schemas.LabelPage:
    """Labels that begin so, then labels with words that begin so; the most frequent first."""
    found = search(served.model.labels, q, status)
    if cluster is not None:
        found = found.filter(pl.col("cluster") == cluster)
    about = ("labels", served.version, q, status, cluster)
    first = offset_of(cursor, len(found), *about)
    last = min(first + limit, len(found))
    return schemas.LabelPage(
        total=len(found),
        items=[_row(row) for row in found[first:last].to_dicts()],
        next=cursors.write(last, *about) if last < len(found) else None,
    )


def label(
    served: TheModel, number: Annotated[int, Path(ge=0, le=2**31, description="of the label in the space")]
) -> schemas.LabelRow:
    """One label and its status."""
    table = served.model.labels.table
    if number >= len(table):
        raise MissingArtifact(f"There is no label {number}; the space has {len(table):,}. Search for its text.")
    return _row(table.row(number, named=True))


def _row(row: dict[str, object]) -> schemas.LabelRow:
    blocked, cluster = row["status"] == "blocked", row["cluster"]
    return schemas.LabelRow.model_validate(
        {
            "number": row["id"],
            "text": None if blocked else row["text"],
            "vertical": None if blocked else row["vertical"],
            "status": row["status"],
            "since": row["since"],
            "cluster": None if blocked or cluster == -1 else cluster,
        }
    )
