"""The fast builder against a slow twin that reads like the definition."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from merit.data.examples import DAY, ExamplesConfig, build_examples, history_window, reversed_window
from merit.data.prepare import SplitConfig, assign_users
from merit.data.schema import EVENTS

Row = dict[str, Any]
Offer = tuple[int, list[int], list[int]]


def shard(rows: list[Row], people: int = 4) -> tuple[pl.DataFrame, pl.DataFrame]:
    users = assign_users(pl.Series("user_id", [f"u{n}" for n in range(people)]), SplitConfig(), 7, 1)
    schema = {
        "user": pl.UInt32,
        "item": pl.UInt32,
        "timestamp": pl.Datetime("ms", "UTC"),
        "event": EVENTS,
        "order_id": pl.String,
    }
    events = pl.DataFrame(rows, schema=schema).sort("user", "timestamp", "item", "event", "order_id")
    return events, users


def slow_targets(events: list[Row], config: ExamplesConfig, tagged: np.ndarray) -> list[tuple[int, tuple[int, ...]]]:
    """All (time, items) that a user's events offer as targets."""
    bought = [row for row in events if row["event"] == "purchase" and tagged[row["item"]]]
    if config.target == "purchase":
        return [(row["timestamp"], (row["item"],)) for row in bought]
    if config.target == "window":
        span = config.window_days * DAY
        times = sorted({row["timestamp"] for row in bought})
        return [(t, tuple(r["item"] for r in bought if t <= r["timestamp"] < t + span)) for t in times]
    orders: dict[object, list[Row]] = {}
    for row in bought:
        orders.setdefault(row["order_id"] if row["order_id"] is not None else ("at", row["timestamp"]), []).append(row)
    return [(min(r["timestamp"] for r in rows), tuple(r["item"] for r in rows)) for rows in orders.values()]


def before(t: int, at: int, config: ExamplesConfig) -> bool:
    return t - config.history_days * DAY <= at < t - config.gap_days * DAY


def after(t: int, at: int, config: ExamplesConfig) -> bool:
    """Behind the last moment that may be part of the target, and then as far as `before`, in the other direction."""
    end = t + config.window_days * DAY if config.target == "window" else t
    return end + config.gap_days * DAY < at <= end + config.history_days * DAY


def slow_offers(
    events: list[Row],
    config: ExamplesConfig,
    tagged: np.ndarray,
    seen: Callable[[int, int, ExamplesConfig], bool] = before,
) -> list[Offer]:
    """Every example a user could give: (time, history items, target items), unordered."""
    found = []
    for t, items in slow_targets(events, config, tagged):
        history = [row["item"] for row in events if seen(t, row["timestamp"], config)]
        if len(history) >= config.min_history:
            found.append((t, sorted(history), sorted(items)))
    return sorted(found)


def fast_examples(events: pl.DataFrame, built: pl.DataFrame) -> list[Any]:
    times = built["timestamp"].to_physical().to_list()
    found = []
    for t, row in zip(times, built.iter_rows(named=True), strict=True):
        history = events["item"][row["history_start"] : row["history_stop"]]
        found.append((row["user"], t, sorted(history), sorted(row["target_items"])))
    return found


HOURS = 3_600_000
moments = st.one_of(
    st.integers(0, 500 * 24).map(lambda hour: hour * HOURS),
    # Whole weeks and years, give or take a millisecond: everything meets the boundary.
    st.builds(lambda days, off: days * DAY + off, st.sampled_from([0, 7, 14, 365, 372, 379]), st.integers(-1, 1)),
)
rows = st.lists(
    st.fixed_dictionaries(
        {
            "user": st.integers(0, 3),
            "item": st.integers(0, 5),
            "timestamp": moments.map(lambda at: at + 1_600_000_000_000),
            "event": st.sampled_from(EVENTS.categories.to_list()),
            "order_id": st.sampled_from([None, "a", "b"]),
        }
    ),
    max_size=40,
)
configs = st.builds(
    ExamplesConfig,
    target=st.sampled_from(["purchase", "order", "window"]),
    min_history=st.integers(1, 3),
    gap_days=st.sampled_from([0, 7]),
    per_train_user=st.sampled_from([1, 2, 100]),
    pick=st.sampled_from(["random", "last"]),
)


