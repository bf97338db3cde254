"""How answers are shown, and settings read: what the commands share."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rich.markup import escape

from merit.core import artifacts, config, console
from merit.privacy import pseudonyms

if TYPE_CHECKING:
    import polars as pl

    from merit.core.settings import RunConfig


def settings(file: Path, override: list[str] | None) -> RunConfig:
    """The whole configuration. Its trainings bring torch along: three seconds that other commands need not wait."""
    from merit.core.settings import RunConfig

    asked = config.load(RunConfig, file, override or [])
    if key := getattr(asked.source, "pseudonyms", None):
        pseudonyms.require_apart(key, asked.out)
    return asked


def engine_words(engine: str | None, workers: int | None, threads: int | None, address: str | None) -> list[str]:
    """What was said about the engine, as overrides of its section."""
    said = {"runner": engine, "workers": workers, "threads": threads, "address": address}
    return [f"engine.{name}={value}" for name, value in said.items() if value is not None]


def described(artifact: artifacts.Artifact) -> dict[str, Any]:
    """An artifact for `--json`: its folder, kind and hash, and the summary of its manifest."""
    return {"folder": str(artifact.path), "kind": artifact.manifest.kind, "hash": artifact.manifest.hash} | {
        "summary": artifact.manifest.summary
    }


def show_frame(title: str, frame: pl.DataFrame, lines: bool) -> None:
    """A frame on stdout: as JSON lines with every digit, or as a table with four figures of a number."""
    if lines:
        sys.stdout.write(frame.write_ndjson())
    else:
        rows = [[plain(short(cell)) for cell in row] for row in frame.rows()]
        console.show_table(escape(title), frame.columns, rows)


def plain(cell: Any) -> Any:
    """Brackets in what people and products are called are no markup."""
    return escape(cell) if isinstance(cell, str) else cell


def short(cell: Any) -> Any:
    """Four figures of a number with a point; whatever else it is, as it is."""
    return f"{cell:.4g}" if isinstance(cell, float) else cell


def show(artifact: artifacts.Artifact) -> None:
    """The manifest in lines for people, on stdout; `described` is the same for programs."""
    console.stdout.print(artifacts.describe(artifact))
