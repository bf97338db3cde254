"""A table with one row per user → sufficient statistics, in two passes over any number of rows.

The first pass looks for what must not be averaged away: rows that cannot be read, users that come twice, users in both
arms, users exposed before they were assigned. The second adds up. Only a 64-bit hash per user is ever held in memory.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from pathlib import Path

import polars as pl

from merit.campaigns.experiments.assign import arm_of
from merit.campaigns.experiments.design import ExperimentDesign
from merit.campaigns.experiments.moments import Moments, from_sums, points_near, sums
from merit.campaigns.tables import column_in, find, repeated, scans
from merit.core.errors import DataError
from merit.data import times
from merit.data.schema import FILE, ROW
from merit.data.sources import files
from merit.privacy import pseudonyms

CHECKED = 200_000  # users whose arm is compared with their hash: 0.01 % of wrong ones do not get past so many
MOST_SEGMENTS = 1_000
ABSENT = "(none)"  # the segment of users without one
CHOSEN = ("treatment only", "control only", "both", "neither")  # by which of two targeting rules


@dataclass(frozen=True)
class CellMoments:
    """Users who cannot be told apart by arm, segment and rules."""

    arm: str
    segment: str | None
    chosen: str | None
    moments: Moments


@dataclass(frozen=True)
class Flow:
    """What became of the rows on the way to the analysis."""

    rows: int
    crossovers: int = 0
    """Users in more than one arm. They are left out of all."""
    checked: int = 0
    misplaced: int = 0
    """Of the users checked: recorded in another arm than their hash says."""
    early: int = 0
    """Exposed before they were assigned."""
    capped: int = 0
    missing: dict[str, int] = field(default_factory=dict)
    """Covariate → users without it. They stay: they get a constant, and having none becomes a covariate."""


@dataclass(frozen=True)
class Outcomes:
    """What an analysis is made from, whether a table of users or a file of statistics was given."""

    names: tuple[str, ...]
    """Of the columns of the moments: outcome, covariates, and "… is missing" where some are."""
    cells: tuple[CellMoments, ...]
    flow: Flow | None
    """None where only statistics are known."""


def tabulate(design: ExperimentDesign, table: Path) -> Outcomes:
    """Read, check and add up. Raises where a number would be silently wrong."""
    found = find(table, "--table")
    with files.reading(found):
        frame = pl.concat([_understood(scan, design, file) for scan, file in scans(found, table)])
        flow = _examined(frame, design, table)
        crossed = _crossovers(frame, table)
        frame = frame.filter(~pl.col("user").is_in(crossed.implode())) if len(crossed) else frame
        checked, misplaced = _compared_with_hashes(frame, design, flow.rows)
        cells, names = _added_up(frame, design, flow)
    return Outcomes(names, cells, replace(flow, crossovers=len(crossed), checked=checked, misplaced=misplaced))


# --- what the columns mean -------------------------------------------------------------------------------------------


def _understood(frame: pl.LazyFrame, design: ExperimentDesign, file: str) -> pl.LazyFrame:
    """Our columns of one scan: user, arm, segment, chosen, early; value, bad, capped, raw of outcome and covariates."""
    for name in (design.user, design.arm):
        column_in(frame, name, file)
    values = [
        part
        for place, name in enumerate((design.outcome.column, *design.covariates))
        for part in _value(frame, name, place, design, file)
    ]
    return frame.select(
        pseudonyms.column(design.user).alias("user"),
        pl.col(design.arm).cast(pl.String).alias("arm"),
        _segment(frame, design, file).alias("segment"),
        _chosen(frame, design, file).alias("chosen"),
        _early(frame, design, file).alias("early"),
        *values,
        pl.col(FILE),
        pl.col(ROW).cast(pl.Int64),
    )


def _value(frame: pl.LazyFrame, name: str, place: int, design: ExperimentDesign, file: str) -> list[pl.Expr]:
    number = _number(frame, name, file)
    readable = number.is_finite().fill_null(False)
    if place == 0:
        good = readable & number.is_in([0.0, 1.0]) if design.outcome.kind == "binary" else readable
        bad = ~good
        capped = number.clip(upper_bound=design.outcome.cap) if design.outcome.cap else number
    else:
        good, capped = readable, number
        bad = ~good & pl.col(name).is_not_null() & ~number.is_nan().fill_null(False)
    return [
        pl.when(good).then(capped).alias(f"value {place}"),
        bad.alias(f"bad {place}"),
        (number != capped).alias(f"capped {place}"),
        pl.col(name).cast(pl.String).alias(f"raw {place}"),
    ]


def _number(frame: pl.LazyFrame, name: str, file: str) -> pl.Expr:
    """Numbers as they are; of text, what reads as a number; null where it does not."""
    dtype = column_in(frame, name, file)
    raw = pl.col(name)
    if isinstance(dtype, pl.String):
        words = {"true": "1", "false": "0"}
        return raw.str.strip_chars().str.to_lowercase().replace(words).cast(pl.Float64, strict=False)
    if dtype.is_numeric() or isinstance(dtype, pl.Boolean | pl.Null):
        return raw.cast(pl.Float64)
    raise DataError(f"{file}: column '{name}' holds {dtype}, but numbers are needed. Convert it.")


def _segment(frame: pl.LazyFrame, design: ExperimentDesign, file: str) -> pl.Expr:
    if design.segment is None:
        return pl.lit(None, pl.String)
    column_in(frame, design.segment, file)
    return pl.col(design.segment).cast(pl.String).fill_null(ABSENT)


def _chosen(frame: pl.LazyFrame, design: ExperimentDesign, file: str) -> pl.Expr:
    """Null where a rule is not logged."""
    if design.policies is None:
        return pl.lit(CHOSEN[-1])
    treatment, control = (
        _number(frame, name, file) != 0 for name in (design.policies.treatment, design.policies.control)
    )
    only, other, both, neither = (pl.lit(word) for word in CHOSEN)
    known = treatment.is_not_null() & control.is_not_null()
    apart = pl.when(treatment & ~control).then(only).when(~treatment & control).then(other)
    return pl.when(known).then(apart.when(treatment).then(both).otherwise(neither))


def _early(frame: pl.LazyFrame, design: ExperimentDesign, file: str) -> pl.Expr:
    """Not exposed, or at an unknown time: nothing to hold against the user."""
    if design.assigned_at is None or design.exposed_at is None:
        return pl.lit(False)
    assigned, exposed = (_instant(frame, name, file) for name in (design.assigned_at, design.exposed_at))
    return (exposed < assigned).fill_null(False)


def _instant(frame: pl.LazyFrame, name: str, file: str) -> pl.Expr:
    dtype = column_in(frame, name, file)
    if not times.readable(dtype):
        raise DataError(f"{file}: column '{name}' holds {dtype}, but times are needed. Convert it.")
    return times.instants(pl.col(name), dtype, "UTC")


# --- first pass ------------------------------------------------------------------------------------------------------


def _examined(frame: pl.LazyFrame, design: ExperimentDesign, table: Path) -> Flow:
    columns = (design.outcome.column, *design.covariates)
    nobody = pl.col("user").is_null() | (pl.col("user") == "")
    foreign = ~pl.col("arm").is_in(list(design.arms)).fill_null(False)
    faults = {
        "an empty user id": (nobody, "user"),
        f"an arm that the design does not have ({', '.join(design.arms)})": (foreign, "arm"),
        "a targeting rule that was not logged, or is neither yes nor no": (pl.col("chosen").is_null(), "user"),
        **{
            f"'{name}' that is not {_wanted(design, place)}": (pl.col(f"bad {place}"), f"raw {place}")
            for place, name in enumerate(columns)
        },
    }
    counted = frame.select(
        pl.len(),
        pl.col("early").sum(),
        pl.col("capped 0").sum(),
        pl.col("segment").approx_n_unique(),
        *(fault.sum().alias(f"fault {place}") for place, (fault, _) in enumerate(faults.values())),
        *(pl.col(f"value {place}").null_count().alias(f"missing {place}") for place in range(1, len(columns))),
    ).collect(engine="streaming")
    row = counted.row(0, named=True)
    if not row["len"]:
        raise DataError(f"{table} has no rows. Export the outcomes of all assigned users, buyers or not.")
    for place, (what, (fault, shown)) in enumerate(faults.items()):
        if count := row[f"fault {place}"]:
            raise DataError(_first_fault(frame.filter(fault), shown, what, count))
    if row["segment"] > MOST_SEGMENTS:
        raise DataError(
            f"{table}: '{design.segment}' has about {row['segment']:,} different values; at most {MOST_SEGMENTS:,} can "
            "be compared. Group them first."
        )
    missing = {name: row[f"missing {place}"] for place, name in enumerate(columns) if place}
    return Flow(
        rows=row["len"],
        early=row["early"],
        capped=row["capped 0"],
        missing={name: count for name, count in missing.items() if count},
    )


def _wanted(design: ExperimentDesign, place: int) -> str:
    if place:
        return "a number"
    return "0 or 1 (fill 0 in for users who did not convert)" if design.outcome.kind == "binary" else "a number"


def _first_fault(rows: pl.LazyFrame, shown: str, what: str, count: int) -> str:
    file, row, value = rows.select(FILE, ROW, shown).head(1).collect(engine="streaming").row(0)
    others = f", and {count - 1:,} more such rows" if count > 1 else ""
    return f"{file}, row {row} has {what}: {'nothing' if value is None else repr(value[:40])}{others}. Mend the table."


def _crossovers(frame: pl.LazyFrame, table: Path) -> pl.Series:
    """Users in more than one arm. One row per user and arm, or no answer: a user counted twice is a false certainty."""
    again = repeated(frame, "user")["user"]
    if again.is_empty():
        return again
    rows = frame.filter(pl.col("user").is_in(again.implode()))
    users = rows.group_by("user").agg(pl.len(), pl.col("arm").n_unique(), pl.col(ROW).min())
    found = users.sort(ROW).collect(engine="streaming")
    twice = found.filter(pl.col("len") > pl.col("arm"))
    if not twice.is_empty():
        raise DataError(
            f"{table}: {twice.height:,} users have several rows in one arm, the first is {twice['user'][0]!r} (row "
            f"{twice[ROW][0]}). One row per user is needed: add the outcomes up by user first."
        )
    return found["user"]


def _compared_with_hashes(frame: pl.LazyFrame, design: ExperimentDesign, rows: int) -> tuple[int, int]:
    if design.salt is None:
        return 0, 0
    every = max(1, rows // CHECKED)
    some = frame.filter(pl.col("user").hash(1) % every == 0).select("user", "arm").collect(engine="streaming")
    expected = arm_of(some["user"], design.arms, design.salt).cast(pl.String)
    return some.height, int((some["arm"] != expected).sum())


# --- second pass -----------------------------------------------------------------------------------------------------


def _added_up(
    frame: pl.LazyFrame, design: ExperimentDesign, flow: Flow
) -> tuple[tuple[CellMoments, ...], tuple[str, ...]]:
    columns = {name: f"value {place}" for place, name in enumerate((design.outcome.column, *design.covariates))}
    about = points_near(frame, list(columns.values()))
    gaps = {f"{name} is missing": columns[name] for name in flow.missing}
    about |= dict.fromkeys(gaps, 0.0)
    filled = frame.with_columns(
        *(pl.col(value).is_null().cast(pl.Float64).alias(name) for name, value in gaps.items()),
        *(pl.col(value).fill_null(about[value]) for value in gaps.values()),
    )
    values = [*columns.values(), *gaps]
    keys = ["arm", *(["segment"] if design.segment else []), *(["chosen"] if design.policies else [])]
    found = filled.group_by(keys).agg(sums(values, about)).collect(engine="streaming").sort(keys)
    cells = tuple(
        CellMoments(row["arm"], row.get("segment"), row.get("chosen"), from_sums(row, values, about))
        for row in found.iter_rows(named=True)
    )
    return cells, (*columns, *gaps)
