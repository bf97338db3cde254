"""Users who buy some products within a window: learnt with the model, and scored for all of its users.

    windows = model.windows
    window = windows.window(28, date(2027, 3, 1))
    windows.probabilities(wanted, window)              # (stored users,), `wanted` is a mask of items

All users are scored in blocks: beside what is known of their shopping, some bytes a user, memory holds one block.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
import polars as pl

from merit.core.artifacts import Artifact
from merit.core.errors import DataError, MissingArtifact
from merit.core.processes import cores
from merit.core.ragged import Ragged
from merit.core.types import Floats, Ints
from merit.data.corpus import WORDS, read_table
from merit.data.title_words import TitleWords
from merit.labels import space
from merit.labels.space import LabelSpace
from merit.propensity import hazard, windows
from merit.propensity.features import UserFeatures, no_states
from merit.propensity.hazard import Popularity, Window
from merit.propensity.purchases import Activity, Buyers, Mask, PurchaseHistories, Reals
from merit.propensity.windows import WindowConfig, WindowData, WindowModel
from merit.retrieval.encode import count_labels
from merit.retrieval.exact import ScorerWeights, map_threads, spans
from merit.retrieval.store import Rows

WINDOWS = "windows.json"
BLOCK = 16_384  # users scored at a time, by one thread
DIGITS = 10  # kept of a probability: the last ones differ between machines, and would shuffle ties
FACTOR = 2  # times the longest window that was learnt: hazards add up
FURTHEST = 90  # days from the end of the data to the first of a window


def learn_windows(
    users: pl.DataFrame,
    corpus: Artifact,
    label_space: LabelSpace,
    weights: ScorerWeights,
    label_vectors: Floats,
    encode: Callable[[Ragged], Floats] | None,
    config: WindowConfig,
    seed: int,
) -> WindowModel | None:
    """What audiences of a window are scored by, from windows before the end of the data."""
    if "bought" not in users.columns:
        return None  # an older merit made the corpus: views would be taken for purchases
    gap_days, items = corpus.manifest.summary["gap_days"], pl.read_parquet(corpus.file("items.parquet"))
    role = np.zeros(len(users), np.int64)
    for place, split in ((windows.CURVE, "validation"), (windows.CHECK, "test")):
        role[users["user_id"].is_in(read_table(corpus, split, "user_id")["user_id"].implode()).to_numpy()] = place

    def factors(histories: Ragged) -> Floats:
        if encode is None:  # a generator would have to read them
            return np.zeros((len(histories), len(weights.P_u)), np.float32)
        return np.asarray(encode(histories) @ weights.P_u.T)

    data = WindowData(
        purchases=windows.events_of(users, gap_days),
        events=windows.events_of(users, gap_days, purchases=False),
        role=role,
        item_labels=Ragged(*space.item_labels(label_space, items)),
        label_factors=label_vectors @ weights.P_e.T,
        factors=factors,
    )
    return windows.learn(data, config, seed)


def without_generator(scorer: Any, corpus: Artifact, label_space: LabelSpace) -> Callable[[Ragged], Floats]:
    """(users, width) of histories of items: what the standard preset knows of them without asking the generator."""
    catalogue = pl.read_parquet(corpus.file("items.parquet"))
    words = TitleWords.of(json.loads(corpus.file(WORDS).read_text(encoding="utf-8")), catalogue["title"])
    item_labels = Ragged(*space.item_labels(label_space, catalogue))

    def encode(items: Ragged) -> Floats:
        history, times = count_labels(items, item_labels)
        read = UserFeatures(no_states(len(items)), history, times, words.in_histories(items))
        vectors: Floats = scorer.vectors(read).numpy()
        return vectors

    return encode


def open_windows(
    model: Artifact, users: pl.DataFrame, vectors: Rows, projection: Floats, label_factors: Floats, item_labels: Ragged
) -> WindowScorer:
    """The scorer of a model's stored users; refused where it has learnt nothing of windows."""
    if WINDOWS not in model.manifest.files:
        raise MissingArtifact(
            f"{model.path} knows nothing of windows: an older merit made it, or its data is too short. Remove the "
            "corpus and the model, then `merit run`; or leave within out."
        )
    learnt = WindowModel.model_validate_json(model.file(WINDOWS).read_text(encoding="utf-8"))
    gap_days, last = (int(model.manifest.summary[name]) for name in ("gap_days", "last"))
    return WindowScorer(learnt, users, vectors, projection, label_factors, item_labels, gap_days, last)


class WindowQuery(NamedTuple):
    """What is scored: a purchase of one of some items within a window."""

    text: str
    """A name: equal ones are the same query."""
    wanted: Mask
    """By item."""
    window: Window


@dataclass(frozen=True)
class Buying:
    """Products of which one is enough, and how all users of a model bought them."""

    wanted: Mask
    """By item."""
    direction: Reals
    """(R,): the mean factors of their labels."""
    popular: Popularity
    blocks: tuple[Buyers, ...]
    """Of each block of users."""


