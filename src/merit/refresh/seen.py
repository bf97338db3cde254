"""What users bought in the days since the last refresh, and in as many days before the end of the training."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np
import polars as pl
from numpy.typing import NDArray

from merit.core.ragged import Ragged, stacked
from merit.core.types import Ints
from merit.data.examples import DAY, ExamplesConfig, build_examples
from merit.data.labelled import label_histories
from merit.refresh.known import KnownRun, KnownShard

LONGEST = 28  # days that are compared: a shop that waits for a year with its refreshes has other seasons in it


class Period(NamedTuple):
    """Users who were there before some days: how many events each had in them, and a purchase of those who bought."""

    events: Ints  # (users,)
    buyers: list[str]
    gold: Ragged
    """By buyer: the labels of one purchase, drawn by the user's hash."""


class SeenEvents(NamedTuple):
    """The days that are compared; empty where there are none since."""

    before: Period
    """At the end of the training."""
    since: Period


@dataclass
class Purchases:
    """Collects both, shard by shard."""

    known: KnownRun
    last: int
    """The end of the log."""
    item_labels: Ragged
    _parts: list[tuple[Period, Period]] = field(default_factory=list)

    @property
    def span(self) -> int:
        """Milliseconds that are compared."""
        return min(self.last - self.known.last, LONGEST * DAY)

    def add(self, shard: KnownShard) -> None:
        """The users of a shard."""
        ends = self.known.trained_until, self.known.last + self.span
        before, since = (self._bought(shard, end - self.span, end) for end in ends)
        self._parts.append((before, since))

    def seen(self) -> SeenEvents:
        """Of all shards."""
        return SeenEvents(*(_joined(parts) for parts in zip(*self._parts, strict=True)))

    def _bought(self, shard: KnownShard, start: int, end: int) -> Period:
        """Of users with an event before `start`: what is in (start, end]."""
        times, users = shard.events["timestamp"].to_physical().to_numpy(), shard.events["user"].to_numpy()
        within = (times > start) & (times <= end)
        there = np.bincount(users[times <= start], minlength=len(shard.users)) > 0
        counts = np.bincount(users[within], minlength=len(shard.users))[there]
        events = shard.events.filter(pl.Series(within & there[users]))
        chosen = build_examples(events, shard.users, self._tagged, self._one, self.known.seed, _all_before)
        rows = label_histories(shard.users, events, chosen, self.item_labels)
        return Period(counts, list(rows.user_ids), rows.gold)

    @property
    def _tagged(self) -> NDArray[np.bool_]:
        return self.item_labels.lengths() > 0

    @property
    def _one(self) -> ExamplesConfig:
        """One purchase of each user, whatever else is known of them."""
        return self.known.config.model_copy(update={"per_train_user": 1, "per_test_user": 1, "min_history": 1})


def _all_before(t: Ints, config: ExamplesConfig) -> tuple[Ints, Ints]:
    """A window of everything up to the purchase, which is itself in it: none is left out for want of a history."""
    return np.zeros_like(t), t + 1


def _joined(parts: tuple[Period, ...]) -> Period:
    buyers = [user for part in parts for user in part.buyers]
    return Period(np.concatenate([part.events for part in parts]), buyers, stacked([part.gold for part in parts]))
