"""merit audit: what must be answered for, and whether its log is what was written."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated

import typer
from rich.markup import escape

from merit.cli.options import AsJson
from merit.core import console
from merit.privacy import audit

audit_app = typer.Typer(
    help="The log of exports, overrides, erasures and keys: show it, verify it.", no_args_is_help=True
)
Logged = Annotated[Path, typer.Argument(help="a folder with a log, or with folders that have one")]


@audit_app.command()
def show(folder: Logged, as_json: AsJson = False) -> None:
    """Tell what was done, the oldest first."""
    logs = {str(place): audit.read(place) for place in audit.logs(folder)}
    if as_json:
        console.show_json({name: [entry.model_dump() for entry in entries] for name, entries in logs.items()})
        return
    for name, entries in logs.items():
        rows = [(each.number, each.at, each.event, escape(json.dumps(each.told))) for each in entries]
        console.show_table(escape(name), ["number", "at", "event", "told"], rows)


@audit_app.command()
def verify(
    folder: Logged,
    expect: Annotated[str | None, typer.Option(help="a head that was noted earlier: it must still be in a log")] = None,
    as_json: AsJson = False,
) -> None:
    """Tell whether every line is what was written, and name the first that is not. The exit code is 1 if one is not."""
    found = {str(place): audit.verify(place) for place in audit.logs(folder)}
    faults = [f"{name}: {told.fault}" for name, told in found.items() if told.fault]
    if expect and not any(audit.holds(place, expect) for place in audit.logs(folder)):
        faults.append(f"No log below {folder} has the entry {expect}: lines were removed, or the log was written anew.")
    if as_json:
        console.show_json({name: told.model_dump() for name, told in found.items()})
    for name, told in found.items() if not as_json else ():
        torn = f"; {told.torn} bytes of a last line were cut short by a crash" if told.torn else ""
        console.stdout.print(f"{name}: {told.entries} entries, head {told.head}{torn}", markup=False, soft_wrap=True)
    for fault in faults:
        console.stderr.print(f"[bold red]fault[/] {escape(fault)}", soft_wrap=True)
    if faults:
        raise typer.Exit(1)
