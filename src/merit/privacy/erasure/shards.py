"""Examples without some users. Users are numbers within a shard and histories are ranges of rows: both move up."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import numpy as np
import polars as pl
from numpy.typing import NDArray

from merit.core.artifacts import Artifact
from merit.core.types import Ints
from merit.data.split import SPLITS

NAMES = ("users", "events", "examples")
COUNTS, QUARANTINE = "item_counts.parquet", "quarantine.parquet"


def files_of(number: int) -> tuple[str, ...]:
    """The users, events and examples of a shard, in this order."""
    return tuple(f"{name}-{number:05}.parquet" for name in NAMES)


def erased_users(examples: Artifact, number: int, users: frozenset[str]) -> pl.DataFrame:
    """user_id, user, split of those of a shard."""
    table = pl.scan_parquet(examples.file(files_of(number)[0]))
    return table.filter(pl.col("user_id").is_in(list(users))).select("user_id", "user", "split").collect()


def held(examples: Artifact, number: int, gone: pl.DataFrame) -> Counter[str]:
    """Rows of these users in a shard, by file and, of examples, by split."""
    _, events, built = (pl.scan_parquet(examples.file(name)) for name in files_of(number))
    theirs = pl.col("user").is_in(gone["user"].to_list())
    rows = int(events.filter(theirs).select(pl.len()).collect().item())
    splits = built.filter(theirs).select("split").collect()["split"].cast(pl.String)
    by_split = {split: int((splits == split).sum()) for split in SPLITS}
    return Counter({"users": len(gone), "events": rows, "examples": len(splits)} | by_split)


def write_without(examples: Artifact, number: int, gone: pl.DataFrame, out: Path) -> None:
    """The three files of a shard."""
    users, events, built = (pl.read_parquet(examples.file(name)) for name in files_of(number))
    stay = ~np.isin(np.arange(len(users)), gone["user"].to_numpy())
    here = stay[events["user"].to_numpy()]
    moved_users, moved_rows = _moved(stay), _moved(here)
    told = built.filter(pl.Series(stay[built["user"].to_numpy()]))
    frames = (
        users.filter(pl.Series(stay)).with_columns(_column(users, "user", moved_users[np.flatnonzero(stay)])),
        events.filter(pl.Series(here)).with_columns(
            _column(events, "user", moved_users[events["user"].to_numpy()[here]])
        ),
        told.with_columns(
            _column(told, "user", moved_users[told["user"].to_numpy()]),
            *(_column(told, name, moved_rows[told[name].to_numpy()]) for name in ("history_start", "history_stop")),
        ),
    )
    for name, frame in zip(files_of(number), frames, strict=True):
        frame.write_parquet(out / name)


def training_counts(examples: Artifact, gone: dict[int, pl.DataFrame], items: int) -> Ints:
    """How often those of these users who are for training met each item."""
    counts = np.zeros(items, dtype=np.int64)
    for number, users in ((number, users) for number, users in gone.items() if len(users)):
        training = users.filter(pl.col("split") == SPLITS[0])["user"].to_list()
        events = pl.scan_parquet(examples.file(files_of(number)[1])).filter(pl.col("user").is_in(training))
        counts += np.bincount(events.select("item").collect()["item"].to_numpy(), minlength=items)
    return counts


def quarantined(file: Path, users: frozenset[str]) -> tuple[Ints, frozenset[str]]:
    """Rows of a quarantine that are of these users, and who of them is there; ids are read as `prepare` reads them."""
    original = pl.read_parquet(file, columns=["original"])["original"]
    ids = original.str.json_path_match("$.user_id").str.strip_chars().str.replace(r"^(\d+)\.0$", "${1}")
    theirs = ids.is_in(list(users)).fill_null(False)
    return np.flatnonzero(theirs.to_numpy()), frozenset(ids.filter(theirs))


def _moved(stay: NDArray[np.bool_]) -> Ints:
    """Where each row is when only those that stay are left; with one place more, for the end of a range."""
    return np.concatenate([[0], np.cumsum(stay)]).astype(np.int64)


def _column(frame: pl.DataFrame, name: str, values: Ints) -> pl.Series:
    return pl.Series(name, values, dtype=pl.Int64).cast(frame.schema[name])
