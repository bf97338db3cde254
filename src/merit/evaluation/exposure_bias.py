"""The exposure-bias meter: does one wrong label drag its relatives behind it?

- near_correlates: of the wrong predictions, the share with an earlier wrong prediction of the same list closer than
  `evaluation.near`. Wrong means no gold within τ: a second paraphrase of a gold is superfluous, not a cascade. Longer
  lists have more earlier predictions to resemble, so it is also given at equal budgets.
- clusters: different regions of the label space that a list covers, per example.
- recall lost: with gold labels as prefix against plausible wrong ones.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from string import ascii_uppercase

import numpy as np
import polars as pl
from numpy.typing import NDArray

from merit.core.errors import DataError
from merit.core.ragged import Ragged, list_column, owners, ranks, select
from merit.core.seeds import stream
from merit.core.types import Ints
from merit.evaluation import predictions
from merit.evaluation.classification import SOFT_MATCH, EvaluationConfig, MetricKey, Metrics, named
from merit.evaluation.matching import SOFT, Flags, Threshold, edges_of, match, near_pairs
from merit.evaluation.predictions import Predictions, Truth, check
from merit.evaluation.uncertainty import Metric, mean, per_user
from merit.report.page import SMALLEST_CELL

AFTER_GOLD, AFTER_MISTAKES, LEFT = "after-gold.parquet", "after-mistakes.parquet", "left.parquet"
PICTURED = 10  # labels of a list
RARE = "(rare label)"
SINGLE = "–"  # the mark of a label that shares its cluster with no other of the list
LOST = MetricKey("recall_lost", SOFT_MATCH)  # where the result of `recall_lost` belongs among a method's figures


def exposure(run: Predictions, truth: Truth, config: EvaluationConfig | None = None) -> Metrics:
    """The meter at free length and at each budget."""
    config = config or EvaluationConfig()
    check(run, truth)
    metrics = _meter(run.free, truth, config, [None])
    return metrics | _meter(run.at(max(config.budgets)), truth, config, config.budgets)


def recall_lost(with_gold: Predictions, with_wrong: Predictions, truth: Truth, threshold: Threshold = SOFT) -> Metric:
    """Recall after gold prefixes minus recall after corrupted ones.

    The golds of `truth` are those still to be found, the lists are what was generated after the prefix.
    """
    for run in (with_gold, with_wrong):
        check(run, truth)
    if with_gold.method != with_wrong.method or with_gold.seed != with_wrong.seed:
        raise DataError(f"{with_gold.method} and {with_wrong.method} are two models: compare one model with itself.")
    kept, left = (
        match(edges_of(run.free, truth.gold, truth.vectors), threshold).golds.astype(np.float64)
        for run in (with_gold, with_wrong)
    )
    return mean(truth.user[owners(truth.gold)], truth.users, kept - left)


def write_continuations(folder: Path, after_gold: Predictions, after_mistakes: Predictions, left: Ragged) -> None:
    """Write what a method predicted after a given prefix; `left`: by example, the golds still to be found."""
    predictions.write(folder / AFTER_GOLD, after_gold)
    predictions.write(folder / AFTER_MISTAKES, after_mistakes)
    column = list_column(left.values.astype(np.uint32), left.lengths())
    pl.DataFrame({"left": column}).write_parquet(folder / LEFT)


def read_recall_lost(folder: Path, truth: Truth, threshold: Threshold = SOFT) -> dict[tuple[str, int], Metric]:
    """`recall_lost` by method and seed, from the files of `write_continuations`; empty where there are none."""
    if not (folder / LEFT).exists():
        return {}
    gold, wrong = (predictions.read(folder / name) for name in (AFTER_GOLD, AFTER_MISTAKES))
    left = Ragged.of(pl.read_parquet(folder / LEFT)["left"].to_list())
    return {(gold.method, gold.seed): recall_lost(gold, wrong, replace(truth, gold=left), threshold)}


def wrong(lists: Ragged, truth: Truth, threshold: Threshold) -> NDArray[np.bool_]:
    """Beside the flat values: no gold within the threshold."""
    return ~match(edges_of(lists, truth.gold, truth.vectors), threshold, "any").predictions


def _meter(lists: Ragged, truth: Truth, config: EvaluationConfig, budgets: Sequence[int | None]) -> Metrics:
    """Whether a label follows its like depends on earlier labels only, so one pass serves every budget."""
    errors = wrong(lists, truth, config.thresholds[0])
    wrong_only = select(lists, errors)
    first, second, similarity = near_pairs(wrong_only, wrong_only, truth.vectors, config.near)
    follows = (first < second) & (similarity > config.near)
    near = np.bincount(second[follows], minlength=len(wrong_only.values)) > 0  # whether it follows its like
    user, rank = truth.user[owners(wrong_only)], ranks(lists)
    metrics: Metrics = {}
    for budget in budgets:
        inside = rank < (budget or np.inf)
        counted = inside[errors]
        rate = mean(user[counted], truth.users, near[counted])
        metrics[MetricKey("near_correlates", named(config.thresholds[0]), budget)] = rate
        metrics[MetricKey("clusters", budget=budget)] = _clusters(select(lists, inside), truth)
    return metrics


def _clusters(lists: Ragged, truth: Truth) -> Metric:
    size = int(truth.cluster.max(initial=0)) + 2  # -1, not clustered, is a cluster of its own
    keys = np.sort(owners(lists) * size + truth.cluster[lists.values] + 1)
    covered = keys[np.diff(keys, prepend=-1) > 0] // size
    columns = [per_user(truth.user[covered], truth.users), per_user(truth.user, truth.users)]
    return Metric(np.stack(columns, axis=1))


# --- lists side by side ----------------------------------------------------------------------------------------------


def pictures(
    first: Predictions,
    second: Predictions,
    truth: Truth,
    texts: Sequence[str],
    label_users: Ints,
    seed: int,
    number: int = 3,
) -> list[pl.DataFrame]:
    """What both methods generated for examples drawn at random: method, rank, text, mark (of its cluster), right.

    Labels that fewer than 50 users have are not named.
    """
    enough = np.flatnonzero((first.free.lengths() >= 2) & (second.free.lengths() >= 2))
    chosen = stream(seed, "pictures").permutation(enough)[:number]
    runs = [(run, ~wrong(run.free, truth, SOFT)) for run in (first, second)]
    shown = [text if users >= SMALLEST_CELL else RARE for text, users in zip(texts, label_users.tolist(), strict=True)]
    return [_pictured(runs, truth, shown, example) for example in chosen.tolist()]


def _pictured(
    runs: Sequence[tuple[Predictions, Flags]], truth: Truth, shown: Sequence[str], example: int
) -> pl.DataFrame:
    lists = [run.free[example][:PICTURED].tolist() for run, _ in runs]
    often = [cluster for labels in lists for cluster, n in Counter(truth.cluster[labels].tolist()).items() if n > 1]
    letters = dict(zip(dict.fromkeys(often), ascii_uppercase, strict=False))  # the same in all lists
    frames = [
        pl.DataFrame(
            {
                "method": run.method,
                "rank": range(1, len(labels) + 1),
                "text": [shown[label] for label in labels],
                "mark": [letters.get(int(truth.cluster[label]), SINGLE) for label in labels],
                "right": right[run.free.offsets[example] :][: len(labels)],
            }
        )
        for (run, right), labels in zip(runs, lists, strict=True)
    ]
    return pl.concat(frames)
