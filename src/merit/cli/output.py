"""What commands print: artifacts, frames and the addresses of pages."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any

from rich.markup import escape

from merit.core import artifacts, console

if TYPE_CHECKING:
    import polars as pl


def described(artifact: artifacts.Artifact) -> dict[str, Any]:
    """An artifact for `--json`: its folder, kind and hash, and the summary of its manifest."""
    manifest = artifact.manifest
    return {"folder": str(artifact.path), "kind": manifest.kind, "hash": manifest.hash, "summary": manifest.summary}


def show_frame(title: str, frame: pl.DataFrame, lines: bool) -> None:
    """Print a frame: as JSON lines with every digit, or as a table with four digits of a number."""
    if lines:
        sys.stdout.write(frame.write_ndjson())
    else:
        console.show_table(escape(title), frame.columns, [[short(cell) for cell in row] for row in frame.rows()])


def short(cell: Any) -> Any:
    """A cell of a table: four digits of a float, and a text whose brackets are no markup."""
    return f"{cell:.4g}" if isinstance(cell, float) else escape(cell) if isinstance(cell, str) else cell


def point_to_page(artifact: artifacts.Artifact) -> None:
    """Print the address of the page of an artifact."""
    console.stdout.print(f"Open {artifact.file('index.html').resolve().as_uri()} in a browser.")


def show(artifact: artifacts.Artifact) -> None:
    """Print the manifest as text; `described` is the same for programs."""
    console.stdout.print(artifacts.describe(artifact))