@dataclass(frozen=True)
class WindowScorer:
    """Probabilities of the stored users of a model."""

    learnt: WindowModel
    users: pl.DataFrame
    """items, days, and bought."""
    vectors: Rows
    projection: Floats
    """(R, width): from a user's vector to factors."""
    label_factors: Floats
    item_labels: Ragged
    gap_days: int
    last: int
    """The time of the last event, in milliseconds."""

    @property
    def end(self) -> date:
        """The first day after the data."""
        return (datetime.fromtimestamp(self.last / 1000, UTC) + timedelta(days=1)).date()

    @property
    def longest(self) -> int:
        """Days of the longest window that may be asked for."""
        return FACTOR * self.learnt.longest

    def window(self, days: int, start: date | None = None) -> Window:
        """Days from `start`, or from the end of the data; windows that the data says nothing about are refused."""
        start, longest = start or self.end, self.longest
        gap = (start - self.end).days
        remedy = "Leave from out for the days right after the data, or make the model again with newer events."
        if gap < 0:
            raise DataError(
                f"The window begins {start}, but the model's data ends {self.end - timedelta(days=1)}: who bought "
                f"then is known. Begin on {self.end} or later."
            )
        if gap > FURTHEST:
            raise DataError(f"The window begins {start}, {gap:,} days after the model's data ends. {remedy}")
        if days > longest:
            raise DataError(
                f"The model has learnt windows of up to {self.learnt.longest} days from {self.learnt.span} days of "
                f"data; {days:,} days are too many. Ask for {longest} days at most."
            )
        return Window(days, gap)

    def probabilities(self, wanted: Mask, window: Window) -> Reals:
        """(stored users,): of at least one purchase of these items within the window."""
        buying, beta, curve = self.buying(wanted), self.learnt.weights(), self.learnt.curve()
        centre = float(np.array(self.learnt.centre) @ buying.direction)
        toward = self.projection.T.astype(np.float64) @ buying.direction
        self.vectors.check()
        shops = self._shops

        def chances(part: tuple[slice, Buyers]) -> Reals:
            block, buyers = part
            affinity = self.vectors.values[block] @ toward - centre
            features = _features(shops.gather(block), buyers, affinity, buying.popular, window, self.learnt.span)
            return curve.probability(hazard.log_odds(features, beta, window.days))

        parts = list(zip(self._blocks(), buying.blocks, strict=True))
        return np.round(np.concatenate(map_threads(chances, parts, cores())), DIGITS)

    def known(self, wanted: Mask, days: int, cut: int) -> dict[str, Reals]:
        """By feature (stored users,), and log_odds: what was known `cut` days before the end, but for the label model.

        Its vectors are those of the end.
        """
        past = windows.events_of(self.users, self.gap_days).before(cut)
        shops, buyers, window = past.activity(), past.buyers(wanted), Window(days)
        popular = Popularity.of(shops.counts.sum(0), buyers.activity.counts.sum(0), len(past))
        features = _features(shops, buyers, np.zeros(len(past)), popular, window, self.learnt.span - cut)
        odds = hazard.log_odds(features, self.learnt.weights(), days)
        return dict(zip(hazard.NAMES, features.T, strict=True)) | {"log_odds": odds}

    def bought(self, wanted: Mask) -> Mask:
        """(stored users,): who bought one of these items."""
        parts = [self.purchases(block).bought_between(0, self.learnt.span, wanted) for block in self._blocks()]
        return np.concatenate(parts)

    def first_day(self, window: Window) -> date:
        """The first day of a window."""
        return self.end + timedelta(days=window.gap)

    def buying(self, wanted: Mask) -> Buying:
        """How all users bought these items; nobody is refused."""
        blocks = tuple(map_threads(lambda block: self.purchases(block).buyers(wanted), self._blocks(), cores()))
        if not any(len(block.users) for block in blocks):
            raise DataError(
                f"Nobody bought any of these {int(wanted.sum()):,} products in the model's data: there is no rate to "
                "go by. Name an interest that they have in common instead, or products that were sold."
            )
        counts = np.sum([block.activity.counts.sum(0) for block in blocks], axis=0)
        popular = Popularity.of(self._shops.counts.sum(0), counts, len(self.users))
        return Buying(
            wanted, windows.direction(wanted, self.sold, self.item_labels, self.label_factors), popular, blocks
        )

    @cached_property
    def sold(self) -> Ints:
        """By item: purchases of the stored users."""
        items = len(self.item_labels)
        counts = (np.bincount(self.purchases(block).items.values, minlength=items) for block in self._blocks())
        return np.asarray(sum(counts, np.zeros(items, np.int64)))

    @cached_property
    def _shops(self) -> Activity:
        parts = [self.purchases(block).activity() for block in self._blocks()]
        return Activity(*(np.concatenate(columns) for columns in zip(*parts, strict=True)))

    def purchases(self, block: slice = slice(None)) -> PurchaseHistories:
        """Of the stored users in these rows."""
        return windows.events_of(self.users[block], self.gap_days)

    def _blocks(self) -> list[slice]:
        return [slice(span.start, span.stop) for span in spans(len(self.users), BLOCK)]


def _features(
    shops: Activity, buyers: Buyers, affinity: Reals, popular: Popularity, window: Window, span: float
) -> Reals:
    at = np.zeros(len(affinity), dtype=bool)
    at[buyers.users] = True
    return hazard.pairs(shops, at, buyers, affinity, popular, window, span)
