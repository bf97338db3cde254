"""A data sheet, written by the tool: what a data set holds, how it was read, and what its owner has to add.

The questions are those of Gebru et al., Datasheets for Datasets (2021), as far as they matter for a log of a shop. What
the tables can answer is answered; the rest stands as a question, for no program knows who consented to what.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from merit import __version__
from merit.data.report.summary import DataFacts
from merit.report.page import SMALLEST_CELL, large_enough

OPEN = {
    "Why and by whom": (
        "For what purpose was the log written, and who paid for it?",
        "Who answers questions about it?",
    ),
    "People in it": (
        "How were users told that their purchases are recorded, and did they consent to being addressed?",
        "Are there minors, patients or others among them who need protection?",
        "For how long may the rows be kept, and who erases them at the source (`merit erase` does so here)?",
    ),
    "Before it came here": (
        "Which shops, channels or months are missing?",
        "Were bots, employees, tests and returns taken out?",
        "Who wrote the tags: people, suppliers, or a model?",
    ),
}


def write(facts: DataFacts, source: Mapping[str, Any], prepared: Mapping[str, Any], labels: Mapping[str, Any]) -> str:
    """Markdown. `source`: its settings; `prepared` and `labels`: the summaries of the two artifacts."""
    parts = [
        "# Data sheet",
        f"Written by merit {__version__} from the prepared tables. Lines with a box are for the owner of the data to "
        "answer.",
        "## What it holds",
        _lines(_composition(facts, labels)),
        _verticals(facts),
        "## How it was read",
        _lines(_reading(source, prepared)),
        "## What is to be predicted",
        _lines(_targets(facts, prepared)),
        *(part for title, asked in OPEN.items() for part in (f"## {title}", _lines(f"[ ] {each}" for each in asked))),
        "## Not for",
        "Decisions about single people in credit, housing, employment, health or insurance. Tags are what products are "
        "called, not what people are; a purchase may be a gift.",
    ]
    return "\n\n".join(parts) + "\n"


def _composition(facts: DataFacts, labels: Mapping[str, Any]) -> list[str]:
    first, last = facts.span or (None, None)
    kinds = ", ".join(f"{count:,} × {event}" for event, count in facts.types.select("event", "events").iter_rows())
    return [
        f"{facts.events:,} interactions of {_people(facts.users)} with {facts.items:,} items"
        + (f", {first:%Y-%m-%d} to {last:%Y-%m-%d} (UTC)" if first and last else ""),
        f"By kind: {kinds}",
        f"{labels['labels']:,} labels, {labels['live']:,} of them live; {labels['blocked']:,} are blocked, "
        f"{labels['merged']:,} further texts became no label of their own (merged.parquet says why)",
        f"{facts.rare_share:.1%} of the labels occur in fewer than five events; the most frequent hundredth of them is "
        f"{facts.top_gold_share:.1%} of all targets",
        f"{labels['items_without_labels']:,} items carry no label: they are history and never a target",
    ]


def _verticals(facts: DataFacts) -> str:
    shown = large_enough(facts.verticals).head(20)
    if not len(shown):
        return f"No vertical has {SMALLEST_CELL} users; none is shown."
    rows = [
        f"| {str(name).replace('|', '/')} | {events:,} | {share:.1%} |"
        for name, events, share in shown.select("vertical", "events", "share").iter_rows()
    ]
    return "\n".join(["| vertical | events | share |", "|---|---|---|", *rows])


def _reading(source: Mapping[str, Any], prepared: Mapping[str, Any]) -> list[str]:
    aside = f"{prepared['set_aside']:,} rows set aside (quarantine.parquet says why)"
    told = [f"Source: {source.get('kind', 'tables')}, {aside}"]
    if zone := source.get("time_zone"):
        told.append(f"Times without a zone were read in {zone}")
    if event := source.get("default_event"):
        told.append(f"The table names no events: every row was taken as a {event}")
    if extra := source.get("extra_tags"):
        told.append(f"Further columns that became tags: {', '.join(extra)}")
    return told


def _targets(facts: DataFacts, prepared: Mapping[str, Any]) -> list[str]:
    splits = ", ".join(f"{prepared[name]:,} for {name}" for name in ("train", "validation", "test"))
    return [
        f"{facts.examples:,} examples of {_people(facts.example_users)}: {splits}; a user is in one split for ever",
        "An example is what a user did before a purchase, without the last days before it, and the labels of what was "
        "bought",
        f"{facts.repeat_share:.1%} of the labels to be found were in the user's history already",
    ]


def _people(count: int) -> str:
    return f"{count:,} users" if count >= SMALLEST_CELL else f"fewer than {SMALLEST_CELL} users"


def _lines(sentences: Iterable[str]) -> str:
    return "\n".join(f"- {each}" if each.startswith("[ ]") else f"- {each}." for each in sentences)
