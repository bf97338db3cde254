"""Answers about histories that came with a request: by this process, or by its child where torch has to read them.

The service itself never loads torch. Nothing that was sent is written anywhere: neither to a log, nor to a cache, nor
to the audit log.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import polars as pl

from merit.retrieval.model import Model

COLUMNS = {"user_id": pl.String, "item_id": pl.String, "title": pl.String, "timestamp": pl.String}
Events = Sequence[Sequence[str | None]]  # user_id, item_id, title, at


def interests_of(model: Model, users: list[str], events: Events, k: int) -> list[dict[str, Any]]:
    """The rows of the answer, one for each of these users."""
    new = _over(model, users, events)
    lists = new.interests(users, k).group_by("user_id", maintain_order=True).agg(pl.struct(pl.exclude("user_id")))
    interests = dict(zip(lists["user_id"], lists[lists.columns[1]], strict=True))
    return [row | {"interests": interests[row["user_id"]].to_list()} for row in new.rests_on.to_dicts()]


def scores_of(model: Model, users: list[str], events: Events, interests: list[str]) -> list[dict[str, Any]]:
    """The rows of the answer, one for each pair."""
    new = _over(model, users, events)
    rests_on = new.rests_on.select("user_id", "rests_on")
    return new.score(users, interests).join(rests_on, on="user_id", maintain_order="left").to_dicts()


def _over(model: Model, users: list[str], events: Events) -> Model:
    return model.with_histories(pl.DataFrame([*events], schema=COLUMNS, orient="row"), users=users)
