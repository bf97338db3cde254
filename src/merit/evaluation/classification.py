"""Recall, precision and F1 of predicted labels, each as what every user adds to it.

- pooled (the paper's "global"): all golds found / all golds, all right predictions / all predictions;
- per_user: the mean over users of their own recall, precision, F1; a user without predictions has precision 0;
- by vertical: recall over golds of the vertical, precision over predictions of it;
- at a budget k: recall of the first k labels of the ranked list, the fair comparison between methods that run to
  different lengths;
- novel: recall over golds the user never had in the history, where repeating the history finds nothing;
- tau_auc: mean recall over thresholds by the trapezoid rule, over [0.5, 1] and over the paper's [0.7, 0.9].
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Annotated, NamedTuple

import numpy as np
from numpy.typing import NDArray
from pydantic import Field

from merit.core.config import Frozen
from merit.core.ragged import Ragged, owners
from merit.evaluation.matching import FLOOR, NEAR, SOFT, Edges, Hits, Rule, Threshold, edges_of, match
from merit.evaluation.predictions import Predictions, Truth, check
from merit.evaluation.uncertainty import Form, Metric, Reals, f1, mean, per_user, ratio

SOFT_MATCH = "soft"  # the headline threshold, in keys of columns
CURVE = tuple(round(0.5 + 0.05 * step, 2) for step in range(11))


class EvaluationConfig(Frozen):
    """What figures are computed for; budgets are in labels per example."""

    thresholds: tuple[Annotated[float, Field(ge=FLOOR, le=1)], ...] = Field((SOFT, 0.7, 0.9), min_length=1)
    """The first is the headline: the default encoder agrees with judged pairs there (docs/evaluation.md). Others are
    the paper's."""
    budgets: tuple[int, ...] = (5, 10, 20)
    near: float = Field(NEAR, ge=FLOOR, le=1)
    """Wrong predictions closer than this to an earlier wrong one count as a cascade; judged in the same way."""
    resamples: int = Field(2_000, ge=100)


class MetricKey(NamedTuple):
    """The name of a figure."""

    metric: str
    match: str = ""
    """A threshold, "exact", or a range of thresholds; empty where nothing is matched. In the columns of a table "soft"
    stands for the headline threshold of its figures."""
    budget: int | None = None
    """Labels per example; None is free length."""
    part: str = "all"
    """all, novel, or discovery: novel golds where only new labels are ranked (ranking.py)."""
    vertical: str = ""
    rule: Rule = "one_to_one"
    average: str = "pooled"


Metrics = dict[MetricKey, Metric]
Counts = tuple[Reals, Reals, Reals, Reals]  # right, predicted, found, true: of every user


def measure(predictions: Predictions, truth: Truth, config: EvaluationConfig | None = None) -> Metrics:
    """All figures of one method and seed, but for the exposure-bias meter (exposure_bias.py)."""
    config = config or EvaluationConfig()
    check(predictions, truth)
    edges = edges_of(predictions.free, truth.gold, truth.vectors)
    return {
        **dict(_free(predictions.free, edges, truth, config)),
        **dict(_auc(edges, truth, config)),
        **dict(_verticals(predictions.free, match(edges, config.thresholds[0]), truth, config)),
        **dict(_budgets(predictions, truth, config)),
    }


def named(threshold: Threshold) -> str:
    """As keys have it: 0.7 is "0.7", without further digits, and "exact" stays."""
    return threshold if threshold == "exact" else f"{threshold:g}"


def _free(
    predicted: Ragged, edges: Edges, truth: Truth, config: EvaluationConfig
) -> Iterator[tuple[MetricKey, Metric]]:
    """Recall, precision and F1 at free length for all thresholds, by both rules and averages."""
    thresholds: list[Threshold] = [*sorted({*CURVE, *config.thresholds}), "exact"]
    for threshold in thresholds:
        counts = _counts(predicted, match(edges, threshold), truth)
        yield from _three(counts, MetricKey("", named(threshold)))
        if threshold == "exact" or threshold in config.thresholds:
            yield from _per_user(counts, MetricKey("", named(threshold), average="per_user"))
    for threshold in config.thresholds:
        yield from _three(
            _counts(predicted, match(edges, threshold, "any"), truth), MetricKey("", named(threshold), rule="any")
        )
    yield MetricKey("predictions"), mean(truth.user, truth.users, predicted.lengths())


