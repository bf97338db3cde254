"""The command line. It holds no logic: every command reads its words, calls one function, and shows the answer.

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
from merit.cli.audit import audit_app
from merit.cli.bench import bench
from merit.cli.data import data_app
from merit.cli.erase import erase
from merit.cli.experiment import experiment_app
from merit.cli.keys import keys_app
from merit.cli.labels import labels_app
from merit.cli.model import model_app
from merit.cli.options import Address, AsJson, ConfigFile, Engine, Overrides, Threads, Workers
from merit.cli.output import described, engine_words, settings, short
from merit.cli.plan import plan
from merit.cli.pseudonyms import pseudonyms_app
from merit.cli.serve import serve
from merit.cli.weights import weights_app
from merit.core import artifacts, config, console, doctor, processes
from merit.core.errors import MeritError
from merit.evaluation.evaluate import show_results
from merit.privacy import pseudonyms

app = typer.Typer(
    name="merit",
    help="Propensities over text interests: interests for a user, users for an interest.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)
INTERRUPTED = 130  # what typer makes of Ctrl-C, without a word
config_app = typer.Typer(help="What can be set, and what is set.", no_args_is_help=True)
app.add_typer(data_app, name="data")
app.add_typer(labels_app, name="labels")
app.add_typer(config_app, name="config")
app.add_typer(weights_app, name="weights")
app.add_typer(model_app, name="model")
app.add_typer(audience_app, name="audience")
app.add_typer(experiment_app, name="experiment")
app.add_typer(keys_app, name="keys")
app.add_typer(audit_app, name="audit")
app.add_typer(pseudonyms_app, name="pseudonyms")
app.command()(serve)
app.command()(bench)
app.command()(plan)
app.command()(erase)


@app.callback()
def _options(
    verbose: Annotated[bool, typer.Option("--verbose", "-v", help="tell more")] = False,
    quiet: Annotated[bool, typer.Option("--quiet", "-q", help="tell warnings only")] = False,
    log_file: Annotated[Path | None, typer.Option(help="write all messages there as JSON lines")] = None,
    key: Annotated[
        Path | None,
        typer.Option(envvar="MERIT_KEY", help="of pseudonyms: ids in commands and tables are real ones (docs/data.md)"),
    ] = None,
) -> None:
    console.set_up_logging(verbose, quiet or processes.number() > 0, log_file)
    pseudonyms.use(key)


@app.command()
def run(
    file: ConfigFile,
    override: Overrides = None,
    until: Annotated[str | None, typer.Option(help="stop after this stage (examples, labels, data-report, …)")] = None,
    engine: Engine = None,
    workers: Workers = None,
    threads: Threads = None,
    address: Address = None,
    as_json: AsJson = False,
) -> None:
    """Run all stages of a configuration; what is finished and unchanged is kept."""

    from merit.core.pipeline import run as run_stages

    words = [*(override or []), *engine_words(engine, workers, threads, address)]
    made = run_stages(settings(file, words), until)
    if processes.number():  # the main process tells
        return
    if as_json:
        console.show_json({name: described(artifact) for name, artifact in made.items()})
        return
    for name, artifact in made.items():
        told = artifact.manifest.summary
        shown = [(key, short(value)) for key, value in told.items() if not isinstance(value, dict | list)]
        console.show_table(f"{name}  {artifact.path}", ["figure", "value"], shown)
    if results := made.get("results"):
        show_results(results)
    for name in ("data-report", "results"):
        if report := made.get(name):
            console.stdout.print(f"Open {report.file('index.html').resolve().as_uri()} in a browser.")
    if model := made.get("model"):
        place = escape(str(model.path.parent))
        console.stdout.print(f"Ask it: merit model interests {place} USER, merit model audience {place} INTEREST")


@app.command()
def show(
    folder: Annotated[Path, typer.Argument(help="an artifact folder, or a folder of such folders")],
    verify: Annotated[bool, typer.Option(help="check every byte against the manifest")] = True,
    as_json: AsJson = False,
) -> None:
    """Tell what a folder is and where it came from."""
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
    found = doctor.examine()
    if as_json:
        console.show_json([finding.model_dump() for finding in found])
    else:
        rows = [(f.what, f.value, "ok" if f.ok else f"! {f.remedy}") for f in found if not (quiet and f.ok)]
        if rows:
            console.show_table("merit doctor", ["what", "found", ""], rows)
    if not all(finding.ok for finding in found):
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
    """Entry point: an error meant for a person is one message and an exit code, without a traceback."""
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # so that a draft is removed on the way out
    try:
        app()
    except MeritError as error:
        console.stderr.print(f"[bold red]error[/] {escape(str(error))}", soft_wrap=True)
        sys.exit(error.exit_code)
    except SystemExit as ended:
        if ended.code == INTERRUPTED:
            console.stderr.print("Stopped. Nothing is half-written; run the same command again to go on.")
        raise
