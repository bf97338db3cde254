"""The page of a model's refreshes, and what its card says about them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import polars as pl

from merit.refresh.drift import NAMES
from merit.refresh.watch import Record
from merit.report import charts
from merit.report.page import Chart, Page, Section, Table, Tile, count, number, percent, render

CARD = "\n## Refreshed\n"


def render_watch(records: Sequence[Record], run: Path) -> str:
    """The page as HTML."""
    last = records[-1]
    tiles = [Tile("Data until", last.until, f"trained until {last.trained_until}"), Tile("Users", count(last.users))]
    tiles += [
        Tile(NAMES[name].capitalize(), f"PSI {drift.value:.2f}", f"chance {drift.chance:.2f}")
        for name, drift in last.drifts.items()
    ]
    sections = [Section("Verdict", [last.verdict]), _refreshes(records), _drift(records), _calibration(last)]
    return render(
        Page(
            "Refreshes", f"{run.name}: what came since the training, and whether the model still fits", sections, tiles
        )
    )


def refreshed_card(card: str, record: Record, summary: Mapping[str, Any]) -> str:
    """A model card that says until when its data goes now."""
    return (
        f"{card.split(CARD, maxsplit=1)[0]}{CARD}\nThe weights are those of the training; histories, trends and new "
        f"labels are of data until {record.until}: {summary['since']:,} events since the training, "
        f"{summary['users']:,} users. "
        f"{record.verdict}\n"
    )


def _refreshes(records: Sequence[Record]) -> Section:
    rows = [
        {
            "until": record.until,
            "events": record.events,
            "new users": record.new_users,
            "new items": record.new_items,
            "new labels": record.new_labels,
            "encoded": record.encoded,
            "unknown items": record.unknown_items,
            "recall at 10": record.kept.recall_at_10 if record.kept else None,
            "log loss": record.kept.log_loss if record.kept else None,
        }
        for record in records
    ]
    formats = {"unknown items": "percent", "recall at 10": "percent"}
    note = "Recall and log loss: of the version before each refresh, on a purchase of everyone who bought since."
    return Section("Refreshes", tables=[Table("All of them", pl.DataFrame(rows), formats, note, wide=True)])  # type: ignore[arg-type]


def _drift(records: Sequence[Record]) -> Section:
    rows = [
        {"until": record.until, "what": NAMES[name], "psi": drift.value, "by chance": drift.chance}
        for record in records
        for name, drift in record.drifts.items()
    ]
    if not rows:
        return Section("Drift", ["Too few users bought anything to tell."])
    frame = pl.DataFrame(rows)
    last = frame.filter(pl.col("until") == records[-1].until).unique("what", keep="last", maintain_order=True)
    bars = charts.bars(last, "what", "psi", description="Population stability index by figure", form="number")
    text = (
        "Population stability index against the days before the end of the training; beyond 0.2 is much. By chance: "
        "what one refresh in a hundred has without any drift."
    )
    return Section("Drift", [text], charts=[Chart("Since the training", bars)], tables=[Table("By refresh", frame)])


def _calibration(record: Record) -> Section:
    if record.kept is None:
        return Section("Probabilities", ["Too few users bought anything since to compare."])
    kept = record.kept
    frame = pl.DataFrame(
        [
            {
                "probability": f"{percent(low)} to {percent(high)}",
                "pairs": pairs,
                "expected": expected,
                "bought": bought,
            }
            for low, high, pairs, expected, bought in kept.bins
            if pairs
        ]
    )
    text = (
        f"The version before promised {count(kept.expected)} labels to {count(kept.users)} users in a purchase each; "
        f"{count(kept.observed)} were bought, {number(kept.deviation)} standard deviations apart."
    )
    return Section("Probabilities", [text], tables=[Table("Expected against bought", frame, wide=True)])
