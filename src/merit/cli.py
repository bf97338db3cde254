"""The command line. It holds no logic: every command reads its words, calls one function, and shows the answer."""

from __future__ import annotations

import signal
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.markup import escape

from merit import __version__, artifacts, config, console, doctor
from merit.data import check, planted, sources
from merit.errors import ConfigError, MeritError
from merit.stages.evaluate import show_results
from merit.stages.labels import change_labels

if TYPE_CHECKING:
    from merit.stages.run import RunConfig

app = typer.Typer(
    name="merit",
    help="Propensities over text interests: interests for a user, users for an interest.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)
data_app = typer.Typer(help="Look at input tables before anything is made of them.", no_args_is_help=True)
labels_app = typer.Typer(
    help="Change a label space; every change is a new version in a new folder.", no_args_is_help=True
)
config_app = typer.Typer(help="What can be set, and what is set.", no_args_is_help=True)
app.add_typer(data_app, name="data")
app.add_typer(labels_app, name="labels")
app.add_typer(config_app, name="config")

ConfigFile = Annotated[Path, typer.Argument(help="a TOML file, such as configs/demo.toml")]
Overrides = Annotated[
    list[str] | None, typer.Option("--set", metavar="A.B=C", help="override a setting; may be repeated")
]
AsJson = Annotated[bool, typer.Option("--json", help="print the result as JSON")]
Reason = Annotated[str, typer.Option(help="why; kept in the space's list of changes")]
Source = Annotated[Path, typer.Argument(help="a labels artifact")]
Texts = Annotated[list[str], typer.Argument(help="labels")]
Out = Annotated[Path, typer.Option(help="the folder to write")]
Cache = Annotated[Path, typer.Option(help="where label vectors are kept")]
DEFAULT_CACHE = Path(".cache/merit")


@app.callback()
def _options(
    verbose: Annotated[bool, typer.Option("--verbose", "-v", help="tell more")] = False,
    quiet: Annotated[bool, typer.Option("--quiet", "-q", help="tell warnings only")] = False,
    log_file: Annotated[Path | None, typer.Option(help="write all messages there as JSON lines")] = None,
) -> None:
    console.set_up_logging(verbose, quiet, log_file)


@app.command()
def run(
    file: ConfigFile,
    override: Overrides = None,
    until: Annotated[str | None, typer.Option(help="stop after this stage (examples, labels, data-report, …)")] = None,
    as_json: AsJson = False,
) -> None:
    """Run all stages of a configuration; what is finished and unchanged is kept."""

    from merit.stages.run import run as run_stages
    from merit.stages.run import stage_named

    made = run_stages(_settings(file, override), stage_named(until))
    if as_json:
        console.show_json({name: _described(artifact) for name, artifact in made.items()})
        return
    for name, artifact in made.items():
        shown = [(key, value) for key, value in artifact.manifest.summary.items() if not isinstance(value, dict | list)]
        console.show_table(f"{name}  {artifact.path}", ["figure", "value"], shown)
    if results := made.get("results"):
        show_results(results)
    for name in ("data-report", "results"):
        if report := made.get(name):
            console.stdout.print(f"Open {report.file('index.html').resolve().as_uri()} in a browser.")


@app.command()
def show(
    folder: Annotated[Path, typer.Argument(help="an artifact folder, or a folder of such folders")],
    verify: Annotated[bool, typer.Option(help="check every byte against the manifest")] = True,
    as_json: AsJson = False,
) -> None:
    """Tell what a folder is and where it came from."""
    family = artifacts.family(folder, verify)
    if as_json:
        console.show_json([_described(artifact) | artifact.manifest.model_dump() for artifact in family])
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


@data_app.command(name="check")
def data_check(
    file: Annotated[Path | None, typer.Argument(help="a TOML file with a [source]; or give the two tables")] = None,
    interactions: Annotated[Path | None, typer.Option(help="user_id, item_id, timestamp, event")] = None,
    items: Annotated[Path | None, typer.Option(help="item_id, title, tags, vertical")] = None,
    override: Overrides = None,
    quarantine: Annotated[Path | None, typer.Option(help="write every row that cannot be used there")] = None,
    as_json: AsJson = False,
) -> None:
    """Say what is in two tables, what is wrong with them, and how to mend it. Exit code 3 if a row is bad."""
    tables = sources.open_source(_source(file, interactions, items, override or []))
    report = check.examine(tables)
    if as_json:
        console.show_json(report.model_dump(mode="json"))
    else:
        for part in check.render(report):
            console.stdout.print(part)
    if quarantine:
        count = check.quarantine(tables, quarantine)
        console.tell(f"{count:,} rows written to {quarantine}", rows=count, file=str(quarantine))
    if report.missing or report.bad:
        raise typer.Exit(3)


@data_app.command(name="planted")
def data_planted(
    out: Out,
    override: Overrides = None,
    seed: int = 7,
) -> None:
    """Write a planted shop: tables whose true interests are known."""
    settings = config.build(planted.PlantedConfig, {}, override or [])
    planted.write(planted.shop(settings, seed), out)
    console.tell(f"a shop of {settings.users:,} users in {out}", folder=str(out))


@labels_app.command()
def add(
    labels: Source,
    texts: Texts,
    out: Out,
    vertical: Annotated[str, typer.Option(help="of the new labels")] = "other",
    reason: Reason = "",
    cache: Cache = DEFAULT_CACHE,
) -> None:
    """Add labels. Only their texts are encoded; all other labels keep their vectors bit for bit."""
    space = artifacts.load(labels, "labels")
    verticals = [vertical] * len(texts)
    _show(change_labels(space, out, "add", texts, reason=reason, cache=cache, verticals=verticals))


@labels_app.command()
def retire(labels: Source, texts: Texts, out: Out, reason: Reason, cache: Cache = DEFAULT_CACHE) -> None:
    """Retire labels: they keep their number, and are never predicted again."""
    _show(change_labels(artifacts.load(labels, "labels"), out, "retire", texts, reason=reason, cache=cache))


@labels_app.command()
def block(labels: Source, texts: Texts, out: Out, reason: Reason, cache: Cache = DEFAULT_CACHE) -> None:
    """Block labels: they never leave the space."""
    _show(change_labels(artifacts.load(labels, "labels"), out, "block", texts, reason=reason, cache=cache))


@labels_app.command()
def rename(labels: Source, old: str, new: str, out: Out, reason: Reason = "", cache: Cache = DEFAULT_CACHE) -> None:
    """Rename a label. Its old name still leads to it."""
    _show(change_labels(artifacts.load(labels, "labels"), out, "rename", [old], reason=reason, cache=cache, to=new))


@config_app.command()
def schema() -> None:
    """Print the JSON Schema of a run's configuration."""
    from merit.stages.run import RunConfig

    console.show_json(config.json_schema(RunConfig))


@config_app.command(name="show")
def show_config(file: ConfigFile, override: Overrides = None) -> None:
    """Print a configuration with every default filled in."""
    console.show_json(_settings(file, override).model_dump(mode="json"))


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
    except KeyboardInterrupt:
        console.stderr.print("Stopped. Nothing is half-written; run the same command again to go on.")
        sys.exit(130)


def _settings(file: Path, override: list[str] | None) -> RunConfig:
    """The whole configuration. Its trainings bring torch along: three seconds that other commands need not wait."""
    from merit.stages.run import RunConfig

    return config.load(RunConfig, file, override or [])


class _TwoTables(config.Frozen):
    source: sources.TablesSource


def _source(file: Path | None, interactions: Path | None, items: Path | None, override: list[str]) -> sources.Source:
    if file:
        return _settings(file, override).source
    if not interactions or not items:
        raise ConfigError("Name a configuration, or both tables: merit data check --interactions A --items B.")
    values = {"source": {"kind": "tables", "interactions": str(interactions), "items": str(items)}}
    return config.build(_TwoTables, values, override, origin="the command line").source


def _described(artifact: artifacts.Artifact) -> dict[str, Any]:
    return {"folder": str(artifact.path), "kind": artifact.manifest.kind, "hash": artifact.manifest.hash} | {
        "summary": artifact.manifest.summary
    }


def _show(artifact: artifacts.Artifact) -> None:
    console.stdout.print(artifacts.describe(artifact))