def _counts(predicted: Ragged, hits: Hits, truth: Truth, vertical: int | None = None) -> Counts:
    """Of every label, or of those of a vertical."""

    def within(lists: Ragged, right: NDArray[np.bool_]) -> tuple[Reals, Reals]:
        inside = slice(None) if vertical is None else truth.vertical[lists.values] == vertical
        user = truth.user[owners(lists)[inside]]
        return per_user(user, truth.users, right[inside]), per_user(user, truth.users)

    return *within(predicted, hits.predictions), *within(truth.gold, hits.golds)


def _three(counts: Counts, key: MetricKey) -> Iterator[tuple[MetricKey, Metric]]:
    right, predicted, found, true = counts
    yield key._replace(metric="recall"), _metric(found, true)
    yield key._replace(metric="precision"), _metric(right, predicted)
    yield key._replace(metric="f1"), _metric(*counts, form=f1)


def _per_user(counts: Counts, key: MetricKey) -> Iterator[tuple[MetricKey, Metric]]:
    """Means over users who have a gold; dividing by at least one makes an empty list a precision of 0."""
    right, predicted, found, true = counts
    recall, precision = found / np.maximum(true, 1), right / np.maximum(predicted, 1)
    harmonic = 2 * recall * precision / np.where(recall + precision > 0, recall + precision, 1)
    counted = (true > 0).astype(np.float64)
    for name, values in (("recall", recall), ("precision", precision), ("f1", harmonic)):
        yield key._replace(metric=name), _metric(values * counted, counted)


def _auc(edges: Edges, truth: Truth, config: EvaluationConfig) -> Iterator[tuple[MetricKey, Metric]]:
    """Golds are the same at each threshold, so the area is itself one ratio of sums."""
    for thresholds in (CURVE, tuple(sorted(config.thresholds))):
        found = sum(
            share * match(edges, threshold).golds
            for share, threshold in zip(trapezoid(thresholds), thresholds, strict=True)
        )
        key = MetricKey("tau_auc", f"{thresholds[0]:g}–{thresholds[-1]:g}")
        yield key, mean(truth.user[owners(truth.gold)], truth.users, np.asarray(found))


def trapezoid(thresholds: Sequence[float]) -> Reals:
    """The weight of each value in the normalised area; a single threshold is its own mean."""
    if len(thresholds) == 1:
        return np.ones(1)
    steps = np.diff(np.asarray(thresholds, dtype=np.float64))
    shares: Reals = (np.append(steps, 0) + np.insert(steps, 0, 0)) / (2 * steps.sum())
    return shares


def _verticals(
    predicted: Ragged, hits: Hits, truth: Truth, config: EvaluationConfig
) -> Iterator[tuple[MetricKey, Metric]]:
    """The three, for each vertical that has golds."""
    for vertical in np.unique(truth.vertical[truth.gold.values]).tolist():
        key = MetricKey("", named(config.thresholds[0]), vertical=truth.verticals[vertical])
        yield from _three(_counts(predicted, hits, truth, vertical), key)


def _budgets(predictions: Predictions, truth: Truth, config: EvaluationConfig) -> Iterator[tuple[MetricKey, Metric]]:
    """Recall at equal budgets, over all golds and over novel ones; and how many labels were really given."""
    ranked = predictions.at(max(config.budgets))
    edges = edges_of(ranked, truth.gold, truth.vectors)
    user = truth.user[owners(truth.gold)]
    parts: dict[str, slice | NDArray[np.bool_]] = {"all": slice(None), "novel": truth.novel}
    for budget in config.budgets:
        lengths = np.minimum(ranked.lengths(), budget)
        yield MetricKey("predictions", budget=budget), mean(truth.user, truth.users, lengths)
        for threshold in (config.thresholds[0], "exact"):
            golds = match(edges, threshold, budget=budget).golds
            for part, inside in parts.items():
                key = MetricKey("recall", named(threshold), budget, part)
                yield key, mean(user[inside], truth.users, golds[inside])


def _metric(*columns: Reals, form: Form = ratio) -> Metric:
    return Metric(np.stack(columns, axis=1), form)
