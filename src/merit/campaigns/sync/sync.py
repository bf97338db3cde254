"""sync: an audience, or the interests of all users, → the rows of a destination.

    sync(artifacts.load(Path("runs/spring"), "audience"), model, destination.read(Path("crm.toml")), "mirror")

What leaves is what an export would hold: the policy is asked once more, fewer than a hundred users are refused, and
neither the holdout, the control nor anybody who is being erased is among them. Whatever is killed, the destination
has the rows of before or the rows of after. A line of the audit log is written before the first row leaves.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import polars as pl

from merit.campaigns.audiences import export
from merit.campaigns.audiences.audience import HOLDOUT, arms_of
from merit.campaigns.audiences.request import ArmShare
from merit.campaigns.sync import database, objects, webhook
from merit.campaigns.sync.destination import Destination, DuckdbTable, Mode, ObjectFile, PostgresTable, described
from merit.campaigns.sync.rows import Outgoing, Proceed, SyncCounts
from merit.core.artifacts import Artifact
from merit.core.config import Frozen
from merit.privacy import audit
from merit.privacy.floor import require_enough_named
from merit.retrieval.model import Model

DIGITS = 4  # of scores and probabilities: a change behind them is none, and writes nothing


class InterestLists(Frozen):
    """The interests of all users, as rows: the payload of each is the list."""

    name: str = "interests"
    """In the column audience."""
    k: int = 10
    holdout: ArmShare | None = None
    """Users whom no campaign addresses: with the salt of the campaigns, the same users."""


TEN = InterestLists()


def sync_audience(
    audience: Artifact, model: Model, destination: Destination, mode: Mode = "mirror", dry_run: bool = False
) -> SyncCounts:
    """Send the users to be contacted; `payload` has the score. With `dry_run`, only count."""
    members, users = export.leaving(audience, model)
    name = export.load_summary(audience).request.name
    score = pl.struct(pl.col("score").round(DIGITS)).struct.json_encode()
    rows = members.select(external_id="user_id", payload=score).collect(engine="streaming")
    facts = {"audience": audience.manifest.hash, "users": users}
    return _send(Outgoing(name, iter([rows]), audience.path), destination, mode, dry_run, facts)


def sync_interests(
    model: Model,
    destination: Destination,
    lists: InterestLists = TEN,
    mode: Mode = "mirror",
    dry_run: bool = False,
) -> SyncCounts:
    """Send the most likely interests of all users, a row for each user, some thousands at a time."""
    model.live_labels(lists.k)
    held = held_out(model.users["user_id"], lists.holdout)
    require_enough_named(len(model.users) - len(held))

    def rows() -> Iterator[pl.DataFrame]:
        for part in model.all_interests(lists.k):
            yield with_lists(part.filter(~pl.col("user_id").is_in(held.implode())))

    facts = {"model": model.hashes[0], "users": len(model.users) - len(held), "k": lists.k}
    return _send(Outgoing(lists.name, rows(), model.artifact.path), destination, mode, dry_run, facts)


def clear(folder: Path, name: str, destination: Destination, dry_run: bool = False) -> SyncCounts:
    """Remove all rows of an audience: of one that has ended, or that is too small to be sent now."""
    return _send(Outgoing(name, iter(()), folder), destination, "mirror", dry_run, {"cleared": name, "users": 0})


def held_out(users: pl.Series, holdout: ArmShare | None) -> pl.Series:
    """The users of the holdout."""
    return users.filter(arms_of(users, holdout, None) == HOLDOUT)


def with_lists(interests: pl.DataFrame) -> pl.DataFrame:
    """(user_id, rank, interest, probability, vertical) as a row for each user, whose payload is the list as JSON."""
    shown = interests.with_columns(pl.col("probability").round(DIGITS))
    lists = shown.group_by("user_id", maintain_order=True).agg(pl.struct("interest", "probability").alias("interests"))
    return lists.select(external_id="user_id", payload=pl.struct("interests").struct.json_encode())


def _send(outgoing: Outgoing, destination: Destination, mode: Mode, dry_run: bool, facts: dict[str, Any]) -> SyncCounts:
    def proceed(counts: SyncCounts) -> bool:
        if not dry_run:  # before anything is written: none goes unlogged
            to = described(destination) | {"mode": mode}
            audit.append(outgoing.folder.parent, "sync", **facts, to=to, rows=counts.model_dump())
        return not dry_run

    return deliver(outgoing, destination, mode, proceed)


def deliver(outgoing: Outgoing, destination: Destination, mode: Mode, proceed: Proceed) -> SyncCounts:
    """Bring a destination to these rows, if `proceed` says so once they are counted."""
    match destination:
        case PostgresTable() | DuckdbTable():
            return database.deliver(outgoing, destination, mode, proceed)
        case ObjectFile():
            return objects.deliver(outgoing, destination, mode, proceed)
        case _:
            return webhook.deliver(outgoing, destination, mode, proceed)
