"""merit erase, pseudonyms and audit: users to erase, keys of pseudonyms, and the log of what was done."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated

import typer
from rich.markup import escape

from merit.cli.options import AsJson, group
from merit.cli.serve import DEFAULT_STATE
from merit.core import console
from merit.core.errors import ConfigError
from merit.privacy import audit, pseudonyms
from merit.privacy.erasure import erase as erasure
from merit.privacy.erasure.workspace import id_forms
from merit.privacy.restore import restore as restore_ids

RUNS = Path("runs")


def erase(
    users: Annotated[list[str] | None, typer.Argument(metavar="USER", help="ids, as in the interactions")] = None,
    folder: Annotated[
        list[Path] | None,
        typer.Option(help="all below it is purged: runs, audiences, exports, a service; may be repeated"),
    ] = None,
    file: Annotated[Path | None, typer.Option(help="more ids, one in each line")] = None,
    reason: Annotated[str, typer.Option(help="kept in the certificate; do not name a user in it")] = "",
    dry_run: Annotated[bool, typer.Option("--dry-run", help="show what holds them, and change nothing")] = False,
    take_back: Annotated[
        bool,
        typer.Option("--take-back", help="show the users of an erasure again that failed before it purged anything"),
    ] = False,
    as_json: AsJson = False,
) -> None:
    """Hide users at once, purge them from every file, and write a certificate. Without users, finish an erasure."""
    folders = folder or [path for path in (RUNS, DEFAULT_STATE) if path.is_dir()]
    if not folders:
        raise ConfigError(f"There is no {RUNS} here, and no {DEFAULT_STATE}. Name the folders with --folder.")
    if take_back:
        if users or file:
            raise ConfigError("--take-back is for the erasure that waits, as a whole. Leave the users out.")
        console.tell(f"{erasure.take_back(folders):,} users are shown again. Nothing was erased.")
        return
    ids = id_forms([*(users or []), *(_lines(file) if file else [])], folders)
    if dry_run:
        plan = [(held.artifact, held) for held in erasure.plan(folders, ids)]
        rows = [(artifact.path, artifact.manifest.kind, held.rows, len(held.files)) for artifact, held in plan]
        console.show_table("Would be purged", ["folder", "kind", "rows", "files"], rows)
        return
    made = erasure.erase(folders, ids, reason) if ids else erasure.finish(folders)
    certificate = erasure.certificate_of(made)
    if as_json:
        console.show_json(certificate.model_dump(mode="json"))
    else:
        console.stdout.print(made.file("certificate.txt").read_text(encoding="utf-8"), markup=False, soft_wrap=True)
        console.stdout.print(f"The certificate is {made.path}.", soft_wrap=True)
    if not certificate.clean:
        raise typer.Exit(1)


def _lines(file: Path) -> list[str]:
    try:
        return [line for line in file.read_text(encoding="utf-8").splitlines() if line]
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"{file} cannot be read ({type(error).__name__}). Name a text file of ids.") from None


pseudonyms_app = group("pseudonyms", "Keep real ids out of a run: make a key, find ids again.")


@pseudonyms_app.command()
def key(file: Annotated[Path, typer.Argument(help="the file to write, outside every run")]) -> None:
    """Make a key, and keep a copy of it safe: without it no user can be looked up or erased by their id."""
    made = pseudonyms.create(file)
    console.tell(f'key {made.number} in {file}. Use it: [source] pseudonyms = "{file}"', key=made.number)


@pseudonyms_app.command(name="of")
def pseudonyms_of(ids: Annotated[list[str], typer.Argument(help="real ids")]) -> None:
    """Print the pseudonym of each id, one a line, by the key of `merit --key FILE`."""
    for pseudonym in pseudonyms.in_use().of(ids):
        console.stdout.print(pseudonym, markup=False)


@pseudonyms_app.command()
def restore(
    file: Annotated[Path, typer.Argument(help="a table with pseudonyms, such as an export")],
    ids: Annotated[Path, typer.Option(help="a table with the real ids of all of them, such as the run's interactions")],
    out: Annotated[Path, typer.Option(help="the file to write: .parquet, .csv or .jsonl, outside every run")],
    column: Annotated[str, typer.Option(help="of the ids, in their table")] = "user_id",
) -> None:
    """Write an export with real ids in place of pseudonyms, by the key of `merit --key FILE`."""
    rows = restore_ids(file, ids, out, column)
    console.tell(f"{rows:,} users with their real ids in {out}", rows=rows, file=str(out))


audit_app = group("audit", "The log of exports, overrides, erasures and keys: show it, verify it.")
Logged = Annotated[Path, typer.Argument(help="a folder with a log, or with folders that have one")]


@audit_app.command()
def show(folder: Logged, as_json: AsJson = False) -> None:
    """Show what was done, the oldest first."""
    logs = {str(path): audit.read(path) for path in audit.logs(folder)}
    if as_json:
        console.show_json({name: [entry.model_dump() for entry in entries] for name, entries in logs.items()})
        return
    for name, entries in logs.items():
        rows = [(entry.number, entry.at, entry.event, escape(json.dumps(entry.details))) for entry in entries]
        console.show_table(escape(name), ["number", "at", "event", "details"], rows)


@audit_app.command()
def verify(
    folder: Logged,
    expect: Annotated[str | None, typer.Option(help="a head that was noted earlier: it must still be there")] = None,
    as_json: AsJson = False,
) -> None:
    """Check that every line is as it was written, and name the first that is not. The exit code is 1 if one is not."""
    checks = {str(path): audit.verify(path) for path in audit.logs(folder)}
    faults = [f"{name}: {check.fault}" for name, check in checks.items() if check.fault]
    if expect and not any(audit.holds(path, expect) for path in audit.logs(folder)):
        faults.append(f"No log below {folder} has the entry {expect}: lines were removed, or the log was written anew.")
    if as_json:
        console.show_json({name: check.model_dump() for name, check in checks.items()})
    for name, check in checks.items() if not as_json else ():
        torn = f"; {check.torn} bytes of a last line were cut short by a crash" if check.torn else ""
        console.stdout.print(f"{name}: {check.entries} entries, head {check.head}{torn}", markup=False, soft_wrap=True)
    for fault in faults:
        console.stderr.print(f"[bold red]fault[/] {escape(fault)}", soft_wrap=True)
    if faults:
        raise typer.Exit(1)
