"""Who belongs to which arm: by a salted hash of the user's id and by nothing else.

    arms = {"holdout": 0.1, "expert": 0.45, "merit": 0.45}
    arm_of(user_ids, arms, salt="spring-2026")

An arm is a stretch of the unit interval, in the given order. The same user gets the same arm on every machine and in
every later call, whatever the other users are. A new salt shuffles all users again, so that those of an earlier
campaign are spread evenly over the arms of the next. An arm that grows at the end of its stretch keeps its users: put
the holdout first.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import polars as pl
from scipy.special import chdtrc

from merit.core.seeds import stable_hash, unit_interval


def arm_of(user_ids: pl.Series, arms: Mapping[str, float], salt: str) -> pl.Series:
    """The arm of each user, by shares that add up to one."""
    place = unit_interval(stable_hash(user_ids.to_list(), salt))
    ends = np.cumsum(list(arms.values()))[:-1]  # the last arm takes all that is left, whatever rounding does
    return pl.Series("arm", np.searchsorted(ends, place, side="right").astype(np.uint8)).cat.to(pl.Enum(list(arms)))


def with_arms(frame: pl.LazyFrame, user: str, arms: Mapping[str, float], salt: str) -> pl.LazyFrame:
    """The same, lazily and in batches: for more users than fit in memory."""
    named = pl.Enum(list(arms))
    chosen = pl.col(user).map_batches(lambda ids: arm_of(ids, arms, salt), return_dtype=named, is_elementwise=True)
    return frame.with_columns(chosen.alias("arm"))


def sample_ratio(users: Mapping[str, int], arms: Mapping[str, float]) -> float:
    """Probability of counts at least this far from their shares if users were assigned as planned (χ²).

    A tiny one says that users were lost or added after the assignment, and not alike in all arms. No analysis can
    mend that.
    """
    counts = np.array([users.get(name, 0) for name in arms], dtype=np.float64)
    expected = counts.sum() * np.array(list(arms.values()))
    misfit = float((((counts - expected) ** 2) / expected).sum())
    return float(chdtrc(len(arms) - 1, misfit))
