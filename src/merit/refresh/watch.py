"""What every refresh writes down: log/refreshes.jsonl in the model's folder, a line for each, and log/index.html."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
from numpy.typing import NDArray

from merit.core.artifacts import Artifact
from merit.core.config import Frozen
from merit.core.ids import IdIndex
from merit.core.provenance import now
from merit.core.ragged import indicators
from merit.core.seeds import stream
from merit.core.types import Ints
from merit.data.examples import DAY
from merit.evaluation.calibration import Bins
from merit.refresh import drift
from merit.refresh.drift import Drift, Kept, WatchConfig
from merit.refresh.events import NewEvents
from merit.refresh.known import KnownRun
from merit.refresh.moved import Moved
from merit.refresh.seen import Period, SeenEvents
from merit.report.page import SMALLEST_CELL
from merit.retrieval.model import Model

LOG, RECORD, PAGE = "log", "refreshes.jsonl", "index.html"
USERS = 1_000  # that are scored to watch scores and calibration
GRID = 1 << 22  # scores at a time
TENTHS = 10


class Record(Frozen):
    """A refresh, in figures; nothing in it is about fewer than 50 users."""

    at: str
    until: str
    """The last event."""
    trained_until: str
    events: int
    """That came since the last refresh."""
    users: int
    encoded: int
    """Users who were encoded again, or for the first time."""
    new_users: int
    new_items: int
    new_labels: int
    late: int
    left_out: int
    unknown_items: float
    """Share of the events since."""
    drifts: dict[str, Drift]
    """Events per user, labels bought and scores, since the training."""
    kept: Kept | None
    """What the model before this refresh promised against what was bought since."""
    edges: tuple[float, ...]
    """Of the tenths of scores at the first refresh, in log-odds; later ones are compared with them."""
    reasons: tuple[str, ...]
    verdict: str


def observe(
    known: KnownRun, new: NewEvents, moved: Moved, before: Model, after: Model, encoded: int, config: WatchConfig
) -> Record:
    """The record of a refresh that made `after` of `before`."""
    edges = _edges(known, before)
    drifts = _drifts(moved.seen, len(moved.trends)) | _scores(after, edges)
    unknown = new.unknown / max(1, new.unknown + len(new.events))
    judged = judge(before, moved.seen.since)
    why = drift.reasons(drifts, unknown, judged, config)
    days = (moved.last - known.trained_until) / DAY
    return Record(
        at=now(),
        until=_date(moved.last),
        trained_until=_date(known.trained_until),
        events=len(new.events),
        users=len(moved.users),
        encoded=encoded,
        new_users=len(set(after.users["user_id"]) - set(before.users["user_id"])),
        new_items=len(new.items) - len(known.items),
        new_labels=len(after.labels) - len(before.labels),
        late=new.late,
        left_out=new.left_out,
        unknown_items=round(unknown, 4),
        drifts=drifts,
        kept=judged,
        edges=edges,
        reasons=tuple(why),
        verdict=drift.verdict(why, drifts, days, config),
    )


def read(model: Artifact) -> list[Record]:
    """The records of all refreshes of a model, the first one first."""
    file = model.file(f"{LOG}/{RECORD}")
    return [Record.model_validate_json(line) for line in file.read_text("utf-8").splitlines()] if file.exists() else []


def append(model: Artifact, record: Record, folder: Path) -> list[Record]:
    """All records with this one behind, also on disk in the folder of the next version."""
    records = [*read(model), record]
    folder.mkdir(exist_ok=True)
    lines = "".join(f"{line.model_dump_json()}\n" for line in records)
    (folder / RECORD).write_text(lines, encoding="utf-8")
    return records


def judge(model: Model, bought: Period, fewest: int = SMALLEST_CELL) -> Kept | None:
    """What a model promised against purchases after its last event; None of fewer users than this."""
    visible = model.visible()
    place = IdIndex.of(visible.users["user_id"]).find(pl.Series(bought.buyers, dtype=pl.String))
    found = np.flatnonzero(place >= 0)
    found = np.sort(stream(0, "watch", "buyers").permutation(found)[:USERS])
    if len(found) < fewest:
        return None
    live = np.flatnonzero(model.labels.live_mask())
    truth = indicators(bought.gold.gather(found), len(model.labels)).tocsr()[:, live]
    bins, sums = Bins.empty(1), []
    for rows in _blocks(len(found), len(live)):
        chances, true = model.grid(visible.rows[place[found[rows]]], live), truth[rows].toarray() > 0
        bins.add(chances, true, np.zeros(chances.shape, np.int64))
        sums.append(_sums(chances, true))
    expected, observed, recall, loss = (np.concatenate(column) for column in zip(*sums, strict=True))
    table = bins.table([""])
    columns = table.select("low", "high", pl.col("pairs").cast(int), "promised", pl.col("true").cast(int)).rows()
    return drift.kept(expected, observed.astype(np.int64), recall, loss).model_copy(update={"bins": tuple(columns)})


def _sums(chances: NDArray[np.float64], true: NDArray[np.bool_]) -> tuple[NDArray[Any], ...]:
    """By user: labels expected and bought, recall of the ten best, and the mean log loss of a label."""
    best = np.argpartition(-chances, min(10, chances.shape[1]) - 1, axis=1)[:, :10]
    hits, bought = np.take_along_axis(true, best, axis=1).sum(axis=1), true.sum(axis=1)
    safe = np.clip(chances, 1e-12, 1 - 1e-12)
    loss = -np.log(np.where(true, safe, 1 - safe)).mean(axis=1)
    return chances.sum(axis=1), bought, hits / np.maximum(bought, 1), loss


def _drifts(seen: SeenEvents, labels: int) -> dict[str, Drift]:
    """Of events per user and labels bought; nothing where nothing came since, or of too few."""
    before, since = seen
    if min(len(before.buyers), len(since.buyers)) < SMALLEST_CELL:
        return {}
    counts = [np.bincount(part.gold.values, minlength=labels) for part in seen]
    return {
        "events": drift.psi(drift.per_user(before.events), drift.per_user(since.events)),
        "labels": drift.labels(counts[0], counts[1], (len(before.buyers), len(since.buyers))),
    }


def _edges(known: KnownRun, model: Model) -> tuple[float, ...]:
    """Of the tenths of scores that later ones are compared with: those of the model that was trained."""
    if records := read(known.model):
        return records[0].edges
    scores = _best(model)
    quantiles = np.quantile(scores, np.linspace(0, 1, TENTHS + 1)[1:-1]) if len(scores) else np.zeros(TENTHS - 1)
    return tuple(quantiles.tolist())


def _scores(model: Model, edges: Sequence[float]) -> dict[str, Drift]:
    """Of the scores of users for their best labels, against a tenth of all between two edges."""
    scores = _best(model)
    if len(scores) < SMALLEST_CELL:
        return {}
    counts = np.bincount(np.searchsorted(edges, scores, side="right"), minlength=TENTHS)
    even = np.full(TENTHS, len(scores) / TENTHS)
    return {"scores": drift.psi(even, counts)}


def _best(model: Model) -> NDArray[np.float64]:
    """Of some users: the mean log-odds of their ten best labels."""
    rows = np.sort(stream(0, "watch", "scores").permutation(model.visible().rows)[:USERS])
    live, parts = np.flatnonzero(model.labels.live_mask()), [np.zeros(0)]
    for block in _blocks(len(rows), len(live)):
        best = np.sort(model.grid(rows[block], live), axis=1)[:, -10:]
        parts.append((np.log(best) - np.log1p(-best)).mean(axis=1))
    return np.concatenate(parts)


def _blocks(users: int, labels: int) -> list[Ints]:
    return np.array_split(np.arange(users), max(1, -(-users * labels // GRID))) if users else []


def _date(milliseconds: int) -> str:
    return f"{datetime.fromtimestamp(milliseconds / 1000, UTC):%Y-%m-%d}"