@given(rows, configs)
@settings(max_examples=300, deadline=None)
def test_fast_builder_equals_the_definition(rows: list[Row], config: ExamplesConfig) -> None:
    events, users = shard(rows)
    tagged = np.array([True, True, True, True, True, False])
    got = fast_examples(events, build_examples(events, users, tagged, config, seed=7))
    plain = events.with_columns(pl.col("timestamp").to_physical()).to_dicts()
    for user, split in users.select("user", "split").iter_rows():
        offers = slow_offers([row for row in plain if row["user"] == user], config, tagged)
        mine = [example[1:] for example in got if example[0] == user]
        limit = config.per_train_user if split == "train" else config.per_test_user
        assert len(mine) == min(limit, len(offers))
        remaining = list(offers)
        for example in mine:
            remaining.remove(example)  # each is a real offer, and none is used twice
        if config.pick == "last" and mine:
            assert min(t for t, *_ in mine) >= max([t for t, *_ in remaining], default=0)


@given(
    rows, configs, st.sampled_from([(history_window, before), (reversed_window, after)]), st.sampled_from([1, 3, 100])
)
@settings(max_examples=300, deadline=None)
def test_training_users_give_what_the_window_holds(
    rows: list[Row], config: ExamplesConfig, sides: tuple[Any, Any], most: int
) -> None:
    events, users = shard(rows)
    window, seen = sides
    tagged = np.array([True, True, True, True, True, False])
    got = fast_examples(events, build_examples(events, users, tagged, config, 7, window, most))
    plain = events.with_columns(pl.col("timestamp").to_physical()).to_dicts()
    for user, split in users.select("user", "split").iter_rows():
        offers = slow_offers([row for row in plain if row["user"] == user], config, tagged, seen)
        mine = [example[1:] for example in got if example[0] == user]
        assert len(mine) == (min(most, len(offers)) if split == "train" else 0)
        for example in mine:
            offers.remove(example)


def test_hindsight_is_history_with_time_read_backwards() -> None:
    rng, config = np.random.default_rng(3), ExamplesConfig(min_history=1)
    times = rng.integers(0, 60, 25).cumsum() * DAY // 4
    row = {"user": 0, "event": "purchase", "order_id": None}
    forth, _ = shard([row | {"item": n % 6, "timestamp": t} for n, t in enumerate(times.tolist())], people=1)
    back, _ = shard([row | {"item": n % 6, "timestamp": int(-t)} for n, t in enumerate(times.tolist())], people=1)
    users = pl.DataFrame({"user": [0], "hash": pl.Series([5], dtype=pl.UInt64), "split": ["train"]})
    every = np.ones(6, dtype=bool)
    one = build_examples(forth, users, every, config, 7, reversed_window, 100)
    other = build_examples(back, users, every, config, 7, history_window, 100)
    mirrored = sorted((user, -t, *rest) for user, t, *rest in fast_examples(back, other))
    assert mirrored and sorted(map(tuple, fast_examples(forth, one))) == mirrored


@given(rows, configs)
@settings(max_examples=100, deadline=None)
def test_no_event_at_or_after_the_gap_is_in_a_history(rows: list[Row], config: ExamplesConfig) -> None:
    events, users = shard(rows)
    built = build_examples(events, users, np.ones(6, dtype=bool), config, seed=7)
    for row in built.iter_rows(named=True):
        seen = events[row["history_start"] : row["history_stop"]]
        assert (seen["user"] == row["user"]).all()
        t = row["timestamp"].timestamp() * 1000
        assert (seen["timestamp"].to_physical() < t - config.gap_days * DAY).all()
        assert (seen["timestamp"].to_physical() >= t - config.history_days * DAY).all()


def test_the_window_is_the_papers() -> None:
    low, high = history_window(np.array([400 * DAY]), ExamplesConfig())
    assert (low[0], high[0]) == (35 * DAY, 393 * DAY)


def test_other_users_never_change_a_users_examples() -> None:
    def events_of(user: int) -> list[Row]:
        base = 1_600_000_000_000
        return [
            {"user": user, "item": n % 6, "timestamp": base + n * 3 * DAY, "event": "purchase", "order_id": None}
            for n in range(60)
        ]

    config = ExamplesConfig(per_train_user=3)
    many, users = shard([row for user in range(4) for row in events_of(user)])
    few, _ = shard(events_of(2))
    all_tagged = np.ones(6, dtype=bool)
    with_others = [
        example
        for example in fast_examples(many, build_examples(many, users, all_tagged, config, 7))
        if example[0] == 2
    ]
    alone = fast_examples(few, build_examples(few, users, all_tagged, config, 7))
    assert with_others == alone
    assert alone


@pytest.mark.parametrize("target", ["purchase", "order", "window"])
def test_no_events_give_no_examples(target: Any) -> None:
    events, users = shard([])
    assert len(build_examples(events, users, np.ones(6, dtype=bool), ExamplesConfig(target=target), 7)) == 0
