"""merit erase: users who are to be forgotten."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from merit.cli.options import AsJson
from merit.cli.serve import DEFAULT_STATE
from merit.core import console
from merit.core.errors import ConfigError
from merit.privacy.erasure import erase as stage
from merit.privacy.erasure.workspace import id_forms

RUNS = Path("runs")


def erase(
    users: Annotated[list[str] | None, typer.Argument(metavar="USER", help="ids, as in the interactions")] = None,
    folder: Annotated[
        list[Path] | None,
        typer.Option(help="all below it is purged: runs, audiences, exports, a service; may be repeated"),
    ] = None,
    file: Annotated[Path | None, typer.Option(help="more ids, one in each line")] = None,
    reason: Annotated[str, typer.Option(help="kept in the certificate; name nobody")] = "",
    dry_run: Annotated[bool, typer.Option("--dry-run", help="tell what holds them, and change nothing")] = False,
    as_json: AsJson = False,
) -> None:
    """Hide users at once, purge them from every file, and write a certificate. Without users, finish what was begun."""
    folders = folder or [place for place in (RUNS, DEFAULT_STATE) if place.is_dir()]
    if not folders:
        raise ConfigError(f"There is no {RUNS} here, and no {DEFAULT_STATE}. Name the folders with --folder.")
    asked = id_forms([*(users or []), *(_lines(file) if file else [])], folders)
    if dry_run:
        rows = [
            (each.path, each.manifest.kind, held.rows, len(held.files)) for each, held in stage.plan(folders, asked)
        ]
        console.show_table("Would be purged", ["folder", "kind", "rows", "files"], rows)
        return
    made = stage.erase(folders, asked, reason) if asked else stage.finish(folders)
    told = stage.certificate_of(made)
    if as_json:
        console.show_json(told.model_dump(mode="json"))
    else:
        console.stdout.print(made.file("certificate.txt").read_text(encoding="utf-8"), markup=False, soft_wrap=True)
        console.stdout.print(f"The certificate is {made.path}.", soft_wrap=True)
    if not told.clean:
        raise typer.Exit(1)


def _lines(file: Path) -> list[str]:
    try:
        return [line for line in file.read_text(encoding="utf-8").splitlines() if line]
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"{file} cannot be read ({type(error).__name__}). Name a text file of ids.") from None
