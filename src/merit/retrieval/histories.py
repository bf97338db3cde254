"""New histories on demand: events of users, stored or not, as rows that a model can answer about.

An event names an item by its id, or by its title where the id is unknown to the model; the title is read for labels.
What an answer rests on is told for each user: the history, titles alone, or nothing but popularity.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
import polars as pl
from numpy.typing import NDArray

from merit.core.artifacts import Artifact
from merit.core.errors import DataError
from merit.core.ids import IdIndex
from merit.core.ragged import Ragged, list_column, offsets_of
from merit.core.types import Ints
from merit.data import normalise, times
from merit.data.examples import DAY, ExamplesConfig
from merit.data.schema import INTERACTION_NAMES, ITEM_NAMES, matching
from merit.labels.mentions import words_of
from merit.retrieval.encode import HistoryEncoder, open_encoder
from merit.retrieval.query import QueryResolver

HISTORY, TITLES, POPULARITY = "history", "titles", "popularity"
NAMES = {name: INTERACTION_NAMES[name] for name in ("user_id", "item_id", "timestamp")} | {"title": ITEM_NAMES["title"]}
CLEAR = 0.25  # of the weight of a title: from there on, items that share its words tell what it is
NEAREST = 5  # such items are looked at
MOST_TITLE = 2_000  # characters


class NewUsers(NamedTuple):
    """Users as a model stores them, their vectors, and what answers about them rest on."""

    users: pl.DataFrame
    """user_id, history, counts, items, days."""
    vectors: NDArray[np.float32]
    rests_on: pl.DataFrame
    """user_id, rests_on (history, titles or popularity), events, known (items), read (titles)."""


@dataclass(frozen=True)
class HistoryReader:
    """Reads events for one model; opened once, it answers in milliseconds."""

    encoder: HistoryEncoder
    items: IdIndex
    titles: TitleReader
    last: int
    """The time of the model's last event, in milliseconds."""
    window: ExamplesConfig

    def read(self, events: pl.DataFrame, users: Sequence[str] | None = None) -> NewUsers:
        """`events` as `parse` gives them. `users` are all who are answered about; by default those with events."""
        ids = pl.Series(list(dict.fromkeys(users if users is not None else events["user_id"])), dtype=pl.String)
        if not len(ids):
            raise DataError("There are no events, and no users are named. Give users=[…] for those without a history.")
        user = IdIndex.of(ids).find(events["user_id"])
        if (user < 0).any():
            raise DataError(f"There are events of '{events['user_id'][int(user.argmin())]}', who is not among `users`.")
        items, at = self.items.find(events["item_id"]), events["timestamp"].to_numpy().astype(np.float64)
        timed = ~np.isnan(at)
        end = np.full(len(ids), self.last + 1)
        np.maximum.at(end, user[timed], at[timed] + 1)
        at = np.where(timed, at, end[user] - 1).astype(np.int64)
        foreseen = end + self.window.gap_days * DAY
        kept = np.flatnonzero(at >= foreseen[user] - self.window.history_days * DAY)
        order = kept[np.lexsort((items[kept], at[kept], user[kept]))]
        known, unknown = order[items[order] >= 0], order[items[order] < 0]
        item_lists = Ragged(offsets_of(np.bincount(user[known], minlength=len(ids))), items[known].astype(np.int32))
        days = ((foreseen[user[known]] - at[known]) // DAY).astype(np.int32)
        read = [self.titles.labels(title) for title in events["title"][unknown]]
        sizes = np.array([len(labels) for labels in read], np.int64)
        named_of = np.repeat(user[unknown], sizes)
        named = Ragged(
            offsets_of(np.bincount(named_of, minlength=len(ids))),
            np.concatenate([np.zeros(0, np.int32), *read]).astype(np.int32),
        )
        encoded = self.encoder.encode(item_lists, Ragged(item_lists.offsets, days), named)
        lists = {"history": encoded.history, "counts": Ragged(encoded.history.offsets, encoded.times)}
        lists |= {"items": item_lists, "days": Ragged(item_lists.offsets, days)}
        columns = {name: list_column(rows.values.astype(np.uint32), rows.lengths()) for name, rows in lists.items()}
        counts = {
            "events": np.bincount(user, minlength=len(ids)),
            "known": item_lists.lengths(),
            "read": np.bincount(user[unknown][sizes > 0], minlength=len(ids)),
        }
        rests = [
            HISTORY if known else TITLES if read else POPULARITY
            for known, read in zip(counts["known"].tolist(), counts["read"].tolist(), strict=True)
        ]
        return NewUsers(
            pl.DataFrame({"user_id": ids, **columns, **encoded.likely.columns(encoded.likely_weight)}),
            encoded.vectors,
            pl.DataFrame({"user_id": ids, "rests_on": rests, **counts}),
        )


def open_reader(model: Artifact, labels: Artifact, queries: QueryResolver) -> HistoryReader:
    """The reader of a model, over the label space that it was trained on."""
    items, summary = pl.read_parquet(model.file("items.parquet"), columns=["item_id"]), model.manifest.summary
    if "gap_days" not in summary:
        raise DataError(
            f"{model.path} does not say when its data ends: an older merit made it. Remove it, then `merit run`."
        )
    window = ExamplesConfig(history_days=summary["history_days"], gap_days=summary["gap_days"])
    encoder = open_encoder(model, labels)
    return HistoryReader(encoder, IdIndex.of(items["item_id"]), TitleReader(queries), int(summary["last"]), window)


@dataclass(frozen=True)
class TitleReader:
    """Reads the labels of an item that the model does not know from its title."""

    queries: QueryResolver

    def labels(self, title: str) -> NDArray[np.int32]:
        """Labels that the title names in full, and those of most of the items that share its rarer words."""
        words = set(words_of(pl.Series([title[:MOST_TITLE]]))["word"]) if title else set()
        if not words:
            return np.zeros(0, np.int32)
        having = [self._having[word] for word in sorted(words) if word in self._having]
        numbers, counts = np.unique(np.concatenate([np.zeros(0, np.int64), *having]), return_counts=True)
        named = numbers[(counts == self._sizes[numbers]) & self.queries.labels.live_mask()[numbers]]
        return np.union1d(named, self._of_similar_items(title)).astype(np.int32)

    def _of_similar_items(self, title: str) -> Ints:
        mentioned = self.queries.catalogue.mentions.of_text(title)
        best = np.argsort(-mentioned.weights, kind="stable")[:NEAREST]
        best = best[mentioned.weights[best] >= CLEAR]
        labels, sizes = self.queries.catalogue.labels.take(mentioned.items[best])
        weights = np.repeat(mentioned.weights[best], sizes)
        distinct, place = np.unique(labels, return_inverse=True)
        share = np.bincount(place, weights=weights, minlength=len(distinct)) / max(mentioned.weights[best].sum(), 1e-9)
        carried: Ints = distinct[share >= 0.5].astype(np.int64)
        return carried

    @cached_property
    def _words(self) -> pl.DataFrame:
        return words_of(pl.Series(self.queries.labels.texts)).unique(maintain_order=True)

    @cached_property
    def _having(self) -> dict[str, Ints]:
        """By word: the labels that have it."""
        grouped = self._words.group_by("word").agg("row")
        return {word: np.array(rows) for word, rows in grouped.iter_rows()}

    @cached_property
    def _sizes(self) -> Ints:
        """By label: how many words it has."""
        sizes: Ints = np.bincount(self._words["row"].to_numpy(), minlength=len(self.queries.labels))
        return sizes


def parse(events: pl.DataFrame) -> pl.DataFrame:
    """user_id, item_id, title and timestamp (milliseconds) of a table of events; usual names of columns are known."""
    columns = {ours: matching(events.columns, (ours, *theirs)) for ours, theirs in NAMES.items()}
    if columns["user_id"] is None or not (columns["item_id"] or columns["title"]):
        missing = "user_id" if columns["user_id"] is None else "item_id, nor for title"
        raise DataError(
            f"The events have no column for {missing}. Columns found: {', '.join(events.columns[:30]) or 'none'}. "
            "Rename them to user_id, item_id or title, and timestamp."
        )
    frame = events.lazy()
    parts: dict[str, pl.Expr] = {"user_id": normalise.identity(frame, str(columns["user_id"]), text=False)}
    item, title, at = (columns[name] for name in ("item_id", "title", "timestamp"))
    nothing = pl.lit("")
    parts["item_id"] = normalise.identity(frame, item, text=False).fill_null("") if item else nothing
    parts["title"] = normalise.tidy(pl.col(title).cast(pl.String)).fill_null("") if title else nothing
    parts["timestamp"] = _instants(at, events.schema[at]) if at else pl.lit(None, pl.Int64)
    parsed = events.select(**parts)
    if parsed["user_id"].null_count():
        raise DataError(f"Row {int(parsed['user_id'].is_null().arg_true()[0]) + 1} of the events has no user.")
    if at:
        _check_times(parsed["timestamp"], events[at])
    return parsed


def _check_times(times: pl.Series, given: pl.Series) -> None:
    """Refuse what is no time, and what has not happened yet."""
    if times.null_count() > given.null_count():
        row = int((times.is_null() & given.is_not_null()).arg_true()[0])
        raise DataError(f"Row {row + 1} of the events: '{str(given[row])[:60]}' is not a time. Write ISO 8601.")
    latest = datetime.now(UTC) + timedelta(days=2)  # clocks and zones of senders may be off
    most = int(latest.timestamp() * 1000)
    if (times.max() or 0) > most:  # type: ignore[operator]
        row = int((times > most).arg_true()[0])
        raise DataError(f"Row {row + 1} of the events lies in the future, after {latest:%Y-%m-%d}.")


def _instants(column: str, dtype: Any) -> pl.Expr:
    if not times.readable(dtype):
        raise DataError(f"Column '{column}' of the events holds {dtype}, but times are needed. Convert it.")
    return times.instants(pl.col(column), dtype, "UTC").dt.epoch("ms")
