"""merit experiment: test a campaign, from its design to pooled lifts."""

from __future__ import annotations

from datetime import datetime
from pathlib import Path
from typing import Annotated

import typer
from rich.markup import escape

from merit.campaigns.experiments import steps
from merit.campaigns.experiments.design import ExperimentDesign
from merit.cli.options import AsJson, Design, Out, Overrides, group
from merit.cli.output import described, point_to_page, show
from merit.core import artifacts, config, console

experiment_app = group(
    "experiment", "Test a campaign: agree on a design, assign users, analyse outcomes, pool campaigns."
)


@experiment_app.command(name="design")
def freeze_design(
    file: Annotated[Path, typer.Argument(help="a TOML file that says what is agreed, as in docs/experiments.md")],
    out: Out,
    override: Overrides = None,
    as_json: AsJson = False,
) -> None:
    """Freeze a design before launch, and show how many users it needs and how long it takes."""
    design = steps.freeze(config.load(ExperimentDesign, file, override or []), out)
    if as_json:
        console.show_json(described(design))
        return
    show(design)
    for title, columns, rows in steps.power_tables(design):
        console.show_table(title, columns, rows)


@experiment_app.command(name="assign")
def assign_arms(
    design: Design,
    users: Annotated[Path, typer.Option(help="a table of users, one row each: Parquet, CSV or JSONL")],
    out: Out,
) -> None:
    """Give every user of a table an arm, by the design's salt. The same users always get the same arms."""
    show(steps.assign_users(artifacts.load(design, steps.DESIGN), users, out))


@experiment_app.command()
def analyze(
    design: Design,
    out: Out,
    table: Annotated[Path | None, typer.Option(help="outcomes and covariates, a row per assigned user")] = None,
    statistics: Annotated[Path | None, typer.Option(help="or sufficient statistics, see docs/experiments.md")] = None,
    assignment: Annotated[Path | None, typer.Option(help="of `merit experiment assign`: finds lost users")] = None,
    until: Annotated[datetime | None, typer.Option(formats=["%Y-%m-%d"], help="the last day counted")] = None,
    as_json: AsJson = False,
) -> None:
    """Analyse a campaign by its design: lift, decision, and a page. Exit code 3 if its comparison is broken."""
    agreed = artifacts.load(design, steps.DESIGN)
    assigned = artifacts.load(assignment, steps.ASSIGNMENT) if assignment else None
    made = steps.analyse_campaign(agreed, out, table, statistics, assigned, until.date() if until else None)
    analysis = steps.analysis_of(made)
    if as_json:
        console.show_json(analysis.model_dump(mode="json"))
    else:
        console.stdout.print(escape(analysis.sentence))
        console.show_table(str(made.path), ["figure", "value"], steps.headline(analysis))
        for finding in analysis.findings:
            console.stdout.print(f"{finding.level}: {escape(finding.message)}")
        point_to_page(made)
    if analysis.verdict == "blocked":
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
    """Pool the lifts of several campaigns, and derive a prior for the next."""
    settings = config.build(steps.PoolConfig, {"spread": spread}, origin="the command line")
    made = steps.pool_campaigns(campaigns or [], table, out, settings)
    for line in steps.pooled_lines(made):
        console.stdout.print(escape(line))
    point_to_page(made)
