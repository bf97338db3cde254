"""A label space changes by becoming its next version: added, retired, blocked and renamed labels, each with a record.

    newer, skipped = changes.add(labels, ["trail running"], ["Sports"])
    newer = changes.rename(newer, "trail running", "trail and fell running")

Ids are never reused, and an untouched label keeps its id, its text and its place bit for bit.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Literal, cast

import numpy as np
import polars as pl
from numpy.typing import NDArray

from merit.core.errors import DataError
from merit.core.types import Ints, Status
from merit.labels.names import clean, normalise
from merit.labels.space import COLUMNS, MERGED, Change, Labels, LabelSpace, Same, build, likeness, resolve


def add(
    space: LabelSpace, texts: Sequence[str], verticals: Sequence[str], same: Same | None = None, reason: str = ""
) -> tuple[LabelSpace, pl.DataFrame]:
    """New labels under new ids; retired ones come back under their old id. Reports the texts that are no new label."""
    if len(texts) != len(verticals):
        raise DataError(f"{len(texts)} labels came with {len(verticals)} verticals. Give one vertical per label.")
    old, version = space.find(texts), space.version + 1
    schema = {"text": pl.String, "vertical": pl.String}
    tags = pl.DataFrame({"text": list(texts), "vertical": list(verticals)}, schema=schema).with_columns(count=pl.lit(0))
    new, _ = build(tags.filter(pl.Series(old < 0)), same)
    target = _twins(space, new.texts, same)
    fresh = target < 0
    target[fresh] = len(space) + np.arange(fresh.sum())
    back = _having(space, np.concatenate([old[old >= 0], target[~fresh]]), "retired")
    if not fresh.any() and not len(back):
        raise DataError(f"Nothing to add: all {len(texts)} texts are empty or already in the space. Check the list.")
    appended = new.table.filter(pl.Series(fresh)).with_columns(id=pl.Series(target[fresh]), since=version).cast(COLUMNS)
    table = pl.concat([_with(space.table, back, status="live"), appended])
    aliases = new.aliases.with_columns(id=pl.Series(target[new.aliases["id"].to_numpy()], dtype=pl.UInt32))
    labels = np.concatenate([back, target[fresh]])
    change = Change(
        version=version,
        action="add",
        labels=labels.tolist(),
        reason=reason,
        after=table["text"].gather(labels).to_list(),
    )
    grown = _next(space, change, table, pl.concat([space.aliases, aliases]))
    return grown, _not_added(grown, texts, labels)


def _twins(space: LabelSpace, texts: Sequence[str], same: Same | None) -> Ints:
    """For each text, the id of the label that the encoder cannot tell from it, or -1."""
    if same is None or not texts:
        return np.full(len(texts), -1, dtype=np.int64)
    ids = dict(zip(likeness(space.texts, same), range(len(space)), strict=True))
    return np.array([ids.get(like, -1) for like in likeness(texts, same)], dtype=np.int64)


def _not_added(space: LabelSpace, texts: Sequence[str], added: Ints) -> pl.DataFrame:
    rows = pl.DataFrame({"text": list(texts), "id": space.find(texts)}, schema={"text": pl.String, "id": pl.Int64})
    labels = space.table.select(pl.col("id").cast(pl.Int64), "status", kept="text")
    reason = (
        pl.when(pl.col("id") < 0)
        .then(pl.lit("nothing left after normalisation"))
        .when(pl.col("status") == "blocked")
        .then(pl.lit("blocked"))
        .when(~pl.col("id").is_in(added.tolist()))
        .then(pl.lit("already in the space"))
        .when(pl.col("text") != pl.col("kept"))
        .then(pl.lit("equal after normalisation or tokenisation"))
    )
    rows = rows.unique(maintain_order=True).join(labels, on="id", how="left").with_columns(reason=reason)
    return rows.drop_nulls("reason").select(*MERGED).cast(MERGED)


def rename(space: LabelSpace, label: str | int, text: str, same: Same | None = None, reason: str = "") -> LabelSpace:
    """Another text for the same label. The old name stays an alias; a name that leads elsewhere is refused."""
    number = int(resolve(space, cast(Labels, [label]))[0])
    shown, key, old = clean(text), normalise(text), space.table["text"][number]
    if not key:
        raise DataError(
            f"'{old}' cannot be renamed to {text!r}: nothing is left after cleaning. Give a text with letters."
        )
    owner = int(space.find([text])[0])
    owner = owner if owner >= 0 else int(_twins(space, [shown], same)[0])
    if owner not in (-1, number):
        taken = space.table["text"][owner]
        raise DataError(f"'{old}' cannot be renamed to '{shown}': that name leads to '{taken}'. Choose another name.")
    alias = pl.DataFrame({"key": [key], "id": [number]}, schema=space.aliases.schema)
    aliases = pl.concat([space.aliases, alias]).unique("key", keep="first", maintain_order=True)
    change = Change(
        version=space.version + 1, action="rename", labels=[number], reason=reason, before=[old], after=[shown]
    )
    return _next(space, change, _with(space.table, np.array([number]), text=shown, key=key), aliases)


def with_clusters(space: LabelSpace, assignment: Sequence[int] | NDArray[np.int32]) -> LabelSpace:
    """The same version with its clusters filled in: they order the labels but do not change them."""
    return replace(space, table=space.table.with_columns(cluster=pl.Series(assignment, dtype=pl.Int32)))


def logged(space: LabelSpace, action: str, labels: Sequence[int], reason: str) -> LabelSpace:
    """The same version with one more line in its log."""
    change = Change(version=space.version, action=action, labels=list(labels), reason=reason)
    return _next(space, change, space.table, space.aliases)


def set_status(space: LabelSpace, labels: Labels, status: Literal["retired", "blocked"], reason: str) -> LabelSpace:
    """Retired labels are no longer offered: their ids stay taken, and `add` brings them back.

    Blocked ones may never leave the space (the sensitive-interest policy).
    """
    if not reason.strip():
        raise DataError(f"Labels cannot be {status} without a reason. Say why with --reason.")
    ids = np.unique(resolve(space, labels))
    if status == "retired" and len(blocked := _having(space, ids, "blocked")):
        first = space.table["text"][int(blocked[0])]
        raise DataError(f"'{first}' is blocked and stays so: a retired label could be added again. Leave it out.")
    change = Change(
        version=space.version + 1,
        action={"retired": "retire", "blocked": "block"}[status],
        labels=ids.tolist(),
        reason=reason,
        before=space.table["status"].gather(ids).to_list(),
        after=[status] * len(ids),
    )
    return _next(space, change, _with(space.table, ids, status=status), space.aliases)


def _next(space: LabelSpace, change: Change, table: pl.DataFrame, aliases: pl.DataFrame) -> LabelSpace:
    return LabelSpace(table, aliases, change.version, (*space.changes, change))


def _with(table: pl.DataFrame, ids: Ints, **values: str) -> pl.DataFrame:
    """The table with these columns changed in these rows, and nowhere else."""
    chosen = pl.Series(np.isin(np.arange(table.height), ids))
    return table.with_columns(
        pl.when(chosen).then(pl.lit(value, dtype=COLUMNS[name])).otherwise(pl.col(name)).alias(name)
        for name, value in values.items()
    )


def _having(space: LabelSpace, ids: Ints, status: Status) -> Ints:
    return np.unique(ids[(space.table["status"] == status).to_numpy()[ids]])
