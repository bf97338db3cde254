"""The results of a benchmark on one data set as one small JSON file, and the verdict: is our method first?

Tables, pages and documents are made from the file. Metrics of fewer than 50 users are not in it. Every row is a line,
so that version control shows what changed. A difference whose 95 % interval lies above zero is "ahead", below zero
"behind", and otherwise "level".
"""

from __future__ import annotations

import json
import tomllib
from collections import Counter
from collections.abc import Sequence
from functools import cache
from importlib import resources
from pathlib import Path
from typing import Any, Literal, NamedTuple

import polars as pl
from pydantic import ValidationError

from merit.core import files
from merit.core.config import Frozen
from merit.core.errors import DamagedArtifact, MissingArtifact
from merit.evaluation import tables
from merit.evaluation.classification import SOFT_MATCH, MetricKey
from merit.evaluation.exposure_bias import LOST
from merit.evaluation.ranking import BUDGETS, MEAN, SHARES, hit_key, new_labels_key
from merit.report.page import SMALLEST_CELL

DIGITS = 5  # of a share: a thousandth of a point
LEAD = pl.Schema({"lead": pl.Float64(), "lead_low": pl.Float64(), "lead_high": pl.Float64()})
"""How far our method is ahead of the row's, on the same users. Which of ours: `ours`, `generator`."""
COLUMNS = [name for name in tables.SCHEMA if name not in ("command", "commit")] + list(LEAD)
NUMBERS = [name for name, kind in (tables.SCHEMA | LEAD).items() if kind == pl.Float64()]
BINS = ("low", "high", "pairs", "promised", "true", "squares")
OWN = ("MERIT", "states only", "self-correction", "teacher forcing on items")  # what begins so is ours, and no rival
LONG = ", top "  # lists of a hundred labels, shown but no rival at free length
CONTROL = "teacher forcing on items"
AGAINST = "of self-correction against teacher forcing"
UNION = "teacher forcing on items, union of 4 samples"
Verdict = Literal["ahead", "level", "behind"]


class Cost(Frozen):
    """Means over the seeds of a method."""

    method: str
    seeds: int
    train_seconds: float | None
    """With all that it builds on."""
    predict_seconds: float
    """For 1,000 users."""
    parameters: float
    peak_gib: float | None


class BenchResults(Frozen):
    """One data set; fields are written in this order."""

    dataset: str
    commit: str
    config: str
    """Digest of the settings."""
    version: str
    date: str
    machine: dict[str, str]
    seconds: float
    """The training budget of a network."""
    users: int
    """Test users."""
    labels: int
    reference: str
    """What gains of lists are counted from."""
    ranking_reference: str
    """What gains of Hit@k are counted from."""
    ours: str
    """What leads are counted for."""
    generator: str
    """What leads of the exposure-bias meter are counted for."""
    seeds: dict[str, list[int]]
    """By cell's method."""
    reads: dict[str, list[str]] = {}
    """What each method is given of a user; not noted in older results."""
    steps: dict[str, list[int]]
    """Of generators, by seed."""
    missing: dict[str, str]
    """Cells that failed, and why."""
    figures: list[list[Any]]
    """Rows of COLUMNS."""
    costs: list[Cost]
    reliability: list[list[float]]
    """Rows of BINS."""
    pictures: list[list[dict[str, Any]]]
    """Lists of two methods for some examples: method, rank, text, mark, right."""

    def frame(self) -> pl.DataFrame:
        """The figures as `evaluation.tables` has them, with leads."""
        schema = {name: (tables.SCHEMA | LEAD)[name] for name in COLUMNS}
        frame = pl.DataFrame(self.figures, schema=schema, orient="row")
        return frame.with_columns(command=pl.lit("merit bench"), commit=pl.lit(self.commit))

    def varied(self) -> pl.Expr:
        """Whether a row is of our method with other settings, or read in another way."""
        return (pl.col("method") != self.ours) & pl.col("method").str.starts_with(self.ours)

    def bins(self) -> pl.DataFrame:
        """The reliability of our probabilities, as `evaluation.calibration` has it."""
        frame = pl.DataFrame(self.reliability, schema=dict.fromkeys(BINS, pl.Float64), orient="row")
        return frame.with_columns(vertical=pl.lit("all"))


