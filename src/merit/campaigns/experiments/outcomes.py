"""A table with one row per user → sufficient statistics, in two passes over any number of rows.

The first pass looks for what must not be averaged away: rows that cannot be read, users that come twice, users in both
arms, users exposed before they were assigned. The second adds up. Only a 64-bit hash per user is ever held in memory.
"""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from pathlib import Path

import polars as pl

from merit.campaigns.experiments.assign import arm_of
from merit.campaigns.experiments.design import ExperimentDesign
from merit.campaigns.experiments.statistics import CHOSEN, CellMoments, Flow, Outcomes, from_sums, points_near, sums
from merit.campaigns.tables import duplicates, instants, numbers, scanning
from merit.core.errors import DataError
from merit.data.schema import FILE, ROW
from merit.privacy import pseudonyms

CHECKED = 200_000  # users whose arm is compared with their hash: enough to notice 0.01 % of wrong ones
MOST_SEGMENTS = 1_000
NO_SEGMENT = "(none)"


def tabulate(design: ExperimentDesign, table: Path) -> Outcomes:
    """The statistics of a table. Raises where a number would be silently wrong."""
    needed = [design.user, design.arm, *([design.segment] if design.segment else [])]
    with scanning(table, "--table", needed, partial(_columns, design)) as rows:
        flow = _checked_rows(rows, design, table)
        crossed = _crossovers(rows, table)
        frame = rows.filter(~pl.col("user").is_in(crossed.implode())) if len(crossed) else rows
        checked, misplaced = _misplaced(frame, design, flow.rows)
        flow = replace(flow, crossovers=len(crossed), checked=checked, misplaced=misplaced)
        return _aggregate(*_winsorised(frame, design, flow))


def _columns(design: ExperimentDesign, frame: pl.LazyFrame, file: str) -> pl.LazyFrame:
    """user, arm, segment, chosen, early; and value, bad, capped, raw of the outcome (0) and of each covariate."""
    segment = (
        pl.col(design.segment).cast(pl.String).fill_null(NO_SEGMENT) if design.segment else pl.lit(None, pl.String)
    )
    return frame.select(
        pseudonyms.column(design.user).alias("user"),
        pl.col(design.arm).cast(pl.String).alias("arm"),
        segment.alias("segment"),
        _chosen(frame, design, file).alias("chosen"),
        _early(frame, design, file).alias("early"),
        *_outcome(frame, design, file),
        *(part for place, name in enumerate(design.covariates, 1) for part in _covariate(frame, name, place, file)),
        pl.col(FILE),
        pl.col(ROW).cast(pl.Int64),
    )


def _outcome(frame: pl.LazyFrame, design: ExperimentDesign, file: str) -> list[pl.Expr]:
    number = numbers(frame, design.outcome.column, file)
    good = number.is_finite().fill_null(False)
    good = good & number.is_in([0.0, 1.0]) if design.outcome.kind == "binary" else good
    capped = number.clip(upper_bound=design.outcome.cap) if design.outcome.cap else number
    raw = pl.col(design.outcome.column).cast(pl.String)
    value = pl.when(good).then(capped)
    return [value.alias("value 0"), (~good).alias("bad 0"), (number != capped).alias("capped"), raw.alias("raw 0")]


def _covariate(frame: pl.LazyFrame, name: str, place: int, file: str) -> list[pl.Expr]:
    number = numbers(frame, name, file)
    good = number.is_finite().fill_null(False)
    bad = ~good & pl.col(name).is_not_null() & ~number.is_nan().fill_null(False)
    raw = pl.col(name).cast(pl.String)
    return [pl.when(good).then(number).alias(f"value {place}"), bad.alias(f"bad {place}"), raw.alias(f"raw {place}")]


def _chosen(frame: pl.LazyFrame, design: ExperimentDesign, file: str) -> pl.Expr:
    """Which targeting rules choose the user; null where a rule is not logged."""
    if design.policies is None:
        return pl.lit(CHOSEN[-1])
    names = (design.policies.treatment, design.policies.control)
    treatment, control = (numbers(frame, name, file) != 0 for name in names)
    only, other, both, neither = (pl.lit(name) for name in CHOSEN)
    logged = treatment.is_not_null() & control.is_not_null()
    differ = pl.when(treatment & ~control).then(only).when(~treatment & control).then(other)
    return pl.when(logged).then(differ.when(treatment).then(both).otherwise(neither))


def _early(frame: pl.LazyFrame, design: ExperimentDesign, file: str) -> pl.Expr:
    """Exposed before assigned; false for users who were not exposed, or at an unknown time."""
    if design.assigned_at is None or design.exposed_at is None:
        return pl.lit(False)
    return (instants(frame, design.exposed_at, file) < instants(frame, design.assigned_at, file)).fill_null(False)


