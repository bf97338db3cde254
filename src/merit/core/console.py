"""Progress, messages and results on the terminal. Programs get the same as JSON.

Progress and messages go to stderr, results to stdout, so that `merit … --json | jq` always works.
"""

from __future__ import annotations

import json
import logging
import os
import sys
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, TypeVar

from rich.console import Console
from rich.logging import RichHandler
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    SpinnerColumn,
    TextColumn,
    TimeElapsedColumn,
    TimeRemainingColumn,
)
from rich.table import Table

T = TypeVar("T")

log = logging.getLogger("merit")
stderr = Console(stderr=True, highlight=False)
EDGELESS = 400  # columns of a table in a file or a pipe, where nothing ends at eighty

_width = None if sys.stdout.isatty() or "COLUMNS" in os.environ else EDGELESS  # None: as the terminal or COLUMNS says
stdout = Console(highlight=False, soft_wrap=True, width=_width)


class JsonLines(logging.Formatter):
    """One JSON object a line; whatever was passed as `extra={"fields": {...}}` becomes keys of it."""

    def format(self, record: logging.LogRecord) -> str:
        """Times are in UTC with milliseconds; what JSON has no type for is written as text."""
        at = datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds")
        event = {"time": at, "level": record.levelname.lower(), "message": record.getMessage()}
        return json.dumps(event | getattr(record, "fields", {}), ensure_ascii=False, default=str)


def set_up_logging(verbose: bool = False, quiet: bool = False, log_file: Path | None = None) -> None:
    """Readable messages on the terminal; with `log_file`, everything as JSON lines as well."""
    log.handlers.clear()
    log.setLevel(logging.DEBUG)
    log.propagate = False
    screen = RichHandler(console=stderr, show_path=False, show_time=False, markup=False)
    screen.setLevel(logging.DEBUG if verbose else logging.WARNING if quiet else logging.INFO)
    log.addHandler(screen)
    if log_file:
        log_file.parent.mkdir(parents=True, exist_ok=True)
        lines = logging.FileHandler(log_file, encoding="utf-8")
        lines.setFormatter(JsonLines())
        log.addHandler(lines)


def mute() -> None:
    """Of a worker: no bars, since the one that began it has one for all."""
    stderr.quiet = True


def tell(message: str, **fields: Any) -> None:
    """Log an event: a sentence for the terminal, and fields for the JSON log."""
    log.info(message, extra={"fields": fields})


def warn(message: str, **fields: Any) -> None:
    """As `tell`, of what may be wrong: it is shown with `--quiet` too."""
    log.warning(message, extra={"fields": fields})


def _progress() -> Progress:
    return Progress(
        SpinnerColumn(),
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
        TimeRemainingColumn(),
        console=stderr,
        transient=True,
        disable=not stderr.is_terminal,
    )


def track(items: Iterable[T], description: str, total: int | None = None) -> Iterator[T]:
    """Iterate with a progress bar (none where stderr is not a terminal)."""
    with _progress() as progress:
        yield from progress.track(items, description=description, total=total)


@contextmanager
def steps(description: str, total: int, done: int = 0) -> Iterator[Callable[[str], None]]:
    """A bar for work in steps: call what it gives after each, with a word on how it goes."""
    with _progress() as progress:
        task = progress.add_task(description, total=total, completed=done)
        yield lambda status: progress.update(task, advance=1, description=f"{description}: {status}")


@contextmanager
def spinner(description: str) -> Iterator[None]:
    """A sign of life for work that has no countable parts."""
    if not stderr.is_terminal:
        yield
        return
    with stderr.status(description):
        yield


def show_json(value: Any) -> None:
    """Print JSON on stdout; what JSON has no type for is written as text."""
    sys.stdout.write(json.dumps(value, ensure_ascii=False, indent=2, default=str) + "\n")


def show_table(title: str, columns: list[str], rows: Iterable[Iterable[Any]]) -> None:
    """Print a table on stdout: whole numbers with thousands set apart, texts with rich's markup in effect."""
    table = Table(*columns, title=title, title_justify="left", header_style="bold", title_style="bold")
    for row in rows:
        table.add_row(*(_cell(cell) for cell in row))
    stdout.print(table)


def _cell(value: Any) -> str:
    return f"{value:,}" if isinstance(value, int) and not isinstance(value, bool) else str(value)