def figure_rows(figures: pl.DataFrame) -> list[list[Any]]:
    """What may be kept of figures, as plain values. A figure that is not a number becomes nothing."""
    kept = figures.filter(pl.col("users") >= SMALLEST_CELL).select(COLUMNS)
    rounded = kept.with_columns(pl.col(NUMBERS).fill_nan(None).round(DIGITS))
    return [list(row) for row in rounded.rows()]


def write(results: BenchResults, file: Path) -> None:
    """The folder is made where it is missing; older results are overwritten."""
    files.write(file, dumped(results), 0o644)


def dumped(results: BenchResults) -> str:
    """Every setting a line, every row a line."""
    parts = []
    for name, value in results.model_dump(mode="json").items():
        if isinstance(value, list):
            rows = ",\n  ".join(json.dumps(row, ensure_ascii=False) for row in value)
            parts.append(f" {json.dumps(name)}: [\n  {rows}\n ]" if value else f" {json.dumps(name)}: []")
        else:
            parts.append(f" {json.dumps(name)}: {json.dumps(value, ensure_ascii=False)}")
    return "{\n" + ",\n".join(parts) + "\n}\n"


def read(file: Path) -> BenchResults:
    """The results in a file; one that is missing or holds something else is an error that says what to do."""
    try:
        return BenchResults.model_validate_json(file.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise MissingArtifact(f"{file} does not exist. Make it with `merit bench CONFIG`.") from None
    except (ValidationError, UnicodeDecodeError, OSError):
        raise DamagedArtifact(f"{file} does not hold results of a benchmark. Make it again.") from None


def read_all(folder: Path, datasets: Sequence[str]) -> list[BenchResults]:
    """Those data sets that have results, in the order given."""
    all_results = [read(folder / f"{name}.json") for name in datasets if (folder / f"{name}.json").exists()]
    if not all_results:
        raise MissingArtifact(f"{folder} has no results of {', '.join(datasets)}. Make them with `merit bench CONFIG`.")
    return all_results


@cache
def paper() -> dict[str, Any]:
    """The paper's own figures."""
    return tomllib.loads(resources.files("merit.bench").joinpath("paper.toml").read_text(encoding="utf-8"))


# --- the verdict -----------------------------------------------------------------------------------------------------


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

    def sides(self) -> str:
        """Both figures in points of a hundred, such as 41.5 against 41.0 of linear."""
        return f"{100 * self.ours:.1f} against {100 * self.theirs:.1f} of {self.other}"

    def points(self) -> str:
        """The lead in points of a hundred with its interval, such as +1.2 [+0.4, +2.0]."""
        return _points(self.lead, self.low, self.high)


def compared() -> dict[str, MetricKey]:
    """The figures by which it is decided who is first."""
    figures = {}
    for name, match in (("exact", "exact"), ("soft", SOFT_MATCH)):
        figures[f"recall at free length, {name}"] = MetricKey("recall", match)
        figures[f"F1 at free length, {name}"] = MetricKey("f1", match)  # where saying more does not help by itself
        figures |= {f"recall at {k} labels, {name}": MetricKey("recall", match, k) for k in BUDGETS}
        figures[f"recall of new labels at 20, {name}"] = MetricKey("recall", match, 20, "novel")
    figures["recall of new labels, only new ones allowed, at 20"] = new_labels_key(20)
    return figures | {f"Hit@{share:.0%} of users": hit_key(share, MEAN) for share in SHARES}


def duels(results: BenchResults) -> list[Duel]:
    """One for every figure that we and another method have."""
    frame = results.frame()
    return [duel for what, key in compared().items() if (duel := _duel(results, frame, what, key))]


def _duel(results: BenchResults, frame: pl.DataFrame, what: str, key: MetricKey) -> Duel | None:
    rows = tables.pick(frame, key).drop_nulls("value")
    ours = rows.filter(pl.col("method") == results.ours)
    others = rows.filter(~pl.any_horizontal(pl.col("method").str.starts_with(name) for name in OWN))
    if key.budget is None:
        others = others.filter(~pl.col("method").str.contains(LONG, literal=True))
    best = others.drop_nulls("lead").sort("value", "method", descending=[True, False]).head(1)
    if ours.is_empty() or best.is_empty():
        return None
    other = best.row(0, named=True)
    spans = (other["lead"], other["lead_low"], other["lead_high"])
    if key.metric == "recall" and key.budget is None:  # saying more finds more
        what += f", {_length(frame, results.ours)} against {_length(frame, other['method'])} labels"
    return Duel(results.dataset, key, what, ours["value"][0], other["method"], other["value"], *spans)


def _length(frame: pl.DataFrame, method: str) -> str:
    rows = tables.pick(frame, MetricKey("predictions")).filter(pl.col("method") == method)
    return "?" if rows.is_empty() else f"{rows['value'][0]:.1f}"


def sentences(all_results: Sequence[BenchResults]) -> list[str]:
    """The first screen: how often it is first, then where it is not."""
    all_duels = [duel for results in all_results for duel in duels(results)]
    lines = [] if all_duels else ["Our method and another have no figure in common, so nothing can be compared."]
    if all_duels:
        counted = Counter(duel.verdict for duel in all_duels)
        lines.append(
            f"MERIT against the best other method, by {len(all_duels)} figures on "
            f"{len(all_results)} data set{'s' * (len(all_results) > 1)}: ahead in {counted['ahead']}, level (the "
            f"interval includes zero) in {counted['level']}, behind in {counted['behind']}."
        )
    for results in all_results:
        lines += _of_dataset(results.dataset, [duel for duel in all_duels if duel.dataset == results.dataset])
        lines += [f"{results.dataset}: {cell} is missing. {why}" for cell, why in results.missing.items()]
    return lines


def _of_dataset(dataset: str, of_dataset: Sequence[Duel]) -> list[str]:
    behind = [f"{duel.what} ({duel.other}, {duel.points()} points)" for duel in of_dataset if duel.verdict == "behind"]
    level = sum(duel.verdict == "level" for duel in of_dataset)
    if not of_dataset:
        return []
    if not behind and not level:
        return [f"{dataset}: MERIT is first by every figure."]
    standing = f"MERIT is behind in {'; '.join(behind)}" if behind else "MERIT is never behind"
    return [f"{dataset}: {standing}; level with the best other in {level} of {len(of_dataset)} figures."]


def verdicts(all_results: Sequence[BenchResults]) -> pl.DataFrame:
    """Every figure by data set: the verdict, our figure and that of the best other method, and their difference."""
    by_dataset = {results.dataset: {duel.key: duel for duel in duels(results)} for results in all_results}
    rows = {what: [by_key.get(key) for by_key in by_dataset.values()] for what, key in compared().items()}
    cells = [
        (what, *(duel and f"{duel.verdict}: {duel.sides()}, {duel.points()}" for duel in row))
        for what, row in rows.items()
        if any(row)
    ]
    return pl.DataFrame(cells, schema=dict.fromkeys(("figure", *by_dataset), pl.String), orient="row")


def claims(results: BenchResults) -> pl.DataFrame:
    """What the paper claims, beside what was found here; differences in points."""
    frame, paper_claims = results.frame(), paper()["claims"]
    free = [duel for duel in duels(results) if duel.key == MetricKey("recall", SOFT_MATCH)]
    rows = [
        (f"recall at free length over the best other ({duel.other})", paper_claims["free"], duel.points())
        for duel in free
    ]
    rows += [
        (what, claim and paper_claims[claim], points)
        for what, key, method, claim in (
            ("recall over the union of four samples", MetricKey("recall", SOFT_MATCH), UNION, "union_recall"),
            ("precision over the union of four samples", MetricKey("precision", SOFT_MATCH), UNION, "union_precision"),
            *(
                (f"Hit@{share:.0%} of users over DEXML-DS (paper: mean over all k)", key, "DEXML-DS", "hits")
                for share in SHARES
                for key in [hit_key(share, MEAN)]
            ),
            (f"near-correlates at 10 labels {AGAINST}", MetricKey("near_correlates", SOFT_MATCH, 10), CONTROL, None),
            (f"recall lost to mistakes {AGAINST}", LOST, CONTROL, None),
        )
        for points in _leads(frame, key, method)
    ]
    shown = [(what, None if claim is None else f"{claim:+.1f}", points) for what, claim, points in rows]
    return pl.DataFrame(shown, schema=dict.fromkeys(("claim", "paper", "found here"), pl.String), orient="row")


def _leads(frame: pl.DataFrame, key: MetricKey, method: str) -> list[str]:
    rows = tables.pick(frame, key).filter(pl.col("method") == method).drop_nulls("lead")
    return [_points(*row) for row in rows.select("lead", "lead_low", "lead_high").iter_rows()]


def _points(value: float, low: float, high: float) -> str:
    return f"{100 * value:+.1f} [{100 * low:+.1f}, {100 * high:+.1f}]"
