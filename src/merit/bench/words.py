"""Is our method first? Generated from the figures: where it is behind in plain words, and every figure in a table.

A difference whose 95 % interval lies above zero is "ahead", below zero "behind", and otherwise "level".
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Literal, NamedTuple

import polars as pl

from merit.bench.results import BenchResults
from merit.bench.tables import paper
from merit.evaluation import tables
from merit.evaluation.classification import MetricKey
from merit.evaluation.exposure_bias import LOST
from merit.evaluation.ranking import BUDGETS, MEAN, SHARES, hit_key, new_labels_key

OWN = ("MERIT", "self-correction")  # what begins so is ours, and no rival
LONG = ", top "  # lists of a hundred labels, shown but no rival at free length
CONTROL = "teacher-forcing"
UNION = "teacher-forcing, union of 4 samples"
Verdict = Literal["ahead", "level", "behind"]


class Duel(NamedTuple):
    """Our method against the best other one by one figure."""

    dataset: str
    key: MetricKey
    what: str
    ours: float
    other: str
    theirs: float
    lead: float
    low: float
    high: float

    @property
    def verdict(self) -> Verdict:
        """By the interval alone: a large lead whose interval includes zero is level."""
        return "ahead" if self.low > 0 else "behind" if self.high < 0 else "level"

    def points(self) -> str:
        """The lead in points of a hundred with its interval, such as +1.2 [+0.4, +2.0]."""
        return _points(self.lead, self.low, self.high)


def compared() -> dict[str, MetricKey]:
    """The figures by which it is decided who is first."""
    found = {}
    for name, match in (("exact", "exact"), ("soft", "0.7")):
        found[f"recall at free length, {name}"] = MetricKey("recall", match)
        found[f"F1 at free length, {name}"] = MetricKey("f1", match)  # where saying more does not help by itself
        found |= {f"recall at {k} labels, {name}": MetricKey("recall", match, k) for k in BUDGETS}
        found[f"recall of new labels at 20, {name}"] = MetricKey("recall", match, 20, "novel")
    found["recall of new labels, only new ones said, at 20"] = new_labels_key(20)
    return found | {f"Hit@{share:.0%} of users": hit_key(share, MEAN) for share in SHARES}


def duels(results: BenchResults) -> list[Duel]:
    """One for every figure that we and another method have."""
    frame = results.frame()
    found = [_duel(results, frame, what, key) for what, key in compared().items()]
    return [each for each in found if each]


def _duel(results: BenchResults, frame: pl.DataFrame, what: str, key: MetricKey) -> Duel | None:
    rows = tables.pick(frame, key).drop_nulls("value")
    own = rows.filter(pl.col("method") == results.ours)
    others = rows.filter(~pl.any_horizontal(pl.col("method").str.starts_with(name) for name in OWN))
    if key.budget is None:
        others = others.filter(~pl.col("method").str.contains(LONG, literal=True))
    best = others.drop_nulls("lead").sort("value", "method", descending=[True, False]).head(1)
    if own.is_empty() or best.is_empty():
        return None
    other = best.row(0, named=True)
    spans = (other["lead"], other["lead_low"], other["lead_high"])
    if key.metric == "recall" and key.budget is None:  # saying more finds more
        what += f", {_length(frame, results.ours)} against {_length(frame, other['method'])} labels"
    return Duel(results.dataset, key, what, own["value"][0], other["method"], other["value"], *spans)


def _length(frame: pl.DataFrame, method: str) -> str:
    rows = tables.pick(frame, MetricKey("predictions")).filter(pl.col("method") == method)
    return "?" if rows.is_empty() else f"{rows['value'][0]:.1f}"


def sentences(all_results: Sequence[BenchResults]) -> list[str]:
    """The first screen: how often it is first, then where it is not."""
    found = [duel for results in all_results for duel in duels(results)]
    told = [] if found else ["Our method and another have no figure in common here: nothing can be said."]
    if found:
        counted = Counter(duel.verdict for duel in found)
        told.append(
            f"MERIT against the best other method, by {len(found)} figures on "
            f"{_several(len(all_results), 'data set')}: ahead in {counted['ahead']}, level (the interval includes "
            f"zero) in {counted['level']}, behind in {counted['behind']}."
        )
    for results in all_results:
        told += _of_dataset(results.dataset, [duel for duel in found if duel.dataset == results.dataset])
        told += [f"{results.dataset}: {cell} is missing. {why}" for cell, why in results.missing.items()]
    return told


def _of_dataset(dataset: str, found: Sequence[Duel]) -> list[str]:
    behind = [f"{duel.what} ({duel.other}, {duel.points()} points)" for duel in found if duel.verdict == "behind"]
    level = sum(duel.verdict == "level" for duel in found)
    if not found:
        return []
    if not behind and not level:
        return [f"{dataset}: MERIT is first by every figure."]
    told = f"MERIT is behind in {'; '.join(behind)}" if behind else "MERIT is never behind"
    return [f"{dataset}: {told}; level with the best other in {level} of {len(found)} figures."]


def verdicts(all_results: Sequence[BenchResults]) -> pl.DataFrame:
    """Every figure by data set: the verdict, the difference to the best other method in points, and which that is."""
    found = {results.dataset: {duel.key: duel for duel in duels(results)} for results in all_results}
    rows = {what: [own.get(key) for own in found.values()] for what, key in compared().items()}
    told = [(what, *map(_told, own)) for what, own in rows.items() if any(own)]
    return pl.DataFrame(told, schema=dict.fromkeys(("figure", *found), pl.String), orient="row")


def _told(duel: Duel | None) -> str | None:
    return duel and f"{duel.verdict}: {duel.points()}, {duel.other}"


def claims(results: BenchResults) -> pl.DataFrame:
    """What the paper claims, beside what was found here; differences in points."""
    frame, told = results.frame(), paper()["claims"]
    free = [duel for duel in duels(results) if duel.key == MetricKey("recall", "0.7")]
    rows = [(f"recall at free length over the best other ({duel.other})", told["free"], duel.points()) for duel in free]
    for what, key, own in (
        ("recall over the union of four samples", MetricKey("recall", "0.7"), told["union_recall"]),
        ("precision over the union of four samples", MetricKey("precision", "0.7"), told["union_precision"]),
    ):
        rows += [(what, own, points) for points in _leads(frame, key, UNION)]
    for share in SHARES:
        rows += [
            (f"Hit@{share:.0%} of users over DEXML-DS (paper: mean over all k)", told["hits"], points)
            for points in _leads(frame, hit_key(share, MEAN), "DEXML-DS")
        ]
    for what, key in (
        (
            "near-correlates at 10 labels of self-correction against teacher forcing",
            MetricKey("near_correlates", "0.7", 10),
        ),
        ("recall lost to mistakes of self-correction against teacher forcing", LOST),
    ):
        rows += [(what, None, points) for points in _leads(frame, key, CONTROL)]
    shown = [(what, None if own is None else f"{own:+.1f}", points) for what, own, points in rows]
    return pl.DataFrame(shown, schema=dict.fromkeys(("claim", "paper", "found here"), pl.String), orient="row")


def _leads(frame: pl.DataFrame, key: MetricKey, method: str) -> list[str]:
    rows = tables.pick(frame, key).filter(pl.col("method") == method).drop_nulls("lead")
    return [_points(*row) for row in rows.select("lead", "lead_low", "lead_high").iter_rows()]


def _points(value: float, low: float, high: float) -> str:
    return f"{100 * value:+.1f} [{100 * low:+.1f}, {100 * high:+.1f}]"


def _several(number: int, noun: str) -> str:
    return f"{number} {noun}{'s' * (number != 1)}"
