"""From a user's sorted events to examples: what was known a week before a purchase, and what was bought.

Events are sorted by user and time, so a history is a contiguous run of rows: an example stores where it starts and
stops, never a copy. The time boundary lives in `history_window` and nowhere else; `reversed_window` is its mirror
image, for examples that never make a prompt.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

import numpy as np
import polars as pl
from numpy.typing import NDArray
from pydantic import Field

from merit.core.config import Frozen
from merit.core.ragged import column_lists, list_column, ranges
from merit.core.seeds import derive, mix
from merit.core.types import SPLITS, Ints

DAY = 86_400_000  # milliseconds, the unit of every timestamp here
Target = Literal["purchase", "order", "window"]


class ExamplesConfig(Frozen):
    """Which purchases become examples, and how much of the time before them may be seen."""

    target: Target = "purchase"
    """What is predicted: the labels of one purchase (the paper), of its whole order, or of all that is bought
    within `window_days` from it."""
    history_days: int = Field(365, ge=1)
    gap_days: int = Field(7, ge=0)
    """Scores are computed ahead of time in production, and the last days before a purchase give it away."""
    window_days: int = Field(30, ge=1)
    min_history: int = Field(3, ge=1)
    """Events; with fewer there is nothing to learn from."""
    per_train_user: int = Field(8, ge=1)
    per_test_user: int = Field(1, ge=1)
    """One: users are the unit of every interval, and a heavy buyer counts as one user. Validation is like test."""
    pick: Literal["random", "last"] = "random"
    """Which purchases of a user become examples. "last" puts all of them at the end of the data's span."""


Window = Callable[[Ints, ExamplesConfig], tuple[Ints, Ints]]


def history_window(t: Ints, config: ExamplesConfig) -> tuple[Ints, Ints]:
    """The half-open interval [t - 365 d, t - 7 d) of times that a prediction for a purchase at t may see."""
    return t - config.history_days * DAY, t - config.gap_days * DAY


def reversed_window(t: Ints, config: ExamplesConfig) -> tuple[Ints, Ints]:
    """The same with time read backwards: (t + 7 d, t + 365 d], as a half-open interval behind all of the target.

    What goes with what is nearly the same in either direction, so that this teaches it too. It is never a prompt.
    """
    end = t + (config.window_days * DAY if config.target == "window" else 0)
    return end + config.gap_days * DAY + 1, end + config.history_days * DAY + 1


@dataclass(frozen=True)
class Candidates:
    """Purchases that could become examples, sorted by user."""

    user: NDArray[np.uint32]
    time: Ints
    first: Ints  # where the rows of the target start, in `rows`
    last: Ints  # and stop
    rows: NDArray[np.integer]  # of the events, target after target


def build_examples(
    events: pl.DataFrame,
    users: pl.DataFrame,
    tagged: NDArray[np.bool_],
    config: ExamplesConfig,
    seed: int,
    window: Window = history_window,
    most: int | None = None,
) -> pl.DataFrame:
    """Purchases of each user in one shard, with what is within the window of each.

    `events`: user, item, timestamp, event, order_id, sorted by user and timestamp. `users`: user, hash, split, in
    order of user. `tagged`: by item, whether it has a tag at all (a target without labels teaches nothing). `most`:
    as many purchases of each training user and none of others, instead of the limits of the settings.
    """
    limits = (config.per_train_user, config.per_test_user) if most is None else (most, 0)
    limit = np.where((users["split"] == SPLITS[0]).to_numpy(), *limits)
    bought = _candidates(events, tagged, config)
    start, stop = _spans(events, bought, window, config)
    eligible = np.flatnonzero(stop - start >= config.min_history)
    chosen = eligible[_pick(bought.user[eligible], users["hash"].to_numpy(), limit, config, seed)]
    return _table(events, bought, start, stop, chosen).insert_column(1, users["split"].gather(bought.user[chosen]))


def current_histories(events: pl.DataFrame, users: pl.DataFrame, end: int, config: ExamplesConfig) -> pl.DataFrame:
    """What is known of every user at the end of the data: examples without a target.

    They stand a gap before the purchases they foresee, as those of training do, so they see all events before `end`
    (milliseconds). Users with too short a history are left out.
    """
    all_users, nothing = users["user"].to_numpy(), np.zeros(len(users), dtype=np.int64)
    foreseen = Candidates(all_users, np.full(len(all_users), end + config.gap_days * DAY), nothing, nothing, nothing)
    start, stop = _spans(events, foreseen, history_window, config)
    return _table(events, foreseen, start, stop, np.flatnonzero(stop - start >= config.min_history))


