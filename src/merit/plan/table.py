"""A plan as people and machines read it: one row for each stage, and what they come to."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from merit.core import console
from merit.core.config import Frozen


class Row(Frozen):
    """What one stage is planned to take."""

    stage: str
    tokens: float
    """Positions a language model reads or writes."""
    seconds: float
    memory: float
    """Bytes at the peak, on each device."""
    disk: float
    """Bytes that stay, and those of checkpoints until the stage is finished."""
    basis: str
    """measured (a probe), counted (arithmetic on counted sizes) or estimated."""


class Measured(Frozen):
    """What a stage took."""

    seconds: float
    memory: float
    disk: float


class Plan(Frozen):
    """Stages in the order of the run; with --json, `merit plan` prints these fields."""

    rows: tuple[Row, ...]
    facts: dict[str, str]
    """What is planned for, in words: the model, its memory, the sizes of the data."""
    notes: tuple[str, ...]
    """What is assumed."""

    @property
    def total(self) -> Row:
        """Times and disk add up; memory is that of the largest stage."""
        return Row(
            stage="total",
            tokens=sum(row.tokens for row in self.rows),
            seconds=sum(row.seconds for row in self.rows),
            memory=max(row.memory for row in self.rows),
            disk=sum(row.disk for row in self.rows),
            basis="",
        )


def show(plan: Plan, title: str) -> None:
    """Print facts, stages with their total, and below them what is assumed."""
    console.show_table(title, ["what", ""], plan.facts.items())
    columns = ["stage", "tokens", "time", "peak memory", "disk", "by"]
    console.show_table("", columns, [_cells(row) for row in (*plan.rows, plan.total)])
    for note in plan.notes:
        console.stdout.print(f"- {note}")


def compare(plan: Plan, measured: Mapping[str, Measured]) -> list[dict[str, Any]]:
    """Planned over measured, stage by stage and for those together that have a record."""
    both = [row for row in plan.rows if row.stage in measured]
    total = Measured(
        seconds=sum(measured[row.stage].seconds for row in both),
        memory=max((measured[row.stage].memory for row in both), default=0),
        disk=sum(measured[row.stage].disk for row in both),
    )
    whole = Plan(rows=tuple(both), facts={}, notes=()).total
    return [_compared(row, measured[row.stage]) for row in both] + [_compared(whole, total)]


def show_comparison(compared: Sequence[Mapping[str, Any]]) -> None:
    """Print the rows of `compare`; a ratio above 1 means that more was planned than was taken."""
    columns = ["stage", "planned", "measured", "ratio", "ratio of memory", "of disk"]
    rows = [
        [row["stage"], *(duration(row["seconds"][name]) for name in ("planned", "measured"))]
        + [f"{row[name]['ratio']:.2f}" for name in ("seconds", "memory", "disk")]
        for row in compared
    ]
    console.show_table("planned and measured", columns, rows)


def _compared(row: Row, measured: Measured) -> dict[str, Any]:
    pairs = {name: (getattr(row, name), getattr(measured, name)) for name in ("seconds", "memory", "disk")}
    return {"stage": row.stage} | {
        name: {"planned": planned, "measured": real, "ratio": planned / max(real, 1e-9)}
        for name, (planned, real) in pairs.items()
    }


def _cells(row: Row) -> list[str]:
    memory = size(row.memory) if row.memory else "–"
    return [row.stage, count(row.tokens), duration(row.seconds), memory, size(row.disk), row.basis]


def duration(seconds: float) -> str:
    """Seconds up to two minutes, minutes up to two hours, then hours."""
    if seconds < 120:
        return f"{seconds:.1f} s"
    return f"{seconds / 60:.1f} min" if seconds < 7200 else f"{seconds / 3600:.1f} h"


def size(count: float) -> str:
    """Bytes."""
    unit = next((unit for unit in ("MiB", "GiB", "TiB") if count < 1024 ** (UNITS[unit] + 1)), "TiB")
    return f"{count / 1024 ** UNITS[unit]:,.1f} {unit}"


UNITS = {"MiB": 2, "GiB": 3, "TiB": 4}


def count(number: float) -> str:
    """Of tokens or parameters."""
    for limit, unit in ((1e9, "bn"), (1e6, "m")):
        if number >= limit:
            return f"{number / limit:,.2f} {unit}"
    return f"{number:,.0f}" if number else "–"
