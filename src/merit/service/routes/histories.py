"""A route about what a user did: the history that the model has read, the newest first.

The model keeps what was done and in which order. When it was done is told where the run's examples are beside it.
"""

from __future__ import annotations

from itertools import pairwise

import polars as pl

from merit.labels import space
from merit.service import cursors, schemas
from merit.service.asking import Cursor, Limit, TheModel, offset_of, unknown_user
from merit.service.routes.interests import User
from merit.service.store import Served

TIMES = pl.Schema({"item": pl.UInt32(), "at": pl.String(), "event": pl.String()})


def history(served: TheModel, user_id: User, limit: Limit = 50, cursor: Cursor = None) -> schemas.HistoryPage:
    """What a user did, the newest first, and the interests that each item carries."""
    known = served.items(user_id)
    if known is None:
        raise unknown_user()
    items = known.reverse()
    about = ("history", served.version, user_id)
    first = offset_of(cursor, len(items), *about)
    last = min(first + limit, len(items))
    shown = _timed(served, user_id, items)[first:last]
    named = shown.join(_named(served, shown["item"]), on="item", how="left", maintain_order="left").drop("item")
    return schemas.HistoryPage(
        user_id=user_id,
        model=served.version,
        total=len(items),
        items=[schemas.HistoryRow.model_validate(row) for row in named.to_dicts()],
        next=cursors.write(last, *about) if last < len(items) else None,
    )


def _timed(served: Served, user: str, items: pl.Series) -> pl.DataFrame:
    """The items with their times. A history is the end of what the examples have of a user; if not, it has no times."""
    newest = _events(served, user).tail(len(items)).reverse()
    if newest["item"].equals(items):
        return newest
    return pl.DataFrame({"item": items, "at": None, "event": None}, schema=TIMES)


def _events(served: Served, user: str) -> pl.DataFrame:
    """All that the run's examples have of a user, in the order of time."""
    examples = served.beside("examples")
    if examples:
        for number in range(examples.manifest.summary["shards"]):
            people = pl.scan_parquet(examples.file(f"users-{number:05}.parquet")).filter(pl.col("user_id") == user)
            if len(own := people.select("user").collect()):
                events = pl.scan_parquet(examples.file(f"events-{number:05}.parquet"))
                at = pl.col("timestamp").dt.to_string("iso:strict")
                found = events.filter(pl.col("user") == own.item())
                return found.select("item", at=at, event=pl.col("event").cast(pl.String)).collect()
    return pl.DataFrame(schema=TIMES)


def _named(served: Served, items: pl.Series) -> pl.DataFrame:
    """item, item_id, title, interests. Blocked and retired labels are left out."""
    table = pl.scan_parquet(served.model.artifact.file("items.parquet"))
    wanted = table.filter(pl.col("item").is_in(items.unique().implode())).collect()
    dense = wanted.with_columns(item=pl.int_range(pl.len()))  # offsets have a place for every number up to the largest
    offsets, labels = space.item_labels(served.model.labels, dense)
    texts = served.model.labels.table["text"]
    carried = [texts.gather(labels[start:stop]).to_list() for start, stop in pairwise(offsets)]
    interests = pl.Series(carried, dtype=pl.List(pl.String))
    return wanted.select("item", "item_id", "title").with_columns(interests=interests)
