"""The users of a refreshed model: who is encoded again, and who keeps every bit."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np
import polars as pl
from numpy.typing import NDArray

from merit.core import console, files
from merit.core.artifacts import Artifact
from merit.core.ids import IdIndex
from merit.core.ragged import Ragged, column_lists, owners
from merit.core.types import Floats, Ints
from merit.retrieval import store
from merit.retrieval.build import write_side
from merit.retrieval.encode import HistoryEncoder
from merit.retrieval.exact import Exact

BLOCK = 8_192  # users encoded at a time
LISTS = ("history", "counts", "items")
LIKELY = ("likely", "likely_scores")


@dataclass(frozen=True)
class Recoded:
    """Users as a model stores them."""

    table: pl.DataFrame
    vectors: Floats
    encoded: int
    """How many were encoded."""


def write_users(model: Artifact, histories: pl.DataFrame, encoder: HistoryEncoder, everyone: bool, out: Path) -> int:
    """Write the users of the next version into its folder; how many had to be encoded."""
    exact = Exact.read(model.file("mlp.safetensors"))
    side, stored = store.read(model.file("users"), exact.users), pl.read_parquet(model.file("users.parquet"))
    recoded = recode(stored, side.vectors, histories, encoder, everyone)
    if not recoded.encoded and recoded.table.equals(stored):
        for name in ("users.parquet", *(name for name in model.manifest.files if name.startswith("users/"))):
            files.link(model.file(name), out / name)
        return 0
    recoded.table.rechunk().write_parquet(out / "users.parquet")
    write_side(out / "users", len(recoded.table), [recoded.vectors], exact.users)
    return recoded.encoded


def recode(
    stored: pl.DataFrame, vectors: store.Rows, histories: pl.DataFrame, encoder: HistoryEncoder, everyone: bool
) -> Recoded:
    """Histories with their vectors and likely labels: those stored where nothing has changed that is read."""
    place = IdIndex.of(stored["user_id"]).find(histories["user_id"])
    same = np.zeros(len(histories), bool) if everyone else _unchanged(stored, histories, place, encoder)
    kept, changed = np.flatnonzero(same), np.flatnonzero(~same)
    rows = np.empty((len(histories), vectors.values.shape[1]), np.float32)
    rows[kept] = vectors.take(place[kept])
    parts = [stored.select(LIKELY)[place[kept]].with_columns(row=pl.Series(kept, dtype=pl.Int64))]
    items, days = (column_lists(histories[name]) for name in ("items", "days"))
    for start in console.track(range(0, len(changed), BLOCK), "encoding users", total=-(-len(changed) // BLOCK)):
        block = changed[start : start + BLOCK]
        encoded = encoder.encode(items.gather(block), days.gather(block))
        rows[block] = encoded.vectors
        likely = pl.DataFrame(encoded.likely.columns(encoded.likely_weight))
        parts.append(likely.select(LIKELY).with_columns(row=pl.Series(block, dtype=pl.Int64)))
    table = pl.concat([histories, pl.concat(parts).sort("row").drop("row")], how="horizontal")
    return Recoded(table, rows, len(changed))


def _unchanged(
    stored: pl.DataFrame, histories: pl.DataFrame, place: Ints, encoder: HistoryEncoder
) -> NDArray[np.bool_]:
    """By user: whether what is stored has the same history, of the same age as far as that is read."""
    there = np.flatnonzero(place >= 0)
    pairs = [(column_lists(histories[name]), column_lists(stored[name])) for name in LISTS]
    pairs.append((encoder.ages(column_lists(histories["days"])), encoder.ages(column_lists(stored["days"]))))
    same = np.zeros(len(histories), bool)
    same[there] = True
    for new, old in pairs:
        same[there] &= _equal(new.gather(there), old.gather(place[there]))
    return same


def _equal(one: Ragged, other: Ragged) -> NDArray[np.bool_]:
    """(rows,): whether they have the same values."""
    equal: NDArray[np.bool_] = one.lengths() == other.lengths()
    rows = np.flatnonzero(equal)
    one, other = one.gather(rows), other.gather(rows)
    equal[rows] = np.bincount(owners(one), one.values != other.values, minlength=len(rows)) == 0
    return equal
