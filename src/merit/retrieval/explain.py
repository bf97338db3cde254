"""Which items of a history carry a score: the generator reads the history again without each of them.

Leave one out, all variants in one batch: as many prompts as there are distinct items in the history, and the whole.
"""

from __future__ import annotations

import json
from dataclasses import replace
from typing import NamedTuple

import numpy as np
import polars as pl
from numpy.typing import NDArray

from merit.core import artifacts
from merit.core.artifacts import Artifact
from merit.core.ragged import Ragged
from merit.core.types import Floats, Ints
from merit.data.corpus import WORDS
from merit.data.title_words import TitleWords
from merit.generator.model import load_over_items
from merit.labels.mentions import Mentioned
from merit.propensity.features import LikelyLabels, States, UserFeatures, no_states
from merit.propensity.train import load_scorer

MOST = 200  # distinct items, the newest ones: older ones hardly ever reach the prompt


class Variants(NamedTuple):
    """A history, then the same without each of its distinct items, newest first."""

    vectors: Floats  # (1 + items, width): of a user with such a history
    items: Ints
    times: NDArray[np.float64]  # (1 + items,): how often the label is in it; or, where it is named, by how much
    totals: NDArray[np.float64]  # (1 + items,): labels, repeats counted
    likely: NDArray[np.float64]  # (1 + items,): what the generator adds to the score of the label


def leave_one_out(
    model: Artifact,
    labels: Artifact,
    items: NDArray[np.int32],
    days: NDArray[np.int32],
    label: int,
    named: Mentioned | None = None,
) -> Variants:
    """The variants of a history of items, oldest first, with the days since each.

    `named` are the products that name a phrase, or a new label.
    """
    newest_first = items[::-1]
    _, first = np.unique(newest_first, return_index=True)
    distinct = newest_first[np.sort(first)][:MOST].astype(np.int64)
    catalogue = pl.read_parquet(model.file("items.parquet"))
    generator = load_over_items(artifacts.load(model.file("generator"), "generator"), catalogue, labels)
    scorer = load_scorer(artifacts.load(model.file("propensity"), "propensity"), labels)
    kept = [np.ones(len(items), bool), *(items != item for item in distinct)]
    histories = [items[rows] for rows in kept]
    item_lists, day_lists = (Ragged.of([values[rows].tolist() for rows in kept]) for values in (items, days))
    counted = [np.unique(generator.item_labels.take(history)[0], return_counts=True) for history in histories]
    times = np.concatenate([counts for _, counts in counted]).astype(np.int32)
    vocabulary = json.loads(model.file(f"propensity/{WORDS}").read_text(encoding="utf-8"))
    words = TitleWords.of(vocabulary, catalogue["title"])
    history = Ragged.of([values.tolist() for values, _ in counted])
    if named is None:
        label_times = [float(counts[values == label].sum()) for values, counts in counted]
    else:
        weights = np.zeros(len(catalogue))
        weights[named.items] = named.weights
        label_times = [float(weights[variant].sum()) for variant in histories]
    features = UserFeatures(no_states(len(histories)), history, times, words.in_histories(item_lists))
    inputs = generator.inputs_of(item_lists, day_lists, features)
    if scorer.model.reads_states:
        values, label_counts = generator.states(inputs, scorer.labels)
        features = replace(features, states=States(values.astype(np.float16), label_counts))
    likely = np.zeros(len(histories))
    if label >= 0:
        found = LikelyLabels(*generator.likely(inputs, scorer.likely))
        likely = scorer.model.likely_weight.item() * found.grid(np.array([label]), len(scorer.live))[:, 0].astype(float)
    return Variants(
        scorer.vectors(features).numpy(),
        distinct,
        np.array(label_times),
        np.array([counts.sum() for _, counts in counted], dtype=np.float64),
        likely,
    )
