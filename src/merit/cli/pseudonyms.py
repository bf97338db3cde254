"""merit pseudonyms: keys that keep real ids out of a run, and the way back for whoever holds one."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from merit.core import console
from merit.privacy import pseudonyms
from merit.privacy.restore import restore as stage

pseudonyms_app = typer.Typer(help="Keep real ids out of a run: make a key, find ids again.", no_args_is_help=True)


@pseudonyms_app.command()
def key(file: Annotated[Path, typer.Argument(help="the file to write, outside every run")]) -> None:
    """Make a key, and keep a copy of it safe: without it nobody can be looked up or erased by their id."""
    made = pseudonyms.create(file)
    console.tell(f'key {made.number} in {file}. Use it: [source] pseudonyms = "{file}"', key=made.number)


@pseudonyms_app.command(name="of")
def pseudonyms_of(ids: Annotated[list[str], typer.Argument(help="real ids")]) -> None:
    """Print the pseudonym of each id, one a line, by the key of `merit --key FILE`."""
    for each in pseudonyms.in_use().of(ids):
        console.stdout.print(each, markup=False)


@pseudonyms_app.command()
def restore(
    file: Annotated[Path, typer.Argument(help="a table with pseudonyms, such as an export")],
    ids: Annotated[Path, typer.Option(help="a table with the real ids of all of them, such as the run's interactions")],
    out: Annotated[Path, typer.Option(help="the file to write: .parquet, .csv or .jsonl, outside every run")],
    column: Annotated[str, typer.Option(help="of the ids, in their table")] = "user_id",
) -> None:
    """Write an export with real ids in place of pseudonyms, by the key of `merit --key FILE`."""
    rows = stage(file, ids, out, column)
    console.tell(f"{rows:,} users with their real ids in {out}", rows=rows, file=str(out))
