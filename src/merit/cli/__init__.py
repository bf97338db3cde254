"""The command line. It holds no logic: every command reads its arguments, calls one function, and shows the result.

One file for each group of commands; those without a group are here.
"""

from __future__ import annotations

import signal
import sys
from pathlib import Path
from typing import Annotated

import typer
from rich.markup import escape

from merit import __version__
from merit.cli.audience import audience_app
from merit.cli.data import data_app
from merit.cli.experiment import experiment_app
from merit.cli.labels import labels_app
from merit.cli.model import model_app
from merit.cli.options import AsJson, ConfigFile, Overrides, group, settings
from merit.cli.output import described
from merit.cli.privacy import audit_app, erase, pseudonyms_app
from merit.cli.run import bench, plan, refresh, run, update
from merit.cli.serve import keys_app, serve
from merit.cli.tag import tag
from merit.cli.weights import weights_app
from merit.core import artifacts, config, console, doctor, extras, processes, signing
from merit.core.errors import MeritError
from merit.privacy import pseudonyms

app = typer.Typer(
    name="merit",
    help="Propensities over text interests: interests for a user, users for an interest.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)
INTERRUPTED = 130  # typer's exit code of Ctrl-C, which it does not explain
config_app = group("config", "What can be set, and what is set.")
GROUPS = (data_app, labels_app, config_app, weights_app, model_app, audience_app, experiment_app)
for commands in (*GROUPS, keys_app, audit_app, pseudonyms_app):
    app.add_typer(commands)
for command in (run, refresh, update, tag, serve, bench, plan, erase):
    app.command()(command)


@app.callback()
def _options(
    verbose: Annotated[bool, typer.Option("--verbose", "-v", help="show more messages")] = False,
    quiet: Annotated[bool, typer.Option("--quiet", "-q", help="show warnings only")] = False,
    log_file: Annotated[Path | None, typer.Option(help="write all messages there as JSON lines")] = None,
    key: Annotated[
        Path | None,
        typer.Option(envvar="MERIT_KEY", help="of pseudonyms: ids in commands and tables are real ones (docs/data.md)"),
    ] = None,
    signing_key: Annotated[
        Path | None,
        typer.Option(envvar="MERIT_SIGNING_KEY", help="open only models that this key has signed (docs/security.md)"),
    ] = None,
) -> None:
    console.set_up_logging(verbose, quiet or processes.number() > 0, log_file)
    pseudonyms.use(key)
    signing.require(signing_key)


@app.command()
def show(
    folder: Annotated[Path, typer.Argument(help="an artifact folder, or a folder of such folders")],
    verify: Annotated[bool, typer.Option(help="check every byte against the manifest")] = True,
    as_json: AsJson = False,
) -> None:
    """Show what a folder is and where it came from."""
    family = artifacts.family(folder, verify)
    if as_json:
        console.show_json([described(artifact) | artifact.manifest.model_dump() for artifact in family])
        return
    for artifact in family:
        console.stdout.print(artifacts.describe(artifact))


@app.command(name="doctor")
def doctor_command(
    as_json: AsJson = False,
    quiet: Annotated[bool, typer.Option("--quiet", "-q", help="show faults only")] = False,
) -> None:
    """Check versions, weights, cores and memory, and whether torch computes."""
    findings = doctor.examine()
    if as_json:
        console.show_json([finding.model_dump() for finding in findings])
    else:
        rows = [(f.what, f.value, "ok" if f.ok else f"! {f.remedy}") for f in findings if not (quiet and f.ok)]
        if rows:
            console.show_table("merit doctor", ["check", "value", ""], rows)
    if not all(finding.ok for finding in findings):
        raise typer.Exit(1)


@config_app.command()
def schema() -> None:
    """Print the JSON Schema of a run's configuration."""
    from merit.core.settings import RunConfig

    console.show_json(config.json_schema(RunConfig))


@config_app.command(name="show")
def show_config(file: ConfigFile, override: Overrides = None) -> None:
    """Print a configuration with every default filled in."""
    console.show_json(settings(file, override).model_dump(mode="json"))


@app.command()
def version() -> None:
    """Print the version."""
    console.stdout.print(__version__)


def main() -> None:
    """Entry point: a MeritError is one message and an exit code, without a traceback."""
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # so that a draft is removed on the way out
    try:
        with extras.needed_by("This command"):
            app()
    except MeritError as error:
        console.stderr.print(f"[bold red]error[/] {escape(str(error))}", soft_wrap=True)
        sys.exit(error.exit_code)
    except SystemExit as ended:
        if ended.code == INTERRUPTED:
            console.stderr.print("Stopped. Nothing is half-written; run the same command again to go on.")
        raise
