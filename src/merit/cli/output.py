"""What commands print: artifacts, frames and the addresses of pages."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any

from rich.markup import escape

from merit.core import artifacts, console

if TYPE_CHECKING:
    import polars as pl

    from merit.campaigns.sync.rows import SyncCounts


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


def show_sync(counts: SyncCounts, to: str, dry_run: bool, as_json: bool) -> None:
    """Print what a sync changed at a destination, or would change."""
    if as_json:
        console.show_json(counts.model_dump() | {"written": 0 if dry_run else counts.written})
        return
    rows = [(name, f"{count:,}") for name, count in counts.model_dump().items()]
    console.show_table(escape(f"{'To be written' if dry_run else 'Written'}: {to}"), ["rows", ""], rows)
