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
from merit.campaigns.sync import destination, sync
from merit.campaigns.sync.destination import Mode
from merit.cli import options, output
from merit.core import artifacts, console
from merit.core.files import storage_errors
from merit.report import page

if TYPE_CHECKING:
    from merit.campaigns.audiences.audience import AudienceSummary

audience_app = options.group(
    "audience", "Audiences that can be sent: preview one, build it, export it, compare several."
)


@audience_app.command(name="preview")
def preview_audience(
    folder: options.ModelFolder,
    interests: options.Interests = None,
    file: options.RequestFile = None,
    override: options.Overrides = None,
    labels: options.NewerLabels = None,
    html: Annotated[Path | None, typer.Option("--page", help="write the page there")] = None,
    as_json: options.AsJson = False,
) -> None:
    """Show how many users an audience has, how it comes about, and what to expect. No user is named or written.

    Without a request, give its size: --set size.by=percentile --set size.percent=5.
    """
    wanted = request.read(file, override or [], interests or [])
    summary = preview(merit.load(folder, labels), wanted)
    if html:
        with storage_errors(html):
            html.write_text(page.render(report.audience_page(summary)), encoding="utf-8")
    _show_audience(summary, as_json)


@audience_app.command(name="build")
def build_audience(
    folder: options.ModelFolder,
    out: options.Out,
    interests: options.Interests = None,
    file: options.RequestFile = None,
    override: options.Overrides = None,
    labels: options.NewerLabels = None,
    as_json: options.AsJson = False,
) -> None:
    """Choose the users, draw holdout and control, and write them with a page."""
    wanted = request.read(file, override or [], interests or [])
    made = build(merit.load(folder, labels), wanted, out)
    if as_json:
        console.show_json(output.described(made))
        return
    _show_audience(export.load_summary(made), as_json=False)
    console.stdout.print(f"hash {made.manifest.hash}")
    output.point_to_page(made)


@audience_app.command(name="export")
def export_audience(
    audience_folder: Annotated[Path, typer.Argument(help="a folder that `merit audience build` wrote")],
    out: options.Out,
    form: Annotated[Form, typer.Option("--format", help="csv is safe to open in a spreadsheet")] = "parquet",
    arm: Annotated[str, typer.Option(help="treatment, control, holdout, or all")] = "treatment",
    model: Annotated[
        Path | None, typer.Option(help="the model that checks interests; by default the audience's")
    ] = None,
    labels: options.NewerLabels = None,
) -> None:
    """Write the users to be contacted to a file, with a manifest of rows and hash."""
    members = artifacts.load(audience_folder, export.AUDIENCE)
    checked_by = merit.load(export.model_folder(members, model), labels)
    output.show(export.export(members, checked_by, form, out, arm))


@audience_app.command(name="sync")
def sync_audience(
    audience_folder: Annotated[Path, typer.Argument(help="a folder that `merit audience build` wrote")],
    destination_file: Annotated[Path, typer.Argument(help="a file with [destination], as in docs/warehouse.md")],
    mode: Annotated[Mode, typer.Option(help="append adds members; upsert updates too; mirror also removes leavers")],
    model: Annotated[
        Path | None, typer.Option(help="the model that checks interests; by default the audience's")
    ] = None,
    labels: options.NewerLabels = None,
    clear: Annotated[bool, typer.Option(help="remove all rows of the audience there instead")] = False,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="only count: nothing is written")] = False,
    as_json: options.AsJson = False,
) -> None:
    """Send the users to be contacted to a table, a file in a bucket, or a webhook. Nobody else is sent."""
    members, to = artifacts.load(audience_folder, export.AUDIENCE), destination.read(destination_file)
    if clear:
        counts = sync.clear(members.path, export.load_summary(members).request.name, to, dry_run)
    else:
        checked_by = merit.load(export.model_folder(members, model), labels)
        counts = sync.sync_audience(members, checked_by, to, mode, dry_run)
    output.show_sync(counts, destination.title(to), dry_run, as_json)


@audience_app.command(name="overlap")
def overlap_audiences(
    folders: Annotated[list[Path], typer.Argument(help="folders that `merit audience build` wrote")],
    as_json: options.AsJson = False,
) -> None:
    """Show the users that audiences share, pair by pair."""
    table = export.load_overlaps(folders)
    if as_json:
        console.show_json(table.to_dicts())
    else:
        console.show_table("Overlap", table.columns, table.rows())


def _show_audience(summary: AudienceSummary, as_json: bool) -> None:
    if as_json:
        console.show_json(report.public_summary(summary))
        return
    content = report.audience_page(summary)
    console.stdout.print(escape(content.subtitle))
    output.show_frame(summary.request.name, report.waterfall_table(summary), lines=False)
    console.show_table("", ["figure", "value", ""], [(tile.label, tile.value, tile.note) for tile in content.tiles])
    for note in summary.notes:
        console.stdout.print(f"note: {escape(note)}")