def _checked_rows(frame: pl.LazyFrame, design: ExperimentDesign, table: Path) -> Flow:
    columns = (design.outcome.column, *design.covariates)
    no_user = pl.col("user").is_null() | (pl.col("user") == "")
    other_arm = ~pl.col("arm").is_in(list(design.arms)).fill_null(False)
    binary = design.outcome.kind == "binary"
    needed = ["0 or 1 (fill 0 in for users who did not convert)" if binary else "a number"]
    needed += ["a number"] * len(design.covariates)
    faults = {
        "an empty user id": (no_user, "user"),
        f"an arm that the design does not have ({', '.join(design.arms)})": (other_arm, "arm"),
        "a targeting rule that was not logged, or is neither yes nor no": (pl.col("chosen").is_null(), "user"),
        **{
            f"'{name}' that is not {needed[place]}": (pl.col(f"bad {place}"), f"raw {place}")
            for place, name in enumerate(columns)
        },
    }
    counts = frame.select(
        pl.len(),
        pl.col("early").sum(),
        pl.col("capped").sum(),
        pl.col("segment").approx_n_unique(),
        *(fault.sum().alias(f"fault {place}") for place, (fault, _) in enumerate(faults.values())),
        *(pl.col(f"value {place}").null_count().alias(f"missing {place}") for place in range(1, len(columns))),
    )
    row = counts.collect(engine="streaming").row(0, named=True)
    if not row["len"]:
        raise DataError(f"{table} has no rows. Export the outcomes of all assigned users, buyers or not.")
    for place, (what, (fault, column)) in enumerate(faults.items()):
        if count := row[f"fault {place}"]:
            raise DataError(_first_fault(frame.filter(fault), column, what, count))
    if row["segment"] > MOST_SEGMENTS:
        raise DataError(
            f"{table}: '{design.segment}' has about {row['segment']:,} different values; at most {MOST_SEGMENTS:,} can "
            "be compared. Group them first."
        )
    missing = {name: row[f"missing {place}"] for place, name in enumerate(columns) if place and row[f"missing {place}"]}
    return Flow(rows=row["len"], early=row["early"], capped=row["capped"], missing=missing)


def _first_fault(rows: pl.LazyFrame, column: str, what: str, count: int) -> str:
    file, row, value = rows.select(FILE, ROW, column).head(1).collect(engine="streaming").row(0)
    others = f", and {count - 1:,} more such rows" if count > 1 else ""
    value = "nothing" if value is None else repr(value[:40])
    return f"{file}, row {row} has {what}: {value}{others}. Correct the table."


def _crossovers(frame: pl.LazyFrame, table: Path) -> pl.Series:
    """Users in more than one arm. Refuses several rows of a user in one arm: counted twice, a user looks like two."""
    repeated = duplicates(frame, "user")["user"]
    if repeated.is_empty():
        return repeated
    rows = frame.filter(pl.col("user").is_in(repeated.implode()))
    grouped = rows.group_by("user").agg(pl.len(), pl.col("arm").n_unique(), pl.col(ROW).min())
    users = grouped.sort(ROW).collect(engine="streaming")
    twice = users.filter(pl.col("len") > pl.col("arm"))
    if not twice.is_empty():
        raise DataError(
            f"{table}: {twice.height:,} users have several rows in one arm, the first is {twice['user'][0]!r} (row "
            f"{twice[ROW][0]}). One row per user is needed: add the outcomes up by user first."
        )
    return users["user"]


def _misplaced(frame: pl.LazyFrame, design: ExperimentDesign, rows: int) -> tuple[int, int]:
    """How many users were checked, and how many of them are in another arm than their hash says."""
    if design.salt is None:
        return 0, 0
    sample = pl.col("user").hash(1) % max(1, rows // CHECKED) == 0
    users = frame.filter(sample).select("user", "arm").collect(engine="streaming")
    expected = arm_of(users["user"], design.arms, design.salt).cast(pl.String)
    return users.height, int((users["arm"] != expected).sum())


def _winsorised(
    frame: pl.LazyFrame, design: ExperimentDesign, flow: Flow
) -> tuple[pl.LazyFrame, ExperimentDesign, Flow]:
    """Amounts above the agreed quantile of treatment and control together, as that quantile. One cap for all arms: of
    arms that are alike it makes no difference."""
    if (level := design.outcome.winsorise) is None:
        return frame, design, flow
    compared = pl.col("arm").is_in([design.treatment, design.control])
    value = pl.col("value 0")
    cap = frame.filter(compared).select(value.quantile(level)).collect(engine="streaming").item() or 0.0
    if cap <= 0:
        raise DataError(
            f"The {level:g} quantile of '{design.outcome.column}' is {cap:g}: so few users have an amount that "
            "outcome.winsorise leaves nothing of it. Take an outcome that happens more often, or agree on a cap."
        )
    above = frame.select((value > cap).sum()).collect(engine="streaming").item()
    return frame.with_columns(value.clip(upper_bound=cap)), design, replace(flow, capped=above, cap=cap)


def _aggregate(frame: pl.LazyFrame, design: ExperimentDesign, flow: Flow) -> Outcomes:
    columns = {name: f"value {place}" for place, name in enumerate((design.outcome.column, *design.covariates))}
    gaps = {f"{name} is missing": columns[name] for name in flow.missing}
    about = points_near(frame, list(columns.values())) | dict.fromkeys(gaps, 0.0)
    filled = frame.with_columns(
        *(pl.col(value).is_null().cast(pl.Float64).alias(name) for name, value in gaps.items()),
        *(pl.col(value).fill_null(about[value]) for value in gaps.values()),
    )
    values = [*columns.values(), *gaps]
    keys = ["arm", *(["segment"] if design.segment else []), *(["chosen"] if design.policies else [])]
    rows = filled.group_by(keys).agg(sums(values, about)).collect(engine="streaming").sort(keys)
    cells = tuple(
        CellMoments(row["arm"], row.get("segment"), row.get("chosen"), from_sums(row, values, about))
        for row in rows.iter_rows(named=True)
    )
    return Outcomes((*columns, *gaps), cells, flow)
