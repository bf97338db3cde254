"""merit bench: data sets × methods × seeds."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from merit.cli.options import AsJson, ConfigFile, Overrides
from merit.core import config, console


def bench(
    file: ConfigFile,
    only: Annotated[list[str] | None, typer.Option(help="methods whose names begin so; may be repeated")] = None,
    dataset: Annotated[list[str] | None, typer.Option(help="this data set only; may be repeated")] = None,
    table: Annotated[list[str] | None, typer.Option(help="show this table only; may be repeated")] = None,
    markdown: Annotated[Path | None, typer.Option(help="write all tables there, between marks or whole")] = None,
    figure: Annotated[Path | None, typer.Option(help="draw recall of all methods there, as SVG")] = None,
    from_results: Annotated[bool, typer.Option(help="make nothing: show what the JSON files have")] = False,
    override: Overrides = None,
    as_json: AsJson = False,
) -> None:
    """Compare methods on data sets, cell by cell; what is finished and unchanged is kept."""

    from merit.bench.config import BenchConfig
    from merit.bench.report import compare, show

    settings = config.load(BenchConfig, file, override or [])
    outcome = compare(settings, only or [], dataset or [], table or [], markdown, figure, from_results)
    if as_json:
        console.show_json({each.dataset: each.model_dump(mode="json") for each in outcome.results})
    else:
        show(outcome, table or [])
    if outcome.failures:
        raise typer.Exit(1)
