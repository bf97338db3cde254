"""merit tag: interests of items from their titles, and a file for a person to look through."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from merit.cli import options, output
from merit.core import console


def tag(
    file: Annotated[Path | None, typer.Argument(help="a TOML file with a [source]; or give --items")] = None,
    items: Annotated[Path | None, typer.Option(help="a table of items alone: item_id, title, …")] = None,
    out: Annotated[Path | None, typer.Option(help="the folder of the run; by default that of the file")] = None,
    override: options.Overrides = None,
    review: Annotated[Path | None, typer.Option(help="write all tags there as CSV, to be looked through")] = None,
    as_json: options.AsJson = False,
) -> None:
    """Give items tags: completed from tagged ones, from a vocabulary, mined from titles (docs/tags.md)."""
    from merit.core import tagging

    made = tagging.tag(file, items, out, override or [])
    rows = tagging.write_for_review(made, review) if review else 0
    if as_json:
        console.show_json(output.described(made) | ({"review": str(review), "rows": rows} if review else {}))
        return
    console.show_table(f"tags  {made.path}", ["figure", "value"], made.manifest.summary.items())
    output.show_frame("Examples", tagging.examples(made), lines=False)
    if review:
        console.tell(
            f"{rows:,} rows in {review}. Look through them, and read them back with --set tags.reviewed={review}.",
            rows=rows,
        )
