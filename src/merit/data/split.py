"""Who is who: a user belongs to one split and one shard for ever, by a hash of the id and by nothing else."""

from __future__ import annotations

import numpy as np
import polars as pl
from pydantic import Field, model_validator

from merit.core.config import Frozen
from merit.core.seeds import USER_SALT, derive, stable_hash, unit_interval
from merit.core.types import Split

SPLITS: tuple[Split, ...] = ("train", "validation", "test")


class SplitConfig(Frozen):
    """Shares of the users that are held out; all others are trained on."""

    validation: float = Field(0.1, ge=0, lt=1)
    test: float = Field(0.2, ge=0, lt=1)
    """Larger than usual: intervals over test users are the product here, and public shops are small."""
    users: int | None = Field(None, ge=2, exclude_if=lambda users: users is None)
    """So many users for training and validation, by their hash; of the others only those of the test stay. It is what a
    small shop would get, measured on as many users as ever."""

    @model_validator(mode="after")
    def _leaves_training_users(self) -> SplitConfig:
        if self.validation + self.test >= 1:
            raise ValueError("validation + test leave no users to train on; together they must be below 1")
        return self


def assign_users(user_ids: pl.Series, config: SplitConfig, seed: int, shards: int) -> pl.DataFrame:
    """A row per user, ordered by shard and id: user_id, hash, split, shard, and `user`, its number within the shard."""
    hashes = stable_hash(user_ids.to_list(), USER_SALT)
    place = unit_interval(derive(hashes, seed, "split"))
    split = np.where(place < config.test, 2, np.where(place < config.test + config.validation, 1, 0))
    kept, lots = split == 2, derive(hashes, seed, "learners")
    learners = np.flatnonzero(~kept)
    kept[learners[np.argsort(lots[learners])[: config.users]]] = True
    return (
        pl.DataFrame(
            {
                "user_id": user_ids,
                "hash": hashes,
                "split": pl.Series(split.astype(np.uint8)).cat.to(pl.Enum(SPLITS)),
                "shard": (derive(hashes, 0, "shard") % np.uint64(shards)).astype(np.uint16),
            }
        )
        .filter(kept)
        .sort("shard", "user_id")
        .with_columns(user=pl.int_range(pl.len(), dtype=pl.UInt32).over("shard"))
    )
