"""Raw tables → examples, at size: memory, and rate against a plain pandas groupby.

    python -m benchmarks.data            # 20 million interactions of 1 million users
    python -m benchmarks.data --quick    # 1 million of 50 thousand

Both sides do the same: read, sort, and for each user take the last purchase that has at least three events between
365 and 7 days before it, with that history and the tags of what was bought. pandas works on all events of a sample of
the users, and its examples are compared with ours one by one. With --data FOLDER the synthetic tables are kept there.
"""

from __future__ import annotations

import time
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
import pandas as pd
import polars as pl

from benchmarks import harness
from merit.core import artifacts
from merit.core.seeds import stream
from merit.data import prepare
from merit.data.sources import TablesSource

SEED = 7
EVENT_SHARES = {"view": 0.45, "click": 0.3, "cart": 0.1, "purchase": 0.15}
FILES = 10
CONFIG = prepare.PrepareConfig(pick="last", per_train_user=1, per_test_user=1)


def synthesise(folder: Path, rows: int, users: int, items: int) -> None:
    """A year and a half of events; some users and items are much busier than others."""
    (folder / "interactions").mkdir(parents=True)
    tags = [[f"tag {n % 997}", f"tag {n % 89}", f"tag {n % 13}"] for n in range(items)]
    names = {"item_id": [f"i{n}" for n in range(items)], "title": [f"product {n}" for n in range(items)]}
    pl.DataFrame(names | {"tags": tags, "vertical": [f"aisle {n % 20}" for n in range(items)]}).write_parquet(
        folder / "items.parquet"
    )
    for number in range(FILES):
        _events(rows // FILES, users, items, number).write_parquet(folder / f"interactions/{number:02}.parquet")


def _events(rows: int, users: int, items: int, number: int) -> pl.DataFrame:
    rng = stream(SEED, "events", number)
    start = 1_640_995_200_000
    kinds = rng.choice(len(EVENT_SHARES), rows, p=list(EVENT_SHARES.values())).astype(np.uint8)
    return pl.DataFrame(
        {
            "user": (users * rng.random(rows) ** 1.3).astype(np.uint32),
            "item": (items * rng.random(rows) ** 2).astype(np.uint32),
            "timestamp": pl.Series(start + rng.integers(0, 540 * 86_400_000, rows)).cast(pl.Datetime("ms", "UTC")),
            "event": pl.Series(kinds).cat.to(pl.Enum(list(EVENT_SHARES))).cast(pl.String),
        }
    ).select(pl.format("u{}", "user").alias("user_id"), pl.format("i{}", "item").alias("item_id"), "timestamp", "event")


def run_merit(folder: Path) -> None:
    source = TablesSource(kind="tables", interactions=folder / "interactions", items=folder / "items.parquet")
    prepare.prepare(folder / "examples", prepare.PrepareRun(source=source, prepare=CONFIG), SEED)


def run_pandas(folder: Path, user_ids: set[str]) -> tuple[pd.DataFrame, int, float]:
    """Examples of these users, the number of their rows, and the seconds it took (reading not counted)."""
    events = pd.read_parquet(folder / "interactions")
    events = events[events["user_id"].isin(user_ids)]
    items = pd.read_parquet(folder / "items.parquet")
    begin = time.perf_counter()
    events = events.merge(items[["item_id", "tags"]], on="item_id").sort_values(["user_id", "timestamp"])
    found = [example for user, group in events.groupby("user_id") if (example := _pandas_example(user, group))]
    frame = pd.DataFrame(found, columns=["user_id", "timestamp", "history", "target", "gold"])
    return frame, len(events), time.perf_counter() - begin


def _pandas_example(user: object, events: pd.DataFrame) -> tuple[object, ...] | None:
    bought = events[events["event"] == "purchase"]
    for _, purchase in bought.iloc[::-1].iterrows():
        t = purchase["timestamp"]
        seen = (events["timestamp"] >= t - pd.Timedelta(days=365)) & (events["timestamp"] < t - pd.Timedelta(days=7))
        history = events[seen]
        if len(history) >= CONFIG.min_history:
            return user, t, list(history["item_id"]), purchase["item_id"], list(purchase["tags"])
    return None


def merit_examples(folder: Path, user_ids: set[str]) -> pl.DataFrame:
    """Our examples of these users in pandas' form."""
    examples = artifacts.load(folder / "examples", "examples", verify=False)
    items = pl.read_parquet(examples.file("items.parquet"))
    parts = []
    for shard in prepare.shards(examples):
        people = shard.users.filter(pl.col("user_id").is_in(list(user_ids))).select("user", "user_id")
        built = shard.examples.join(people, on="user")
        seen = [
            items["item_id"].gather(shard.events["item"][start:stop]).to_list()
            for start, stop in built.select("history_start", "history_stop").iter_rows()
        ]
        bought = built["target_items"].list.first()
        parts.append(
            built.select("user_id", "timestamp").with_columns(
                history=pl.Series(seen, dtype=pl.List(pl.String)), target=items["item_id"].gather(bought)
            )
        )
    return pl.concat(parts).sort("user_id")


def same_examples(ours: pl.DataFrame, theirs: pd.DataFrame) -> bool:
    """User, time, target and history agree for every example (events at the same moment in any order)."""
    pairs = zip(ours.iter_rows(), theirs.sort_values("user_id").itertuples(index=False), strict=True)
    return all(
        a[0] == b.user_id and a[1] == b.timestamp and a[3] == b.target and sorted(a[2]) == sorted(b.history)
        for a, b in pairs
    )


def main() -> None:
    arguments = harness.parser(__doc__).parse_args()
    rows, users, items = (1_000_000, 50_000, 20_000) if arguments.quick else (20_000_000, 1_000_000, 100_000)
    with TemporaryDirectory() as temporary:
        folder = arguments.data or Path(temporary)
        if not (folder / "items.parquet").exists():
            synthesise(folder, rows, users, items)
        report(folder, rows, 2_000 if arguments.quick else 10_000)


def report(folder: Path, rows: int, sample: int) -> None:
    peak, seconds = harness.in_child(run_merit, folder)
    user_ids = {f"u{n}" for n in stream(SEED, "sample").choice(rows // 20, sample, replace=False)}
    theirs, their_rows, their_seconds = run_pandas(folder, user_ids)
    ours = merit_examples(folder, user_ids)
    figures = {
        "rows": rows,
        "peak_gib": round(peak, 2),
        "seconds": round(seconds, 1),
        "rows_per_second": round(rows / seconds),
        "pandas_rows": their_rows,
        "pandas_rows_per_second": round(their_rows / their_seconds),
        "speedup_vs_pandas": round((rows / seconds) / (their_rows / their_seconds), 1),
        "examples_compared": len(theirs),
        "same_examples": len(ours) == len(theirs) and same_examples(ours, theirs),
    }
    harness.finish("data", figures, SEED)


if __name__ == "__main__":
    harness.run(main)
