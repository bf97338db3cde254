"""merit audience: audiences that can be sent."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.markup import escape

import merit
from merit.campaigns.audiences import export, report, request
from merit.campaigns.audiences.build import build, preview
from merit.campaigns.audiences.export import Form
from merit.cli.options import AsJson, Asked, ModelFolder, NewerLabels, Out, Overrides, RequestFile
from merit.cli.output import described, show, show_frame
from merit.core import console
from merit.core.files import storage_errors
from merit.report import page

if TYPE_CHECKING:
    from merit.campaigns.audiences.audience import AudienceSummary

audience_app = typer.Typer(
    help="Audiences that can be sent: preview one, build it, export it, compare several.", no_args_is_help=True
)


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
    """Tell how many users an audience has, how it comes about, and what to expect. No user is named or written.

    Without a request, say how many: --set size.by=percentile --set size.percent=5.
    """
    asked = request.read(file, override or [], interests or [])
    told = preview(merit.load(folder, labels), asked).figures
    if html:
        with storage_errors(html):
            html.write_text(page.render(report.audience_page(told)), encoding="utf-8")
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
    made = build(merit.load(folder, labels), asked, out)
    if as_json:
        console.show_json(described(made))
        return
    _show_audience(export.load_summary(made), as_json=False)
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
    members = export.load(audience_folder)
    judge = merit.load(export.model_folder(members, model), labels)
    show(export.export(members, judge, form, out, arm))


@audience_app.command(name="overlap")
def overlap_audiences(
    folders: Annotated[list[Path], typer.Argument(help="folders that `merit audience build` wrote")],
    as_json: AsJson = False,
) -> None:
    """Tell whom audiences share, two by two."""
    told = export.load_overlaps(folders)
    if as_json:
        console.show_json(told.to_dicts())
    else:
        console.show_table("Overlap", told.columns, told.rows())


def _show_audience(told: AudienceSummary, as_json: bool) -> None:
    shown = report.audience_page(told)
    if as_json:
        console.show_json(report.public_summary(told))
        return
    console.stdout.print(escape(shown.subtitle))
    show_frame(told.request.name, report.waterfall_table(told), lines=False)
    console.show_table("", ["figure", "value", ""], [(tile.label, tile.value, tile.note) for tile in shown.tiles])
    for note in told.notes:
        console.stdout.print(f"note: {escape(note)}")