def _spans(events: pl.DataFrame, bought: Candidates, window: Window, config: ExamplesConfig) -> tuple[Ints, Ints]:
    """By candidate: the first row of its history, and the first behind it."""
    user, time = events["user"].to_numpy(), events["timestamp"].to_physical().to_numpy()
    low, high = window(bought.time, config)
    return _first_row(user, time, bought.user, low), _first_row(user, time, bought.user, high)


def _table(events: pl.DataFrame, bought: Candidates, start: Ints, stop: Ints, chosen: Ints) -> pl.DataFrame:
    """A row for each chosen candidate."""
    targets, sizes = ranges(bought.first[chosen], bought.last[chosen])
    return pl.DataFrame(
        {
            "user": bought.user[chosen],
            "timestamp": pl.Series(bought.time[chosen]).cast(pl.Datetime("ms", "UTC")),
            "history_start": start[chosen].astype(np.uint64),
            "history_stop": stop[chosen].astype(np.uint64),
            "target_items": list_column(events["item"].to_numpy()[bought.rows[targets]], sizes),
        }
    )


def _candidates(events: pl.DataFrame, tagged: NDArray[np.bool_], config: ExamplesConfig) -> Candidates:
    bought = (events["event"] == "purchase").to_numpy() & tagged[events["item"].to_numpy()]
    rows = np.flatnonzero(bought)
    user, time = events["user"].to_numpy()[rows], events["timestamp"].to_physical().to_numpy()[rows]
    numbers = np.arange(len(rows), dtype=np.int64)
    if config.target == "purchase":
        return Candidates(user, time, numbers, numbers + 1, rows)
    if config.target == "order":
        return _orders(events, rows)
    fresh = np.ones(len(rows), dtype=bool)  # one window per distinct time of purchase
    fresh[1:] = (user[1:] != user[:-1]) | (time[1:] != time[:-1])
    at = numbers[fresh]
    end = _first_row(user, time, user[at], time[at] + config.window_days * DAY)
    return Candidates(user[at], time[at], at, end, rows)


def _orders(events: pl.DataFrame, rows: Ints) -> Candidates:
    """Purchases of one order together; without an order number, what a user bought at one moment is one order."""
    bought = events[rows].select("user", "timestamp", "order_id").with_columns(row=pl.Series(rows))
    moment = pl.when(pl.col("order_id").is_null()).then(pl.col("timestamp"))
    orders = (
        bought.group_by("user", "order_id", moment.alias("moment"))
        .agg(pl.col("timestamp").min(), pl.col("row").sort())
        .sort("user", "timestamp", pl.col("row").list.first())
    )
    user, time, flat = (
        orders["user"].to_numpy(),
        orders["timestamp"].to_physical().to_numpy(),
        column_lists(orders["row"]),
    )
    return Candidates(user, time, flat.offsets[:-1], flat.offsets[1:], flat.values)


def _first_row(user: NDArray[np.uint32], time: Ints, of_user: NDArray[np.uint32], at: Ints) -> Ints:
    """For each (user, moment), the first row of that user at or after the moment. Rows are sorted by user and time.

    User and time are joined into one sorted number, so that all look-ups are one binary search in C.
    """
    if not len(user):
        return np.zeros(len(at), dtype=np.int64)
    earliest = int(time.min())
    span = int(time.max()) - earliest + 2  # one more than any real time, so that "after the last" stays in its user
    if (int(user[-1]) + 1) * span >= 2**63:
        raise OverflowError("too many users in one shard for the time they span; use more shards")
    keys = user.astype(np.int64) * span + (time - earliest)
    wanted = of_user.astype(np.int64) * span + np.clip(at - earliest, 0, span - 1)
    return np.searchsorted(keys, wanted, side="left").astype(np.int64)


def _pick(user: NDArray[np.uint32], hashes: NDArray[np.uint64], limit: Ints, config: ExamplesConfig, seed: int) -> Ints:
    """At most `limit[user]` candidates of each user, at random or the latest; in the order they came.

    The random key of a candidate depends on its user's hash and on its number among that user's candidates only, so
    other users never change it.
    """
    number = np.arange(len(user)) - np.searchsorted(user, user)  # users are sorted
    keys = mix(derive(hashes, seed, "examples")[user], number.astype(np.uint64))
    order = np.lexsort((keys if config.pick == "random" else -number, user))
    return np.sort(order[number < limit[user]])  # the order keeps users where they are
